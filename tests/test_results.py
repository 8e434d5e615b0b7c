"""docs/results.py records runs in results.json and writes RESULTS.md from it."""

from __future__ import annotations

import json
import shlex
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import bnneval
from psdenets import cli
from psdenets.errors import BadInput
from psdenets.evaluate import main as evaluate
from psdenets.runs import compare as paired
from psdenets.train import main as train

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))  # as `python docs/results.py` does

import results  # noqa: E402
from measured import page, record, rows, targets  # noqa: E402

QUICK = (
    "--width 4 --drift 1-4-1 --epochs 1 --limit-train 64 --limit-test 40 --batch-size 32 --test-samples 2 --threads 1"
)


def entry(seed=0, data="mnist", **metrics):
    """A hand-made entry that meets the targets of MNIST."""
    scores = {"accuracy": 0.996, "ece": 0.002, "nll": 0.015, "nll_one_sample": 0.02, "nll_no_noise": 0.018}
    shares = {"epistemic_share": 0.12, "disagreement": 0.004}
    outside = {"auroc": 0.98, "auroc_mutual_information": 0.99, "epistemic_share": 0.2, "disagreement": 0.1}
    return {
        "command": "python -m psdenets.train", "commit": "abc1234+", "cpu": "A CPU", "threads": 2, "versions": {},
        "seconds": 600.0, "epochs": 7, "seed": seed, "config": {"steps": "15,30,60"},
        "metrics": {**scores, **shares, **metrics}, "ood": dict.fromkeys(rows.OOD[data], outside),
    }  # fmt: skip


def cells_of(text, start):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def target_named(title, bounded):
    (found,) = [target for target in targets.targets()[title] if target.bounded == bounded]
    return found


# The page


def test_a_line_of_the_page_shows_metrics_machine_and_commit():
    cells = cells_of(page.page({"mnist-both-seed0": entry()}), "`mnist-both`")
    assert cells[1:8] == ["0", "99.60%", "0.20%", "0.0150", "0.0200", "0.0180", "12.0%"]
    assert cells[8:13] == ["20.0%", "20.0%", "0.40%", "0.9800 / 0.9900", "0.9800 / 0.9900"]
    assert cells[13:] == ["10.0", "2", "A CPU", "abc1234+"]


def test_several_seeds_are_shown_by_mean_and_standard_deviation():
    entries = {f"mnist-both-seed{k}": entry(k, nll=nll) for k, nll in enumerate((0.01, 0.02, 0.03))}
    cells = cells_of(page.page(entries), "`mnist-both`")
    assert (cells[1], cells[4]) == ("0, 1, 2", "0.0200 ± 0.0100")


def test_rows_without_results_are_listed_as_not_measured():
    last = page.page({"digits-none-seed1": entry(1, "digits")}).partition("## Not measured")[2].splitlines()
    assert "- `digits-none`: seeds 0, 2" in last
    assert "- `cifar10-long`: seed 0" in last
    assert len(last) == len(rows.ROWS) + 2


def test_a_run_whose_preset_has_changed_since_is_marked():
    config = {**cli.configure(cli.parse(["--cut", "vertical"])).as_dict(), "epochs": 3}
    text = page.page({"digits-default-seed0": {**entry(data="digits"), "config": config}})
    assert "- `digits-default-seed0`: epochs 3 (now" in text


def test_differences_from_the_twin_are_shown_with_their_intervals():
    against = {"accuracy": [0.001, -0.002, 0.004], "nll": [-0.01, -0.02, 0.0], "auroc kmnist": [0.03, 0.01, 0.05]}
    text = page.page({"mnist-both-seed0": {**entry(), "against_twin": against}}).partition("## Differences")[2]
    cells = cells_of(text, "`mnist-both` | 0")
    assert cells[2:6] == ["+0.10 [-0.20, +0.40]", "-0.0100 [-0.0200, +0.0000]", "–", "+0.0300 [+0.0100, +0.0500]"]


