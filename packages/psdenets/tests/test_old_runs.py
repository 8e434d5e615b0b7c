"""Run directories of format 2, written by an earlier version, still load, evaluate, predict and resume."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from psdenets import evaluate, load, predict
from psdenets.data import load_splits
from psdenets.runs.predictions import predict as predict_images
from psdenets.seeds import generator
from psdenets.train import main as train

STORED = Path(__file__).parent / "format2"
RUNS = ("psde", "odenet")
ROUNDING = 1e-5  # float32; other kernels and solvers add the same terms in a different order


@pytest.fixture(params=RUNS)
def old_run(request, tmp_path):
    return Path(shutil.copytree(STORED / request.param, tmp_path / request.param))


def recorded(run):
    with np.load(run / "predictions.npz") as archive:
        return archive["probs"], archive["labels"]


def test_an_old_run_predicts_the_recorded_probabilities(old_run):
    model = load(old_run)
    probs, labels = recorded(old_run)
    found = predict_images(model, load_splits(model.config).test, len(probs), generator(0, "final"))
    np.testing.assert_allclose(found.probs, probs, rtol=0, atol=ROUNDING)
    np.testing.assert_array_equal(found.labels, labels)
    stored = json.loads((old_run / "metrics.json").read_text())
    assert {name: stored[name] for name in found.metrics()} == pytest.approx(found.metrics(), rel=1e-4)


def test_evaluating_an_old_run_gives_its_recorded_metrics(old_run):
    assert evaluate.main([str(old_run)]) == 0
    metrics = json.loads((old_run / "evaluation" / "metrics.json").read_text())["metrics"]
    stored = json.loads((old_run / "metrics.json").read_text())
    for name in ("accuracy", "ece", "nll", "brier"):
        assert metrics[name] == pytest.approx(stored[name], rel=1e-4)
    assert metrics["images"] == 20


def test_an_old_run_classifies_a_picture(old_run, tmp_path, capsys):
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "black.png")
    assert predict.main([str(old_run), str(tmp_path / "black.png"), "--json"]) == 0
    assert sum(json.loads(capsys.readouterr().out)["probabilities"].values()) == pytest.approx(1, abs=1e-12)


def test_resuming_an_old_finished_run_changes_nothing(old_run, capsys):
    before = {path: path.read_bytes() for path in old_run.rglob("*")}
    assert train(["--out", str(old_run), "--resume"]) == 0
    assert "finished" in capsys.readouterr().out
    assert {path: path.read_bytes() for path in old_run.rglob("*")} == before
