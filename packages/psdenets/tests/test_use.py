"""Evaluating a finished run, classifying pictures with it, and its report."""

from __future__ import annotations

import csv
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from psdenets import BadInput, Config, build, evaluate, load, predict, train
from psdenets.data import load_splits
from psdenets.data.images import to_unit
from psdenets.runs.checksums import Folder
from psdenets.seeds import generator


def failing(main, capsys, *args):
    assert main([str(a) for a in args]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


@pytest.fixture
def pictures(tmp_path):
    test = load_splits(Config()).test
    paths = []
    for i in range(3):
        paths.append(tmp_path / f"digit{i}.png")
        Image.fromarray(test.pixels[i, 0].numpy()).save(paths[-1])
    return paths


def test_predict_prints_class_probability_and_entropy(small_run, pictures, capsys):
    assert predict.main([str(small_run), *map(str, pictures)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    number = r"\d\.\d{3}"
    form = rf"digit\d\.png  \d  \d+\.\d%  entropy {number} of 2\.303 nats, epistemic {number}, ood [01]\.\d\d$"
    assert all(re.search(form, line) for line in lines)


def test_predict_json_agrees_with_the_model(small_run, pictures, capsys):
    assert predict.main([str(small_run), "--json", "--samples", "4", *map(str, pictures)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    from psdenets.seeds import generator

    x = load_splits(Config()).test.pixels[:3].float() / 255
    probs = load(small_run).predict_proba(x, 4, generator(0, "predict")).double()
    for row, p in zip(rows, probs, strict=True):
        assert row["class"] == str(int(p.argmax()))
        assert row["probability"] == pytest.approx(float(p.max()), abs=1e-6)
        assert row["entropy"] == pytest.approx(float(torch.special.entr(p).sum()), abs=1e-5)
        assert sum(row["probabilities"].values()) == pytest.approx(1, abs=1e-12)
        assert 0 <= row["epistemic"] <= row["entropy"]


def test_predict_accepts_a_folder(small_run, pictures, capsys):
    assert predict.main([str(small_run), str(pictures[0].parent)]) == 0
    assert capsys.readouterr().out.count("entropy") == 3


def test_pictures_that_cannot_be_read_give_one_line_each_and_exit_status_1(small_run, pictures, tmp_path, capsys):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "text\x1b[31m.png").write_text("not a picture")
    Image.new("L", (1, 1)).save(tmp_path / "bad" / "dot.png")
    files = [pictures[0], tmp_path / "bad", tmp_path / "gone.png", pictures[1]]
    assert predict.main([str(small_run), *map(str, files)]) == 1
    out, err = capsys.readouterr()
    assert [Path(line.split()[0]).name for line in out.splitlines()] == ["digit0.png", "digit1.png"]
    *lines, total = err.splitlines()
    for line, message in zip(lines, ("at least 2 x 2 pixels", "something else", "no such file"), strict=True):
        assert message in line
    assert "3 of 5 pictures could not be read" in total
    assert "\x1b" not in err
    assert r"text\x1b[31m.png" in err


def test_results_in_csv_have_a_header_units_and_harmless_names(small_run, pictures, tmp_path, capsys):
    strange = tmp_path / "=cmd()\x07.png"
    pictures[0].rename(strange)
    out = tmp_path / "results.csv"
    assert predict.main([str(small_run), "--json", str(strange), str(pictures[1])]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0]["image"] == str(strange)
    assert predict.main([str(small_run), strange.name, str(pictures[1]), "--out", str(out)]) == 1  # not in this folder
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        assert predict.main([str(small_run), strange.name, str(pictures[1]), "--out", str(out)]) == 0
    assert capsys.readouterr().out == ""
    with out.open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [row["image"] for row in table] == [r"'=cmd()\x07.png", str(pictures[1])]
    for cells, row in zip(table, rows, strict=True):
        assert cells["class"] == row["class"]
        for column, key in (("entropy_nats", "entropy"), ("epistemic_nats", "epistemic"), ("ood", "ood")):
            assert float(cells[column]) == row[key]
        assert float(cells["max_entropy_nats"]) == np.log(10)
        assert float(cells["p(3)"]) == row["probabilities"]["3"]


def test_the_ood_score_is_the_rank_among_validation_entropies(small_run, pictures, capsys):
    assert predict.main([str(small_run), "--json", *map(str, pictures)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    with np.load(small_run / "validation.npz") as found:
        p = found["probs"].mean(0)
    entropies = -(p * np.log(p)).sum(1)
    assert len(entropies) == 96
    for row in rows:
        assert row["ood"] == np.mean(entropies < row["entropy"])


def test_a_folder_is_predicted_in_batches_with_the_same_weight_samples(small_run, pictures, monkeypatch, capsys):
    found = []
    for size in (256, 2):
        monkeypatch.setattr(predict, "_BATCH", size)
        assert predict.main([str(small_run), "--json", str(pictures[0].parent)]) == 0
        found.append([json.loads(line)["probabilities"] for line in capsys.readouterr().out.splitlines()])
    for a, b in zip(*found, strict=True):
        assert list(a.values()) == pytest.approx(list(b.values()), abs=1e-6)  # the order of float32 sums differs


def test_weight_samples_in_groups_are_the_same_for_every_batch_of_a_stream(small_run, monkeypatch):
    from psdenets.models import psde

    model, x = load(small_run), load_splits(Config()).test.pixels[:6].float() / 255
    whole = list(model.predict_stream([x[:4], x[4:]], 5, generator(0, "predict")))
    monkeypatch.setattr(psde, "_GROUP_NUMBERS", 1)
    parts = list(model.predict_stream([x[:4], x[4:]], 5, generator(0, "predict")))
    direct = model.predict_proba(x, 5, generator(0, "predict"), return_samples=True)
    for found in (whole, parts):
        torch.testing.assert_close(torch.cat(found, dim=1), direct, rtol=0, atol=1e-6)


def test_predict_refuses_what_it_cannot_use(small_run, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert "got an empty folder" in failing(predict.main, capsys, small_run, tmp_path / "empty")
    nowhere = tmp_path / "no" / "results.csv"
    assert "could not write --out" in failing(predict.main, capsys, small_run, tmp_path / "a.png", "--out", nowhere)
    assert "expected a run directory" in failing(predict.main, capsys, tmp_path, tmp_path / "dot.png")
    assert "required" in failing(predict.main, capsys, small_run)


def test_evaluate_with_out_of_distribution_images_writes_metrics_predictions_and_plots(
    small_run, tmp_path, capsys, rendered
):
    args = [str(small_run), "--samples", "3", "--ood", "noise", "--out", str(tmp_path / "e"), "--limit-test", "40"]
    assert evaluate.main(args) == 0
    assert "auroc" in capsys.readouterr().out
    result = json.loads((tmp_path / "e" / "metrics.json").read_text())
    assert result["samples"] == 3
    assert result["metrics"]["ood"]["images"] == 40
    with np.load(tmp_path / "e" / "predictions.npz") as archive:
        assert archive["probs"].shape == (3, 40, 10)
    names = {path.name for path in (tmp_path / "e").iterdir()}
    written = "metrics.json checksums.json predictions.npz ood.npz reliability.png roc.png entropy.png"
    assert names == set(written.split())


def test_evaluate_with_default_settings_reproduces_the_metrics_of_the_run(small_run, tmp_path):
    assert evaluate.main([str(small_run), "--out", str(tmp_path / "e")]) == 0
    ours = json.loads((tmp_path / "e" / "metrics.json").read_text())["metrics"]
    final = json.loads((small_run / "metrics.json").read_text())
    for name in ("accuracy", "ece", "nll", "brier"):
        assert ours[name] == pytest.approx(final[name], rel=1e-12)


def test_evaluate_with_mirror_averages_over_both_views(small_run, tmp_path, capsys):
    assert evaluate.main([str(small_run), "--mirror", "--out", str(tmp_path / "m")]) == 0
    with np.load(tmp_path / "m" / "predictions.npz") as both, np.load(small_run / "predictions.npz") as one:
        assert not np.allclose(both["probs"], one["probs"])
    assert json.loads((tmp_path / "m" / "metrics.json").read_text())["mirror"] is True
    assert evaluate.main([str(small_run), "--no-mirror", "--out", str(tmp_path / "o")]) == 0
    with np.load(tmp_path / "o" / "predictions.npz") as plain, np.load(small_run / "predictions.npz") as one:
        np.testing.assert_array_equal(plain["probs"], one["probs"])


def test_evaluate_reports_bounds_on_the_evidence(small_run, tmp_path, capsys):
    out = tmp_path / "b"
    assert evaluate.main([str(small_run), "--bounds", "4", "--out", str(out)]) == 0
    assert "importance-weighted bound" in capsys.readouterr().out
    found = json.loads((out / "metrics.json").read_text())["bounds"]
    model = load(small_run)
    train = load_splits(model.config).train
    weights = model.draw(4, generator(model.config.seed, "bounds"))
    with torch.no_grad():
        logits = model.logits(to_unit(train.pixels), weights).double()
        picked = logits.log_softmax(-1)[:, torch.arange(len(train)), train.labels].sum(-1)
    ratio = sum(path.kl + path.stl_term for path in weights.paths).double()
    assert found["elbo"] == pytest.approx((picked - weights.kl.double()).mean().item(), rel=1e-6)
    assert found["importance"] == pytest.approx((picked - ratio).logsumexp(0).item() - np.log(4), rel=1e-6)
    assert (found["samples"], found["images"]) == (4, len(train))
    assert "expected --bounds to be at least 1" in failing(evaluate.main, capsys, small_run, "--bounds", "0")


def test_bounds_need_a_weight_process_and_a_deterministic_head(tmp_path, small, capsys):
    assert train.main(["--out", str(tmp_path / "r"), *small, "--head", "meanfield"]) == 0
    assert "deterministic head" in failing(evaluate.main, capsys, tmp_path / "r", "--bounds", "2")


def test_evaluate_refuses_invalid_requests(small_run, tmp_path, capsys):
    assert "expected --ood" in failing(evaluate.main, capsys, small_run, "--ood", "mars")
    assert "at least 1" in failing(evaluate.main, capsys, small_run, "--samples", "0")
    assert "cannot corrupt" in failing(evaluate.main, capsys, small_run, "--corruptions", "--out", tmp_path / "e")
    assert "expected a run directory" in failing(evaluate.main, capsys, tmp_path / "nothing")


def test_a_refused_evaluation_leaves_the_run_unchanged(small_run, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(small_run, run, ignore=shutil.ignore_patterns("evaluation"))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "expected --ood" in failing(evaluate.main, capsys, run, "--ood", "mars")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert not (run / "evaluation").exists()


def test_a_run_that_is_not_finished_cannot_be_loaded(small_run, tmp_path):
    for name in ("config.json", "data.json"):
        (tmp_path / name).write_text((small_run / name).read_text())
    Folder(tmp_path).record(["config.json", "data.json"])
    with pytest.raises(BadInput, match="--resume finishes it"):
        load(tmp_path)


def test_a_colour_model_is_evaluated_under_all_corruptions_and_severities(tmp_path):
    """The model is not trained, so only the presence of the metrics is checked."""
    from psdenets.data.images import Images
    from psdenets.evaluate import _corruptions
    from psdenets.runs.directory import RunDir

    model = build(Config(dataset="cifar10", width=2, steps=3, drift="1-2-1"))
    g = torch.Generator().manual_seed(0)
    test = Images(torch.randint(256, (2, 3, 32, 32), generator=g, dtype=torch.uint8), torch.tensor([0, 1]))
    result, shown = _corruptions(model, test, 1, 0, None, RunDir(tmp_path))
    assert len(result["corruptions"]) == 19
    assert list(result["by_severity"]) == ["1", "2", "3", "4", "5"]
    assert shown.count("severity") == 5


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.text, self.images = [], "", 0

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("src", "href")]
        self.images += tag == "img"

    def handle_data(self, data):
        self.text += data


def test_the_report_is_a_single_self_contained_page(small_run):
    reader = Reader()
    reader.feed((small_run / "report.html").read_text())
    assert all(link.startswith("data:image/png;base64,") for link in reader.links)
    assert reader.images == 5 + 24  # five plots, twelve most and twelve least certain images
    metrics = json.loads((small_run / "metrics.json").read_text())
    for expected in (f"{metrics['accuracy']:.2%}", f"{metrics['ece']:.2%}", "Least certain", "batch_size", "torch"):
        assert expected in reader.text
