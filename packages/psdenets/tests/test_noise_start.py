"""`--noise-start`: train without noise first, then with it, in one run."""

from __future__ import annotations

import io
from functools import partial

import pytest
import torch

from psdenets import preset
from psdenets.data import load_splits
from psdenets.seeds import generator
from psdenets.train import main
from psdenets.training.display import Lines
from psdenets.training.loop import Trainer

strided = partial(preset, "digits-strided")
SMALL = {
    "width": 2, "drift": "1-2-1", "limit_train": 64, "limit_test": 20, "batch_size": 16, "epochs": 3,
    "test_samples": 2, "sigma": 0.5,
}  # fmt: skip  # 12 training steps
CUTS = [
    {"cut": "full"},
    {"cut": "vertical", "ratio": 0.5},
    {"cut": "vertical", "order": "sde-first", "ratio": 0.5},
    {"cut": "vertical", "order": "sde-first", "ratio": 0.5, "at_t2": "learned"},
    {"cut": "horizontal"},
]


def trainer_of(**options):
    config = strided(**{**SMALL, **options})
    return Trainer(config, load_splits(config), torch.device("cpu"))


def stepped(trainer, steps):
    reports = []
    for _ in range(steps):
        reports.append(trainer.step())
        if trainer.at.batch == trainer.batches:
            trainer.finish_epoch(lambda: None)
    return reports


def tensors(trainer):
    return dict(trainer.model.named_parameters())


def differing(a, b):
    return [name for name in tensors(a) if not torch.equal(tensors(a)[name], tensors(b)[name])]


@pytest.mark.parametrize("cut", CUTS[:3])
def test_before_the_noise_training_is_that_of_cut_none(cut):
    noisy, plain = trainer_of(noise_start=0.5, **cut), trainer_of(cut="none")
    for a, b in zip(stepped(noisy, 6), stepped(plain, 6), strict=True):
        assert (a.loss, a.nll, a.score) == pytest.approx((b.loss, b.nll, b.score), rel=1e-5)
    for name, value in tensors(plain).items():
        torch.testing.assert_close(tensors(noisy)[name], value, rtol=1e-3, atol=1e-5)  # float32, other grids


@pytest.mark.parametrize("cut", CUTS)
def test_samples_agree_before_the_noise_and_differ_afterwards(cut):
    trainer = trainer_of(noise_start=0.5, samples=2, **cut)
    x = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for steps, agree in ((6, True), (1, False)):
        stepped(trainer, steps)
        trainer.model.eval()
        probs = trainer.model.predict_proba(x, 2, generator(0, "x"), return_samples=True)
        trainer.model.train()
        assert torch.equal(probs[0], probs[1]) == agree


def test_the_kl_costs_nothing_before_the_noise():
    trainer = trainer_of(noise_start=0.5, cut="full", kappa=100.0)
    reports = stepped(trainer, 12)
    assert all(r.loss == pytest.approx(r.nll) for r in reports[:6])
    assert all(r.loss > r.nll * (1 + 1e-6) for r in reports[6:])


@pytest.mark.parametrize("at", [3, 6, 7])
@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_resumed_run_is_identical_before_at_and_after_the_start_of_the_noise(at, ema):
    whole, first = (trainer_of(noise_start=0.5, cut="full", ema=ema) for _ in range(2))
    stepped(whole, 12)
    stepped(first, at)
    second = trainer_of(noise_start=0.5, cut="full", ema=ema)
    second.restore(first.snapshot())
    stepped(second, 12 - at)
    assert not differing(whole, second)
    assert second.at.history[-1]["val"] == whole.at.history[-1]["val"]


def test_the_best_epoch_is_one_with_noise():
    trainer = trainer_of(noise_start=0.7, cut="full", select="best")
    stepped(trainer, 12)
    assert trainer.at.best_epoch == 3  # the noise starts at step 8, the first of the third epoch


def test_a_line_says_when_the_noise_is_switched_on():
    trainer, stream = trainer_of(noise_start=0.5, cut="full"), io.StringIO()
    with Lines(stream) as display:
        for report in (trainer.step() for _ in range(8) if trainer.at.batch < trainer.batches):
            display.step(trainer, report)
        trainer.finish_epoch(lambda: None)
        for _ in range(3):
            display.step(trainer, trainer.step())
    assert stream.getvalue().count("epoch 2 batch 3: noise switched on") == 1


def test_the_finished_network_has_noise_even_if_training_ended_before():
    trainer = trainer_of(noise_start=0.9, cut="full")
    stepped(trainer, 4)
    assert all(block.noisy for block in trainer.finished().deep_blocks)


def test_it_is_refused_without_noise(capsys, tmp_path):
    assert main(["--cut", "none", "--noise-start", "0.5", "--out", str(tmp_path / "run")]) == 2
    assert "expected --noise-start with noise, got --cut none" in capsys.readouterr().err
    assert main(["--noise-start", "1", "--out", str(tmp_path / "run")]) == 2
    assert "in [0, 1)" in capsys.readouterr().err