def test_the_page_in_the_repository_is_that_of_the_recorded_results():
    assert (DOCS / "RESULTS.md").read_text() == page.page(record.read(DOCS / "results.json"))


# The targets


def test_a_target_is_met_missed_or_not_measured():
    target = target_named("mnist-paper", "accuracy ≥ 99.3 %")
    both = {"mnist-paper-ode-first-seed0": entry(), "mnist-paper-sde-bnn-seed0": entry(accuracy=0.993)}
    assert target.verdict(both) == targets.MET  # a bound that is attained is met
    worse = {**both, "mnist-paper-sde-bnn-seed0": entry(accuracy=0.9929)}
    assert target.verdict(worse) == targets.NOT_MET
    assert target.verdict({"mnist-paper-ode-first-seed0": entry()}) == targets.NOT_MEASURED
    cells = cells_of(page.page(worse), "accuracy ≥ 99.3 % | met (99.60%) | **not met** (99.29%)")
    assert cells[-1] == "**not met**"


def test_the_steps_of_a_refined_run_are_those_of_its_last_grid():
    assert targets.last_steps(entry(), None) == 60


def test_a_target_for_three_cuts_is_decided_by_counting():
    target = target_named("mnist", "epistemic share, OOD ≥ 10 %")
    good, bad = entry(), {**entry(), "ood": {name: {"epistemic_share": 0.05} for name in rows.OOD["mnist"]}}
    names = [f"{row}-seed0" for row in rows.cuts_of("mnist")]
    assert target.verdict(dict.fromkeys(names[:3], good)) == "met: 3 of 6, 3 needed"
    assert target.verdict(dict.fromkeys(names[:3], bad)) == "not measured: 0 of 6, 3 needed"
    assert target.verdict(dict.fromkeys(names[:4], bad)) == "**not met**: 0 of 6, 3 needed"


def test_a_run_is_compared_with_the_twin_of_its_seed():
    target = target_named("mnist", "accuracy − twin ≥ -0.3 %")
    entries = {"mnist-both-seed0": entry(), "mnist-none-seed1": entry(1)}
    assert target.values(entries)["mnist-both"] is None
    entries["mnist-none-seed0"] = entry(accuracy=0.999)
    assert target.met(target.values(entries)["mnist-both"])  # 0.3 points less, up to rounding
    entries["mnist-none-seed0"] = entry(accuracy=0.9991)
    assert not target.met(target.values(entries)["mnist-both"])


def test_auroc_above_the_twin_needs_one_score_on_every_ood_set_and_in_every_seed():
    target = target_named("mnist", "low end of AUROC − twin > 0")

    def value(*lows):
        keys = [f"{score} {name}" for name in rows.OOD["mnist"] for score in ("auroc", "auroc_mutual_information")]
        against = [{key: [0, low, 1] for key, low in zip(keys, one, strict=False)} for one in lows]
        return target.values({f"mnist-both-seed{k}": {**entry(k), "against_twin": a} for k, a in enumerate(against)})

    assert value([-0.1, 0.02, 0.01, -0.1])["mnist-both"] == 0.01
    assert value([-0.1, 0.02, 0.01, -0.1], [0.5, 0.5, -0.3, -0.2])["mnist-both"] == -0.2
    assert value([-0.1, 0.02])["mnist-both"] is None  # the second OOD set was not compared


# Paired intervals


def predictions(seed, n=400):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(4, 0.3), n), rng.integers(4, size=n)


def test_a_model_does_not_differ_from_itself():
    probs, labels = predictions(0)
    assert all(found == (0, 0, 0) for found in paired.classification(probs, probs, labels).values())
    score = probs.max(axis=1)
    assert paired.auroc(score[:200], score[200:], score[:200], score[200:]) == (0, 0, 0)


def test_differences_are_those_of_bnneval():
    (probs, labels), (twin, _) = predictions(1), predictions(2)
    found = paired.classification(probs, twin, labels)
    for name in ("accuracy", "nll", "ece"):
        metric = getattr(bnneval, name)
        expected = metric(probs, labels) - metric(twin, labels)
        assert found[name].value == pytest.approx(expected, abs=1e-12)  # the same sums in another order


