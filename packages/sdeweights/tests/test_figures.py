"""Figures 1 and 2 of the paper: sample paths with known means and variances.

The plain and the fused Euler schemes are compared with the law of the Euler chain, which is known exactly on its grid.
"""

import math

import pytest
import torch

from sdeweights import Brownian, Cut, OrnsteinUhlenbeck, Prior, SplitDrift, WeightProcess
from sdeweights.testing import affine_posterior, seeded

PATHS = 20_000
SPREAD = 4 * (2 / PATHS) ** 0.5  # 4 standard errors of a variance, relative: fails by chance once in 16,000


def figure_1(at_t2):
    """f_q = cos 20t outside (0.3, 0.6) and 0 inside, g = 1."""
    drift = lambda t, w: torch.where((t >= 0.3) & (t < 0.6), 0.0, torch.cos(20 * t)) + 0 * w  # noqa: E731
    process = WeightProcess(torch.zeros(1), drift, Brownian(), Cut.vertical(0.3, 0.6, at_t2))
    with torch.no_grad():
        # midpoint does not evaluate the drift at the end of a step, where the drift jumps
        return process.sample(1000, samples=PATHS, generator=seeded(1), ode_solver="midpoint")


def test_figure_1_left_keeps_the_variance_of_the_window():
    path = figure_1("continue")
    k = path.times.index(0.3)
    # the midpoint rule is within dt^2 / 24 * max|f''| * 0.3 = 5e-6 of the integral, -0.01397
    assert path.w[0, k, 0].item() == pytest.approx(math.sin(6) / 20, abs=5e-6)
    assert (path.w[:, k] == path.w[0, k]).all()
    end = path.w[:, -1, 0]
    mean = (math.sin(6) + math.sin(20) - math.sin(12)) / 20
    assert mean == pytest.approx(0.05851, abs=1e-5)
    assert end.mean().item() == pytest.approx(mean, abs=4 * (0.3 / PATHS) ** 0.5)
    assert end.var().item() == pytest.approx(0.3, rel=SPREAD)


def test_figure_1_right_has_no_variance_after_t2():
    path = figure_1("fixed")
    k = path.times.index(0.6)
    assert path.w[:, k].var().item() == pytest.approx(0.3, rel=SPREAD)
    assert (path.at(0.6) == 0).all()  # the right limit is the initial w0
    assert (path.w[:, k + 1 :] == path.w[:1, k + 1 :]).all()
    assert path.w[0, -1, 0].item() == pytest.approx((math.sin(20) - math.sin(12)) / 20, abs=1e-5)


def figure_1_by_euler(at_t2, euler):
    """f_q = 1 + 2 t instead of the cosine, g = 1, on 20 steps of 1/20."""
    prior, cut = Brownian(), Cut.vertical(0.3, 0.6, at_t2)
    drift = affine_posterior(prior, cut, 1, constant=1.0, slope=2.0)
    with torch.no_grad():
        return WeightProcess(torch.zeros(1), drift, prior, cut).sample(20, PATHS, generator=seeded(1), **euler)


def sum_of_drift(first, last):
    """sum (1 + 2 t_k) dt over the steps from `first` to `last`, dt = 1/20."""
    return sum((1 + 2 * k / 20) / 20 for k in range(first, last))


def test_figure_1_left_by_euler_continues_with_the_variance_of_the_window(euler):
    path = figure_1_by_euler("continue", euler)
    assert path.w[:, 6, 0].tolist() == pytest.approx([sum_of_drift(0, 6)] * PATHS, abs=1e-14)
    assert (path.w[:, :7] == path.w[0, :7]).all()
    end = path.w[:, -1, 0]
    assert end.mean().item() == pytest.approx(sum_of_drift(0, 20), abs=4 * (0.3 / PATHS) ** 0.5)
    assert end.var().item() == pytest.approx(0.3, rel=SPREAD)
    # there is only drift after t2
    assert torch.allclose(end - path.w[:, 12, 0], torch.tensor(sum_of_drift(12, 20)), rtol=0, atol=1e-14)


