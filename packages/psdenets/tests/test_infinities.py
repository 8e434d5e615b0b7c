"""An infinite NLL is a valid result, "Infinity" in strict JSON and inf on the screen. NaN logits give a one-line error."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from psdenets import BadInput, Config, build, evaluate, predict
from psdenets import preset as preset_of
from psdenets.data import load_splits
from psdenets.data.spec import ImageSpec
from psdenets.runs.directory import RunDir
from psdenets.runs.files import read_json
from psdenets.runs.forms import read_history
from psdenets.runs.results import History, write_results
from psdenets.runs.weights import save_weights
from psdenets.train import main
from psdenets.training.checkpoint import Checkpoints
from psdenets.training.loop import Diverged, Trainer

# With a learning rate of 1, weights and logits grow so large that some true classes get probability 0.
HUGE_STEPS = {"preset": "digits-strided", "cut": "none", "width": 4, "steps": 3, "drift": "1-4-1", "limit_train": 96, "limit_test": 40,
              "batch_size": 16, "lr": 1.0, "schedule": "constant", "epochs": 2, "test_samples": 1}  # fmt: skip


def configured(preset, **options):
    return preset_of(preset, **options)


def strict(text: str) -> object:
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not strict JSON"))


def test_a_run_with_an_infinite_nll_finishes(tmp_path, capsys, rendered):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in HUGE_STEPS.items()]
    run = tmp_path / "run"
    assert main([*flags, "--out", str(run)]) == 0
    assert "nll inf" in capsys.readouterr().out
    for name in ("nll", "nll_one_sample", "nll_no_noise"):
        assert strict((run / "metrics.json").read_text())[name] == "Infinity"
    assert strict((run / "metrics.jsonl").read_text().splitlines()[0])["train"]["nll"] == "Infinity"
    assert read_json(run / "metrics.json")["nll"] == math.inf
    assert read_history(run)[0]["train"]["nll"] == math.inf
    assert "NLL<b>inf</b>" in (run / "report.html").read_text()
    assert evaluate.main([str(run)]) == 0
    assert strict((run / "evaluation" / "metrics.json").read_text())["metrics"]["nll"] == "Infinity"


def test_an_infinite_best_score_is_saved_and_restored_by_a_checkpoint(tmp_path):
    config = configured(**HUGE_STEPS)
    splits = load_splits(config)
    trainer, resumed = (Trainer(config, splits, torch.device("cpu")) for _ in range(2))
    while trainer.at.batch < trainer.batches:
        trainer.step()
    trainer.finish_epoch(lambda: None)
    assert trainer.at.best_val[1] == -math.inf
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(trainer.at.place, trainer.snapshot())
    resumed.restore(checkpoints.load())
    assert resumed.at == trainer.at


@pytest.fixture
def colour_run(tmp_path):
    """A function that scales the last layer of an untrained run on 16 x 16 pictures and returns the run directory."""
    pixels = np.random.default_rng(0).integers(256, size=(6, 16, 16, 3), dtype=np.uint8)
    for i, picture in enumerate(pixels):
        folder = tmp_path / "data" / ("train" if i < 4 else "test") / f"class{i % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"{i}.png")
    spec = ImageSpec(3, 16, 16, ("class0", "class1"), (0.0,) * 3, (1.0,) * 3)
    config = Config(
        dataset="imagefolder",
        data_root=str(tmp_path / "data"),
        image_size=16,
        cut="none",
        channels="2-2-2",
        batch_size=2,
    )
    run = RunDir(tmp_path / "run")
    run.begin(config, spec, {"train": 3, "val": 1, "test": 2})
    model = build(config, spec)

    def with_head_times(factor):
        state = {name: t * factor if name.startswith("head") else t for name, t in model.state_dict().items()}
        run.folder.write("model.safetensors", lambda path: save_weights(state, path))
        return run.path

    return with_head_times


def test_evaluate_reports_an_infinite_nll_for_corrupted_images(colour_run, capsys):
    run = colour_run(1e9)
    assert evaluate.main([str(run), "--corruptions"]) == 0
    rows = strict((run / "evaluation" / "metrics.json").read_text())["corruptions"]["by_severity"]
    assert [row["nll"] for row in rows.values()] == ["Infinity"] * 5
    assert capsys.readouterr().out.count("nll inf") == 5


def test_weights_that_are_not_finite_give_a_one_line_error(colour_run, capsys):
    run = colour_run(math.nan)
    picture = next(run.parent.rglob("*.png"))
    assert evaluate.main([str(run)]) == 2
    error = capsys.readouterr().err
    assert f"expected finite numbers in {run / 'model.safetensors'}, got NaN or infinity in head." in error
    assert error.count("\n") == 1
    assert predict.main([str(run), str(picture)]) == 2
    assert "expected finite numbers in" in capsys.readouterr().err


def test_training_raises_diverged_if_weights_become_nan():
    config = configured(**HUGE_STEPS | {"lr": 1e-3})
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    trainer.step()
    torch.nn.init.constant_(trainer.model.head.weight, math.nan)
    with pytest.raises(Diverged, match="evaluation after epoch 1: expected finite logits"):
        trainer.finish_epoch(lambda: None)


def test_a_final_evaluation_that_is_not_finite_raises_bad_input_and_leaves_the_run_unfinished(tmp_path):
    config = configured(**HUGE_STEPS)
    splits = load_splits(config)
    model = build(config)
    torch.nn.init.constant_(model.head.weight, math.nan)
    run = RunDir(tmp_path / "run")
    with pytest.raises(BadInput, match="cannot evaluate the trained network in .*: expected finite logits"):
        write_results(run, config, model, splits.test, History([], 0.0, {"epochs": 0}))
    assert not run.finished