def test_the_interval_of_an_accuracy_difference_is_that_of_a_binomial():
    # The twin alone errs on 100 of 1,000 images: 0.1 +- 1.96 sqrt(0.1 * 0.9 / 1000). The ends are quantiles of 1,000
    # resamples, with a standard error of about 0.0008 (and a grid of 0.001); the seed is fixed.
    right, wrong = [0.9, 0.1], [0.1, 0.9]
    twin = np.array([wrong] * 100 + [right] * 900)
    found = paired.classification(np.array([right] * 1000), twin, np.zeros(1000, int))["accuracy"]
    assert found.value == pytest.approx(0.1, abs=1e-15)  # 1 - 0.9
    assert (found.low, found.high) == pytest.approx((0.1 - 0.0186, 0.1 + 0.0186), abs=0.003)


def test_a_perfect_score_against_a_constant_one_differs_by_one_half_for_certain():
    found = paired.auroc(np.zeros(30), np.ones(20), np.zeros(30), np.zeros(20))
    assert found == (0.5, 0.5, 0.5)


def test_an_infinite_nll_has_no_interval():
    found = paired.classification(np.array([[1.0, 0.0]] * 4), np.full((4, 2), 0.5), np.array([0, 0, 0, 1]))["nll"]
    assert found.value == np.inf
    assert np.isnan([found.low, found.high]).all()


# Training and recording


@pytest.fixture
def tiny(monkeypatch):
    """Two rows with tiny networks; commands run in this process."""
    monkeypatch.setitem(rows.ROWS, "digits-both", rows.Row(f"--cut both --sigma 0.5 {QUICK}"))
    monkeypatch.setitem(rows.ROWS, "digits-none", rows.Row(f"--cut none {QUICK}"))
    monkeypatch.setitem(rows.OOD, "digits", ("noise",))
    commands = {"psdenets.train": train, "psdenets.evaluate": evaluate}

    def call(module, *args):
        assert commands[module](args) == 0

    monkeypatch.setattr(results, "call", call)


def test_a_trained_run_is_recorded_and_compared_with_its_twin(tiny, tmp_path):
    runs, arguments = tmp_path / "runs", ["--runs", str(tmp_path / "runs"), "--train"]
    assert results.main([*arguments, "digits-both"], tmp_path) == 0
    (found,) = record.read(tmp_path / "results.json").values()
    assert "against_twin" not in found
    metrics = json.loads((runs / "digits-both-seed0" / "metrics.json").read_text())
    outside = json.loads((runs / "digits-both-seed0" / "ood-noise" / "metrics.json").read_text())["metrics"]["ood"]
    assert found["metrics"] == {name: metrics[name] for name in record.METRICS}
    assert found["ood"]["noise"]["auroc"] == outside["auroc"]
    assert (found["seconds"], found["seed"], found["threads"]) == (metrics["seconds"], 0, 1)
    assert (found["commit"], found["cpu"]) == (record.commit(), record.cpu())
    assert found["config"]["sigma"] == 0.5

    assert results.main([*arguments, "digits-none"], tmp_path) == 0  # also compares the run next to it
    entries = record.read(tmp_path / "results.json")
    ours, twin = entries["digits-both-seed0"], entries["digits-none-seed0"]
    value, low, high = ours["against_twin"]["nll"]
    assert value == pytest.approx(ours["metrics"]["nll"] - twin["metrics"]["nll"], abs=1e-12)
    assert low < value < high
    by_entropy = ours["against_twin"]["auroc noise"][0]
    assert by_entropy == pytest.approx(ours["ood"]["noise"]["auroc"] - twin["ood"]["noise"]["auroc"], abs=1e-12)
    tables = (tmp_path / "RESULTS.md").read_text().partition("## Differences from the twin")
    assert cells_of(tables[0], "`digits-both`")[2] == f"{ours['metrics']['accuracy']:.2%}"
    assert cells_of(tables[2], "`digits-both` | 0")[3].startswith(f"{value:+.4f} [")

    before = (tmp_path / "results.json").read_bytes()
    moved = (runs / "digits-both-seed0").rename(tmp_path / "digits-both-seed0")  # no twin next to it
    (runs / "digits-both-seed0.origin.json").rename(tmp_path / "digits-both-seed0.origin.json")
    assert results.main(["--record", str(moved)], tmp_path) == 0
    assert (tmp_path / "results.json").read_bytes() == before


