"""Figures 1 and 2 of the paper: sample paths whose means and variances are known."""

import math

import pytest
import torch

from sdeweights import Brownian, Cut, Prior, SplitDrift, WeightProcess
from sdeweights.testing import seeded

PATHS = 20_000


def figure_1(at_t2):
    """f_q = cos 20t outside (0.3, 0.6) and 0 inside, g = 1."""
    drift = lambda t, w: torch.where((t >= 0.3) & (t < 0.6), 0.0, torch.cos(20 * t)) + 0 * w  # noqa: E731
    process = WeightProcess(torch.zeros(1), drift, Brownian(), Cut.vertical(0.3, 0.6, at_t2))
    with torch.no_grad():
        # midpoint never looks at the end of a step, where the drift jumps
        return process.sample(1000, samples=PATHS, generator=seeded(1), ode_solver="midpoint")


def test_figure_1_left_continues_with_the_variance_of_the_window():
    path = figure_1("continue")
    k = path.times.index(0.3)
    # the midpoint rule is within dt^2 / 24 * max|f''| * 0.3 = 5e-6 of the integral, -0.01397
    assert path.w[0, k, 0].item() == pytest.approx(math.sin(6) / 20, abs=5e-6)
    assert (path.w[:, k] == path.w[0, k]).all()
    end = path.w[:, -1, 0]
    mean = (math.sin(6) + math.sin(20) - math.sin(12)) / 20
    assert mean == pytest.approx(0.05851, abs=1e-5)
    assert end.mean().item() == pytest.approx(mean, abs=4 * (0.3 / PATHS) ** 0.5)
    assert end.var().item() == pytest.approx(0.3, rel=4 * (2 / PATHS) ** 0.5)


def test_figure_1_right_has_no_variance_after_t2():
    path = figure_1("fixed")
    k = path.times.index(0.6)
    assert path.w[:, k].var().item() == pytest.approx(0.3, rel=4 * (2 / PATHS) ** 0.5)
    assert (path.at(0.6) == 0).all()  # the right limit is the initial w0
    assert (path.w[:, k + 1 :] == path.w[:1, k + 1 :]).all()
    assert path.w[0, -1, 0].item() == pytest.approx((math.sin(20) - math.sin(12)) / 20, abs=1e-5)


NOISE = Prior(lambda t, w: 0 * w, 1.0)


def test_figure_2_separated_drift_keeps_the_deterministic_weight_deterministic():
    drift = SplitDrift(lambda t, w: -w, lambda t, w: t + w, [0], 2)
    process = WeightProcess(torch.zeros(2), drift, NOISE, Cut.horizontal([0]))
    with torch.no_grad():
        path = process.sample(200, samples=PATHS, generator=seeded(2), solver="sra1", ode_solver="rk4")
    w_S, w_D = path.w[:, -1].unbind(-1)
    assert w_S.var().item() == pytest.approx((1 - math.exp(-2)) / 2, rel=4 * (2 / PATHS) ** 0.5)
    assert (w_D == w_D[0]).all()
    assert w_D[0].item() == pytest.approx(math.e - 2, abs=1e-9)


def test_figure_2_unseparated_drift_leaks_the_noise():
    drift = lambda t, w: torch.stack([-w[..., 0], t + w[..., 1] + w[..., 0]], -1)  # noqa: E731
    process = WeightProcess(torch.zeros(2), drift, NOISE, Cut.horizontal([0]), allow_leak=True)
    with torch.no_grad():
        path = process.sample(200, samples=PATHS, generator=seeded(3), solver="sra1")
    w_S, w_D = path.w[:, -1].unbind(-1)
    assert w_S.var().item() == pytest.approx((1 - math.exp(-2)) / 2, rel=4 * (2 / PATHS) ** 0.5)
    assert w_D.var().item() == pytest.approx(math.sinh(2) / 4 - 0.5, rel=4 * (2 / PATHS) ** 0.5)
    assert w_D.mean().item() == pytest.approx(math.e - 2, abs=4 * (0.41 / PATHS) ** 0.5)