def test_figure_1_right_by_euler_has_no_variance_after_t2(euler):
    path = figure_1_by_euler("fixed", euler)
    assert path.w[:, 12].var().item() == pytest.approx(0.3, rel=SPREAD)
    assert (path.at(0.6) == 0).all()
    assert (path.w[:, 13:] == path.w[:1, 13:]).all()
    assert path.w[0, -1, 0].item() == pytest.approx(sum_of_drift(12, 20), abs=1e-14)


def test_figure_2_separated_drift_by_euler_keeps_the_deterministic_weight_deterministic(euler):
    """f_S = -w_S, f_D = t + w_D, with a prior that pulls both to 0; S has two weights with sigma 1 and 2."""
    n = 50
    h, a = 1 / n, 1 - 1 / n
    prior, cut = OrnsteinUhlenbeck(1.0, 0.0, torch.tensor([1.0, 5.0, 2.0])), Cut.horizontal([0, 2])
    t_plus_w = torch.tensor([0.0, 1.0, 0.0])
    drift = affine_posterior(prior, cut, 3, slope=t_plus_w, matrix=torch.diag(2 * t_plus_w))
    with torch.no_grad():
        path = WeightProcess(torch.zeros(3), drift, prior, cut).sample(n, PATHS, generator=seeded(2), **euler)
    w_S, w_D = path.w[:, -1, [0, 2]], path.w[:, -1, 1]
    variance = h * (1 - a ** (2 * n)) / (1 - a * a)  # h sum a^(2k)
    assert w_S.var(0).tolist() == pytest.approx([variance, 4 * variance], rel=SPREAD)
    assert w_S.mean(0).tolist() == pytest.approx([0, 0], abs=4 * (4 * variance / PATHS) ** 0.5)
    assert (w_D == w_D[0]).all()
    # (1 + h)^k - t_k - 1 solves w_{k+1} = w_k + (t_k + w_k) h
    assert w_D[0].item() == pytest.approx((1 + h) ** n - 2, abs=1e-12)
    assert (path.kl == 0).all()


NOISE = Prior(lambda t, w: 0 * w, 1.0)


def test_figure_2_separated_drift_keeps_the_deterministic_weight_deterministic():
    drift = SplitDrift(lambda t, w: -w, lambda t, w: t + w, [0], 2)
    process = WeightProcess(torch.zeros(2), drift, NOISE, Cut.horizontal([0]))
    with torch.no_grad():
        path = process.sample(200, samples=PATHS, generator=seeded(2), solver="sra1", ode_solver="rk4")
    w_S, w_D = path.w[:, -1].unbind(-1)
    assert w_S.var().item() == pytest.approx((1 - math.exp(-2)) / 2, rel=SPREAD)
    assert (w_D == w_D[0]).all()
    assert w_D[0].item() == pytest.approx(math.e - 2, abs=1e-9)


def test_figure_2_unseparated_drift_leaks_the_noise():
    drift = lambda t, w: torch.stack([-w[..., 0], t + w[..., 1] + w[..., 0]], -1)  # noqa: E731
    process = WeightProcess(torch.zeros(2), drift, NOISE, Cut.horizontal([0]), allow_leak=True)
    with torch.no_grad():
        path = process.sample(200, samples=PATHS, generator=seeded(3), solver="sra1")
    w_S, w_D = path.w[:, -1].unbind(-1)
    assert w_S.var().item() == pytest.approx((1 - math.exp(-2)) / 2, rel=SPREAD)
    assert w_D.var().item() == pytest.approx(math.sinh(2) / 4 - 0.5, rel=SPREAD)
    assert w_D.mean().item() == pytest.approx(math.e - 2, abs=4 * (0.41 / PATHS) ** 0.5)