def test_a_run_with_other_flags_is_not_recorded(tiny, tmp_path, capsys):
    other = tmp_path / "digits-none-seed1"
    assert train([*shlex.split(f"--cut none {QUICK}"), "--seed", "2", "--out", str(other)]) == 0
    capsys.readouterr()
    assert results.main(["--record", str(other)], tmp_path) == 2
    assert capsys.readouterr().err.endswith("got seed 2 (now 1)\n")
    assert not (tmp_path / "results.json").exists()


def test_a_failed_write_leaves_the_recorded_results(tmp_path, monkeypatch):
    file = tmp_path / "results.json"
    record.write(file, {"mnist-both-seed0": entry(nll=float("inf"))})
    assert record.read(file) == {"mnist-both-seed0": entry(nll=float("inf"))}

    def full(self, target):
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(BadInput, match="earlier content is unchanged"):
        record.write(file, {})
    monkeypatch.undo()
    assert record.read(file) == {"mnist-both-seed0": entry(nll=float("inf"))}
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_runs_recorded_at_the_same_time_are_all_kept(tmp_path, monkeypatch):
    write = record.write

    def slow(file, entries):
        time.sleep(0.02)  # without the lock, the other threads would read the file meanwhile
        write(file, entries)

    monkeypatch.setattr(record, "write", slow)
    monkeypatch.setattr(record, "entry_of", lambda folder: entry())
    names = [f"mnist-both-seed{k}" for k in range(6)]
    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(lambda name: record.record(tmp_path / name, tmp_path / "results.json"), names))
    assert list(record.read(tmp_path / "results.json")) == names


@pytest.mark.parametrize("arguments", [["--train", "mnist-od-first-seed0"], ["--record", "runs/mnist-od-first"]])
def test_an_unknown_name_is_refused_in_one_line(arguments, tmp_path, capsys):
    assert results.main(arguments, tmp_path) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "did you mean mnist-ode-first" in message
    assert list(tmp_path.iterdir()) == []


def test_any_seed_of_a_row_is_accepted():
    assert rows.run_of("mnist-ode-first-seed17") == ("mnist-ode-first", 17)
    assert rows.run_of("cifar10-long") == ("cifar10-long", 0)
    assert rows.run_of("mnist-ode-first-seed17").twin.name == "mnist-none-seed17"
    assert rows.run_of("mnist-paper-ode-first").twin is None


def test_a_resumed_run_has_the_commits_of_both_sessions(tmp_path, monkeypatch):
    def session(commit):
        monkeypatch.setattr(record, "commit", lambda: commit)
        record.note_origin(tmp_path / "run")

    session("refused")  # bad input: no run was started
    session("abc")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    session("def+")
    session("def+")
    assert record.origin(tmp_path / "run") == {"commit": "abc, def+", "cpu": record.cpu()}
    assert record.origin(tmp_path / "other")["commit"] == "def+ (when recorded)"


@pytest.mark.parametrize("row", rows.ROWS)
def test_every_row_has_a_valid_command(row, tmp_path):
    (tmp_path / "systems-psde-seed0").mkdir()
    (tmp_path / "systems-psde-seed0" / "metrics.json").write_text('{"seconds": 3.0, "kl": 0.0}')
    given = cli.parse(shlex.split(rows.flags_of(row, 0, tmp_path)))
    config = cli.configure(given)
    assert config.dataset == row.partition("-")[0].replace("systems", "digits")
    assert rows.changed_options(rows.Run(row, 0), config.as_dict()) == []
