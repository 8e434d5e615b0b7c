"""Likelihoods: NLL and probabilities equal values computed by hand; metrics use float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from psdenets import Config, build
from psdenets.data import load_splits
from psdenets.models.likelihoods import CATEGORICAL
from psdenets.registries import LIKELIHOODS
from psdenets.training.loop import Trainer


def test_nll_equals_the_value_computed_by_hand():
    # two samples, one image, two classes: p_0 = 1/2 and 4/5
    logits = torch.tensor([[[0.0, 0.0]], [[math.log(4.0), 0.0]]], dtype=torch.float64)
    expected = (math.log(2) + math.log(5 / 4)) / 2
    assert CATEGORICAL.nll(logits, torch.tensor([0])).mean().item() == pytest.approx(expected, rel=1e-12)


def test_probabilities_do_not_underflow_at_a_logit_gap_of_200():
    probs = CATEGORICAL.predictive(torch.tensor([[[0.0, 200.0]]], requires_grad=True))
    assert probs.dtype == torch.float64
    assert not probs.requires_grad
    assert probs[0, 0, 0].item() == pytest.approx(math.exp(-200), rel=1e-12)
    metrics = CATEGORICAL.metrics(probs.numpy(), np.array([0]))
    assert metrics["nll"] == pytest.approx(200, rel=1e-12)


def test_metrics_are_computed_from_the_averaged_probabilities():
    probs = np.array([[[0.2, 0.8]], [[0.9, 0.1]]])  # the mean is (0.55, 0.45)
    metrics = CATEGORICAL.metrics(probs, np.array([0]))
    assert metrics["accuracy"] == 1.0
    assert metrics["nll"] == pytest.approx(-math.log(0.55), rel=1e-12)
    assert metrics["ece"] == pytest.approx(0.45, rel=1e-12)
    assert metrics["brier"] == pytest.approx(2 * 0.45**2, rel=1e-12)
    assert metrics["entropy"] == pytest.approx(-0.55 * math.log(0.55) - 0.45 * math.log(0.45), rel=1e-12)


def test_a_head_has_one_output_per_class():
    assert CATEGORICAL.outputs(10) == 10


class LearnedTemperature:
    """A custom likelihood with one more output than classes: the logits are divided by exp(last output)."""

    name = "learned-temperature"

    def outputs(self, targets):
        return targets + 1

    def nll(self, outputs, targets):
        return CATEGORICAL.nll(outputs[..., :-1] * outputs[..., -1:].neg().exp(), targets)

    def predictive(self, outputs):
        return CATEGORICAL.predictive(outputs[..., :-1] * outputs[..., -1:].neg().exp())

    def metrics(self, predictive, targets):
        return {**CATEGORICAL.metrics(predictive, targets), "largest": float(predictive.max())}


@pytest.fixture
def own_likelihood(monkeypatch):
    monkeypatch.setitem(LIKELIHOODS, "learned-temperature", f"{__name__}:LearnedTemperature")
    return {"likelihood": "learned-temperature", "width": 2, "limit_train": 64, "limit_test": 20, "batch_size": 32}


@pytest.mark.parametrize("model", ["psde", "odenet", "resnet32", "mfvi", "ensemble"])
def test_the_likelihood_determines_the_number_of_outputs_of_a_network(model, own_likelihood):
    shared = {"width": own_likelihood["width"], "likelihood": own_likelihood["likelihood"]}
    x = torch.zeros(3, 1, 8, 8)
    network = build(Config(model=model, **shared)).eval()
    assert network.logits(x, network.draw(1)).shape == (1, 3, 11)
    assert network.predict_proba(x, samples=1).shape == (3, 10)


def test_training_reports_the_metrics_of_its_likelihood(own_likelihood):
    config = Config(**own_likelihood, steps=2, drift="1-2-1", epochs=1)
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    while trainer.at.batch < trainer.batches:
        trainer.step()
    record = trainer.finish_epoch(lambda: None)
    assert all(0 < record[part]["largest"] <= 1 for part in ("train", "val", "test"))


def test_classifiers_predict_in_float64():
    model = build(Config(width=2, steps=2, drift="1-2-1"))
    probs = model.predict_proba(torch.zeros(3, 1, 8, 8), samples=2, return_samples=True)
    assert probs.dtype == torch.float64
    assert torch.allclose(probs.sum(-1), torch.ones(2, 3, dtype=torch.float64), rtol=0, atol=1e-15)  # rounding
