"""python -m bnneval: the table, metrics.json, the plots, and exit status 2 with a one-line message for bad input."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest

import bnneval
from bnneval import strict_json
from bnneval.__main__ import main


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(10) * 0.2, (3, 200))
    np.savez(tmp_path / "id.npz", probs=probs, labels=probs.mean(axis=0).argmax(axis=1))
    np.savez(tmp_path / "ood.npz", probs=rng.dirichlet(np.ones(10), (3, 100)))
    return tmp_path


def run(*arguments):
    return main([str(a) for a in arguments])


def test_report_table_json_and_plots(files, capsys):
    assert run(files / "id.npz", "--ood", files / "ood.npz", "--out", files / "out") == 0
    printed = capsys.readouterr().out
    stored = json.loads((files / "out" / "metrics.json").read_text())
    with np.load(files / "id.npz") as data, np.load(files / "ood.npz") as other:
        probs, labels, ood = data["probs"].mean(axis=0), data["labels"], other["probs"].mean(axis=0)
    assert stored["ece"] == bnneval.ece(probs, labels)
    assert stored["nll"] == bnneval.nll(probs, labels)
    expected = bnneval.auroc(bnneval.predictive_entropy(probs), bnneval.predictive_entropy(ood))
    assert stored["ood"]["auroc"] == expected
    assert stored["weight_samples"] == 3
    assert stored["about"]["predictions"] == "id.npz"
    assert stored["about"]["bnneval"] == bnneval.__version__
    assert f"{stored['ece']:.6f}" in printed
    assert f"{expected:.6f}" in printed
    made = sorted(path.name for path in (files / "out").iterdir())
    plots = [f"{name}.{kind}" for name in ("entropy", "reliability", "risk_coverage", "roc") for kind in ("pdf", "png")]
    assert made == sorted(["metrics.csv", "metrics.json", *plots])
    assert all((files / "out" / name).stat().st_size > 3000 for name in plots)


def test_every_number_of_the_report_equals_that_of_its_function(files):
    with np.load(files / "id.npz") as data, np.load(files / "ood.npz") as other:
        samples, labels, ood = data["probs"], np.roll(data["labels"], 30), other["probs"]
    report, mean = bnneval.report(samples, labels, ood, bins=7), bnneval.mean_probs(samples)
    split, outside = bnneval.entropy_split(samples), bnneval.entropy_split(ood)
    expected = {
        "images": 200,
        "classes": 10,
        "accuracy": bnneval.accuracy(mean, labels),
        "nll": bnneval.nll(mean, labels),
        "brier": bnneval.brier(mean, labels),
        "ece": bnneval.ece(mean, labels, 7),
        "ece_l2": bnneval.ece(mean, labels, 7, "l2"),
        "mce": bnneval.mce(mean, labels, 7),
        "ece_adaptive": bnneval.ece(mean, labels, 7, scheme="mass"),
        "ece_classwise": bnneval.classwise_ece(mean, labels, 7),
        "aurc": bnneval.aurc(mean, labels),
        "entropy_mean": split.total.mean(),
        "entropy_std": split.total.std(),
        "weight_samples": 3,
        "aleatoric_mean": split.aleatoric.mean(),
        "epistemic_mean": split.epistemic.mean(),
        "epistemic_share": bnneval.epistemic_share(samples),
        "disagreement": bnneval.disagreement(samples),
        "nll_one_sample": bnneval.nll_one_sample(samples, labels),
        "accuracy_one_sample": bnneval.accuracy_one_sample(samples, labels),
    }
    assert {key: report[key] for key in expected} == pytest.approx(expected, abs=1e-15)
    assert set(report) == {*expected, "reliability", "ood"}
    assert len({expected[key] for key in ("ece", "ece_l2", "mce", "ece_adaptive", "ece_classwise")}) == 5
    by = {"": (split.total, outside.total), "_mutual_information": (split.epistemic, outside.epistemic)}
    scores = {"auroc": bnneval.auroc, "aupr": bnneval.aupr, "fpr95": bnneval.fpr_at_tpr}
    detection = {f"{name}{end}": score(*sets) for end, sets in by.items() for name, score in scores.items()}
    of_set = {"images": 100, "entropy_mean": outside.total.mean(), "entropy_std": outside.total.std()}
    noise = {"epistemic_share": bnneval.epistemic_share(ood), "disagreement": bnneval.disagreement(ood)}
    assert report["ood"] == pytest.approx({**of_set, **detection, **noise}, abs=1e-15)


def test_a_csv_file_gives_the_same_numbers_as_an_npz_file(files, capsys):
    with np.load(files / "id.npz") as data, np.load(files / "ood.npz") as other:
        bnneval.write_predictions(files / "id.csv", data["probs"], data["labels"])
        bnneval.write_predictions(files / "ood.csv", other["probs"])
    assert run(files / "id.npz", "--ood", files / "ood.npz") == 0
    expected = capsys.readouterr().out
    assert run(files / "id.csv", "--ood", files / "ood.csv") == 0
    assert capsys.readouterr().out == expected
    assert run(files / "id.csv", "--ood", files / "ood.npz", "--out", files / "out") == 0
    assert capsys.readouterr().out.startswith(expected)
    assert "ood_auroc," in (files / "out" / "metrics.csv").read_text()


def test_binary_probabilities_and_booleans_are_accepted_in_both_formats(files, capsys):
    np.savez(files / "binary.npz", probs=[0.9, 0.2, 0.7], labels=[True, False, False])
    (files / "binary.csv").write_text("prob,label\n0.9,True\n0.2,False\n0.7,False\n")
    for name in ("binary.npz", "binary.csv"):
        assert run(files / name, "--out", files / "out") == 0
        assert re.search(r"^accuracy +0.666667$", capsys.readouterr().out, re.MULTILINE)


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit) as stopped:
        run("--version")
    assert stopped.value.code == 0
    assert capsys.readouterr().out.strip() == bnneval.__version__


def test_without_out_nothing_is_written_and_without_ood_there_is_no_roc(files, capsys):
    before = sorted(files.iterdir())
    assert run(files / "id.npz") == 0
    assert sorted(files.iterdir()) == before
    assert "auroc" not in capsys.readouterr().out
    assert run(files / "id.npz", "--out", files / "out") == 0
    assert not (files / "out" / "roc.png").exists()


def test_plain_probabilities_have_no_epistemic_part(files, capsys):
    np.savez(files / "plain.npz", probs=np.eye(3), labels=[0, 1, 2])
    assert run(files / "plain.npz") == 0
    printed = capsys.readouterr().out
    assert "epistemic" not in printed
    assert "accuracy" in printed


def test_infinite_nll_is_a_string_in_json_and_inf_on_the_screen(files, capsys):
    np.savez(files / "wrong.npz", probs=np.eye(2), labels=[1, 0])
    assert run(files / "wrong.npz", "--out", files / "out") == 0
    text = (files / "out" / "metrics.json").read_text()
    stored = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert stored["nll"] == "Infinity"
    assert strict_json.loads(text)["nll"] == np.inf
    assert re.search(r"^nll +inf$", capsys.readouterr().out, re.MULTILINE)
    assert stored["reliability"]["accuracy"][0] is None


def test_strict_json_keeps_infinities_and_their_signs():
    values = {"a": [np.inf, {"b": -np.inf}], "c": (0.5, "text", None, True), "d": np.float64(np.inf)}
    text = strict_json.dumps(values)
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert strict_json.loads(text) == {"a": [np.inf, {"b": -np.inf}], "c": [0.5, "text", None, True], "d": np.inf}
    assert strict_json.loads(strict_json.dumps([np.nan])) == [None]


def test_equal_predictions_give_equal_bytes(files):
    for out in ("a", "b"):
        assert run(files / "id.npz", "--ood", files / "ood.npz", "--out", files / out) == 0
    for path in (files / "a").iterdir():
        assert path.read_bytes() == (files / "b" / path.name).read_bytes()


def bad(files, name, **arrays):
    np.savez(files / name, **arrays)
    return files / name


def csv(files, name, text):
    (files / name).write_text(text)
    return files / name


GOOD, LABELS = np.array([[0.7, 0.3], [0.2, 0.8]]), np.array([0, 1])
BAD = {
    "no such file": lambda f: [f / "missing.npz"],
    "a directory": lambda f: [f],
    "not an npz": lambda f: [(f / "text.npz", (f / "text.npz").write_text("hello"))[0]],
    "an empty file": lambda f: [(f / "empty.npz", (f / "empty.npz").write_bytes(b""))[0]],
    "a truncated npz": lambda f: [(f / "cut.npz", (f / "cut.npz").write_bytes((f / "id.npz").read_bytes()[:500]))[0]],
    "text that numpy would take for a pickle": lambda f: [(f / "mk.py", (f / "mk.py").write_text("import numpy"))[0]],
    "a single array": lambda f: [(f / "one.npy", np.save(f / "one.npy", GOOD))[0]],
    "no labels": lambda f: [bad(f, "x.npz", probs=GOOD)],
    "no probs": lambda f: [bad(f, "x.npz", labels=LABELS)],
    "logits": lambda f: [bad(f, "x.npz", probs=GOOD * 5, labels=LABELS)],
    "NaN": lambda f: [bad(f, "x.npz", probs=GOOD * np.nan, labels=LABELS)],
    "negative": lambda f: [bad(f, "x.npz", probs=GOOD - [[1, -1]], labels=LABELS)],
    "float labels": lambda f: [bad(f, "x.npz", probs=GOOD, labels=LABELS.astype(float))],
    "labels out of range": lambda f: [bad(f, "x.npz", probs=GOOD, labels=LABELS + 1)],
    "shapes that do not match": lambda f: [bad(f, "x.npz", probs=GOOD, labels=[0, 1, 1])],
    "an empty set": lambda f: [bad(f, "x.npz", probs=GOOD[:0], labels=LABELS[:0])],
    "an object array": lambda f: [bad(f, "x.npz", probs=np.array([[{}]], object), labels=LABELS)],
    "object labels": lambda f: [bad(f, "x.npz", probs=GOOD, labels=np.array([0, None], object))],
    "ood of another kind": lambda f: [f / "id.npz", "--ood", bad(f, "x.npz", probs=np.full((4, 10), 0.1))],
    "ood of other classes": lambda f: [f / "id.npz", "--ood", bad(f, "x.npz", probs=np.full((3, 4, 5), 0.2))],
    "ood and predictions swapped": lambda f: [f / "ood.npz", "--ood", f / "id.npz"],
    "ood with labels alone": lambda f: [f / "id.npz", "--ood", bad(f, "x.npz", labels=LABELS)],
    "out is a file": lambda f: [f / "id.npz", "--out", f / "ood.npz"],
    "a folder that cannot be created": lambda f: [f / "id.npz", "--out", "/dev/null/out"],
    "ood with NaN": lambda f: [f / "id.npz", "--ood", bad(f, "x.npz", probs=np.full((3, 4, 10), np.nan))],
    "ood of other columns": lambda f: [
        csv(f, "a.csv", "label,prob_a,prob_b\na,1,0\n"),
        "--ood",
        csv(f, "b.csv", "prob_b,prob_a\n1,0\n"),
    ],
    "a CSV file without probabilities": lambda f: [csv(f, "a.csv", "label,a\na,1\n")],
    "a CSV file with logits": lambda f: [csv(f, "a.csv", "label,prob_a,prob_b\na,5,0\n")],
    "no bins": lambda f: [f / "id.npz", "--bins", "0"],
    "more bins than fit in memory": lambda f: [f / "id.npz", "--bins", "99999999999"],
    "bins not a number": lambda f: [f / "id.npz", "--bins", "many"],
    "no file named": lambda f: [],
    "an unknown option": lambda f: [f / "id.npz", "--odd", f / "ood.npz"],
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_exit_status_2_and_one_line(files, capsys, name):
    assert run(*BAD[name](files)) == 2
    error = capsys.readouterr().err
    assert error.startswith("bnneval: ")
    assert error.count("\n") == 1
    assert "pickle=" not in error or "Object arrays" in error  # numpy's advice to load a pickle is not passed on


def test_ctrl_c_is_one_line_and_exit_status_130(files, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bnneval.__main__.report", interrupted)
    assert run(files / "id.npz") == 130
    assert capsys.readouterr().err == "bnneval: interrupted\n"


def test_half_precision_is_accepted(files, capsys):
    with np.load(files / "id.npz") as data:
        np.savez(files / "half.npz", probs=data["probs"].astype(np.float16), labels=data["labels"])
    assert run(files / "half.npz") == 0
    assert "ece" in capsys.readouterr().out


def test_an_object_array_is_never_unpickled(files, capsys):
    class Trap:
        def __reduce__(self):
            return (open, (str(files / "sprung"), "w"))

    np.savez(files / "trap.npz", probs=np.array([[Trap()]], object), labels=LABELS)
    assert run(files / "trap.npz") == 2
    assert not (files / "sprung").exists()


def test_the_module_runs_without_a_traceback(files):
    command = [sys.executable, "-m", "bnneval", str(files / "ood.npz")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "bnneval: expected probs and labels in ood.npz, got probs\n"
    assert done.stdout == ""


def test_the_metrics_of_a_run_are_not_replaced(files, capsys):
    for name in ("config.json", "metrics.json"):
        (files / name).write_text("{}")
    assert run(files / "id.npz", "--out", files) == 2
    assert "which holds a run with its own metrics.json" in capsys.readouterr().err
    assert (files / "metrics.json").read_text() == "{}"
