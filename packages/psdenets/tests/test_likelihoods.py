"""Likelihoods: NLL and probabilities by hand, in float64 wherever metrics are computed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from psdenets import Config, build
from psdenets.models.likelihoods import CATEGORICAL


def test_mean_nll_by_hand():
    # two samples, one image, two classes: p_0 = 1/2 and 4/5
    logits = torch.tensor([[[0.0, 0.0]], [[math.log(4.0), 0.0]]], dtype=torch.float64)
    expected = (math.log(2) + math.log(5 / 4)) / 2
    assert CATEGORICAL.mean_nll(logits, torch.tensor([0])).item() == pytest.approx(expected, rel=1e-12)


def test_probabilities_do_not_underflow_at_a_logit_gap_of_200():
    probs = CATEGORICAL.predictive(torch.tensor([[[0.0, 200.0]]], requires_grad=True))
    assert probs.dtype == torch.float64
    assert not probs.requires_grad
    assert probs[0, 0, 0].item() == pytest.approx(math.exp(-200), rel=1e-12)
    metrics = CATEGORICAL.metrics(probs.numpy(), np.array([0]))
    assert metrics["nll"] == pytest.approx(200, rel=1e-12)


def test_metrics_are_those_of_the_averaged_probabilities():
    probs = np.array([[[0.2, 0.8]], [[0.9, 0.1]]])  # the mean is (0.55, 0.45)
    metrics = CATEGORICAL.metrics(probs, np.array([0]))
    assert metrics["accuracy"] == 1.0
    assert metrics["nll"] == pytest.approx(-math.log(0.55), rel=1e-12)
    assert metrics["ece"] == pytest.approx(0.45, rel=1e-12)
    assert metrics["brier"] == pytest.approx(2 * 0.45**2, rel=1e-12)
    assert metrics["entropy"] == pytest.approx(-0.55 * math.log(0.55) - 0.45 * math.log(0.45), rel=1e-12)


def test_a_head_has_one_output_per_class():
    assert CATEGORICAL.outputs(10) == 10


def test_classifiers_predict_in_float64():
    model = build(Config(width=2, steps=2, drift="1-2-1"))
    probs = model.predict_proba(torch.zeros(3, 1, 8, 8), samples=2, return_samples=True)
    assert probs.dtype == torch.float64
    assert torch.allclose(probs.sum(-1), torch.ones(2, 3, dtype=torch.float64), rtol=0, atol=1e-15)  # rounding
