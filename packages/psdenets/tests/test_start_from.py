"""`--start-from RUN`: a new run starts with the weights of a finished one."""

from __future__ import annotations

import json
import shutil

import pytest
import torch

import psdenets
from psdenets import Config, load
from psdenets.data import load_splits
from psdenets.errors import BadInput
from psdenets.runs.checksums import Folder
from psdenets.runs.weights import load_weights, save_weights
from psdenets.train import main
from psdenets.training.loop import Trainer
from psdenets.training.start_from import start_of


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run without noise."""
    path = tmp_path_factory.mktemp("runs") / "source"
    psdenets.fit("digits-strided", cut="none", hidden_method="euler-mean", out=str(path), **SMALL)
    return path


SMALL = {
    "width": 4, "steps": 3, "drift": "1-4-1", "limit_train": 96, "limit_test": 40, "batch_size": 16, "epochs": 2,
    "test_samples": 2, "threads": 1, "progress": "none",
}  # fmt: skip
NETWORK = {name: value for name, value in SMALL.items() if name != "progress"}


def started(source, preset="digits-strided", **options):
    config = psdenets.presets.preset(preset, **{**NETWORK, **options}, start_from=str(source))
    splits = load_splits(config)
    trainer = Trainer(config, splits, torch.device("cpu"))
    trainer.start(start_of(config, splits.spec))
    return trainer


@pytest.mark.parametrize("cut", [{"cut": "full"}, {"cut": "vertical", "ratio": 1 / 3, "sde_steps": 1, "sigma": 1.0}])
def test_without_its_noise_a_started_network_predicts_what_its_source_predicts(cut, source):
    trainer, before = started(source, **cut, hidden_method="euler-mean"), load(source)
    model = trainer.model.eval()
    x = trainer.splits.test.pixels[:8] / 255
    with torch.no_grad():
        ours, theirs = (m.logits(x, m.mean_weights()) for m in (model, before))
        noisy = model.logits(x, model.draw(1, torch.Generator().manual_seed(0)))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)  # the same three steps; rounding of their ends
    assert (noisy - theirs).abs().max() > 1e-3
    assert trainer.started == sum(p.numel() for p in before.parameters())


def test_averaged_weights_start_there_too(source):
    trainer = started(source, cut="full", ema=0.9)
    for name, tensor in load_weights(source / "model.safetensors").items():
        assert trainer.averaged.state_dict()[name].equal(tensor), name


def test_tensors_that_do_not_fit_keep_their_initial_values(source):
    trainer = started(source, cut="horizontal")  # its drift is split
    fresh = Trainer(trainer.config, trainer.splits, torch.device("cpu")).model.state_dict()
    theirs, found = load_weights(source / "model.safetensors"), trainer.model.state_dict()
    assert found["head.weight"].equal(theirs["head.weight"])
    assert found["blocks.0.process.w0"].equal(theirs["blocks.0.process.w0"])
    own = [name for name in found if name not in theirs]
    assert own
    assert all(found[name].equal(fresh[name]) for name in own)
    assert 0 < trainer.started < sum(p.numel() for p in trainer.model.parameters())


def test_a_tuned_factor_of_sigma_is_not_taken_over(source, tmp_path):
    tuned = tmp_path / "tuned"
    shutil.copytree(source, tuned)
    tensors = load_weights(tuned / "model.safetensors") | {"sigma_factor": torch.tensor(2.0)}
    Folder(tuned).write("model.safetensors", lambda path: save_weights(tensors, path))
    assert started(tuned, cut="full").model.sigma_factor == 1


def test_a_started_run_resumes_to_the_same_bytes_even_without_its_source(source, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in NETWORK.items()]
    flags = ["--preset", "digits-strided", "--cut", "full", "--start-from", str(copy), *flags]
    assert main([*flags, "--out", str(tmp_path / "whole")]) == 0
    assert "weights from" in capsys.readouterr().out

    class Stop(psdenets.Callback):
        def on_epoch(self, record):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        psdenets.fit(
            "digits-strided", cut="full", start_from=str(copy), out=str(tmp_path / "parts"), callbacks=[Stop()], **SMALL
        )
    shutil.rmtree(copy)
    assert main(["--out", str(tmp_path / "parts"), "--resume"]) == 0
    whole, parts = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert whole == parts


def test_seconds_include_those_of_the_source(source, tmp_path):
    run = psdenets.fit("digits-strided", cut="full", start_from=str(source), out=str(tmp_path / "r"), **SMALL)
    before = json.loads((source / "metrics.json").read_text())["seconds"]
    assert run.metrics["start_seconds"] == before
    assert run.metrics["seconds"] > before
    assert run.history[-1]["seconds"] < run.metrics["seconds"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split_seed": 1}, "--split-seed 0"),
        ({"val_share": 0.2}, "--val-share 0.1"),
        ({"dataset": "gap", "preset": None}, "same classes"),
        ({"model": "mfvi"}, "that fit this network"),
        ({"model": "ensemble"}, "members must differ"),
        ({"start_from": "nowhere"}, "run directory with config.json"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused_and_nothing_is_written(options, message, source, tmp_path):
    values = {"start_from": str(source), "epochs": 1, "batch_size": 16, **options}
    values.pop("preset", None)
    with pytest.raises(BadInput, match=message):
        psdenets.fit(None, out=str(tmp_path / "r"), progress="none", **values)
    assert not (tmp_path / "r").exists()


def test_an_unfinished_run_is_refused(source, tmp_path):
    part = tmp_path / "part"
    shutil.copytree(source, part)
    (part / "metrics.json").unlink()
    with pytest.raises(BadInput, match="expected a finished run"):
        start_of(Config(start_from=str(part)), load(source).spec)
