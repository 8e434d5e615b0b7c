"""What the published code of the paper gets wrong about integration and KL, each as a test that it would fail."""

import math

import pytest
import torch

from sdeweights import Brownian, Cut, Grid, OrnsteinUhlenbeck, Prior, PriorPlus, WeightProcess, bottleneck
from sdeweights.testing import seeded


@pytest.mark.parametrize("steps", [29, 30, 59, 60])
@pytest.mark.parametrize(
    "cut", [Cut.full(), Cut.ode_first(0.1), Cut.sde_first(0.1), Cut.sde_first(0.7), Cut.horizontal(0.5)]
)
def test_integration_reaches_t_1_and_no_step_is_empty(cut, steps):
    """There, `next_t = target_t - curr_t` makes every second step empty: the SDE-BNN stops at 15/29 = 0.517."""
    seen = []

    def drift(t, w):
        seen.append(float(t))
        return 1 + 0 * w

    process = WeightProcess(torch.zeros(2), drift, Brownian(1e-12), cut, allow_leak=True)
    seen.clear()
    path = process.sample(steps, generator=seeded())
    assert path.w[0, -1].tolist() == pytest.approx([1.0, 1.0], abs=1e-10)  # int_0^1 1 dt
    assert path.kl.item() == pytest.approx(1e24 * 0.5 * len(cut.indices(2)) * (cut.t2 - cut.t1), rel=1e-9)
    assert seen == sorted(set(seen))
    assert len(seen) == steps


def test_prior_drift_is_part_of_the_posterior_drift():
    """There, the OU term is lost in a swapped tuple: an untrained network leaves w in place instead of pulling it to 0."""
    prior = OrnsteinUhlenbeck(sigma=1e-12)
    for cut in (Cut.full(), Cut.none(), Cut.ode_first(0.1), Cut.horizontal(0.5)):
        process = WeightProcess(torch.ones(2), PriorPlus(prior, bottleneck(2, cut, "1-4-1")), prior, cut)
        path = process.sample(30, generator=seeded())
        assert path.w[0, -1].tolist() == pytest.approx([(1 - 1 / 30) ** 30] * 2, abs=1e-9)
        assert path.kl.item() == 0


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5, 0.7])
def test_stochastic_phase_of_ode_first_is_at_the_end_of_depth(ratio):
    """There, it is integrated on (0, ratio) instead of (1 - ratio, 1), so that f_q and f_h see wrong times."""
    noisy_times = []

    def diffusion(t, w):
        noisy_times.append(float(t))
        return 0.1 + 0 * w

    prior = Prior(lambda t, w: -w, diffusion)
    process = WeightProcess(torch.ones(1), lambda t, w: t + 0 * w, prior, Cut.ode_first(ratio))
    noisy_times.clear()
    path = process.sample(30, 2, generator=seeded())
    at_steps = [t for t in noisy_times if t > 0]  # t = 0 is where shapes are looked at
    assert min(at_steps) == 1 - ratio
    assert max(at_steps) < 1
    assert path.w[0, path.times.index(1 - ratio)] == path.w[1, path.times.index(1 - ratio)]
    # int t dt by left points ends where it should: sum of t_k dt_k
    expected = sum(a * (b - a) for a, b in zip(path.times, path.times[1:], strict=False))
    assert path.w.mean(0)[path.times.index(1 - ratio), 0].item() - 1 == pytest.approx(
        sum(a * (b - a) for a, b in zip(path.times, path.times[1:], strict=False) if b <= 1 - ratio), abs=1e-12
    )
    assert math.isclose(expected, 0.5, abs_tol=0.02)


def test_sticking_the_landing_pairs_one_half_with_one():
    """There, u^2 dt is paired with 1 u dB. With u constant, log dQ/dP = 1/2 u^2 + u B(1), of mean 1/2 u^2."""
    u = 0.7
    process = WeightProcess(torch.zeros(1), lambda t, w: u + 0 * w, Brownian(1.0), Cut.full())
    path = process.sample(10, 50, generator=seeded())
    B1 = path.w[:, -1, 0] - u
    assert torch.allclose(path.kl_stl, 0.5 * u**2 + u * B1, atol=1e-12)


def test_both_drifts_of_the_kl_are_taken_at_the_same_state():
    """There (in the toy of an earlier code), f_p is evaluated after the step and f_q before: q = p has a KL of order 1."""

    def pull(t, w):
        return -3 * w + t

    process = WeightProcess(torch.ones(2), pull, Prior(lambda t, w: pull(t, w), 0.5), Cut.full())
    path = process.sample(20, 50, generator=seeded())
    assert (path.kl == 0).all()
    assert (path.kl_stl == 0).all()
    # the sum that it makes of this path, for the size of the mistake
    ts, w = path.ts, path.w
    late = [pull(ts[k], w[:, k]) - pull(ts[k + 1], w[:, k + 1]) for k in range(path.steps)]
    assert sum(0.5 * (u / 0.5).square().sum(-1) / path.steps for u in late).mean() > 0.1


@pytest.mark.parametrize(("steps", "ratio", "count"), [(100, 0.29, 29), (30, 0.1, 3), (10, 0.01, 1), (60, 0.001, 1)])
def test_number_of_stochastic_steps_is_not_truncated(steps, ratio, count):
    """There, int(100 * 0.29) is 28, and a small ratio leaves no stochastic step at all."""
    assert Grid.of(Cut.sde_first(ratio), steps).sde.steps == count
    assert Grid.of(Cut.ode_first(ratio), steps).sde.steps == count


def test_normals_are_those_of_the_weights_alone():
    """There, a Brownian tree over activations, weights and KL draws 22 (d_x batch + 2 d_w) normals per step."""
    process = WeightProcess(torch.zeros(19_978), lambda t, w: -w, OrnsteinUhlenbeck(), Cut.ode_first(0.1))
    assert process.sample(60, generator=seeded()).gaussians == 19_978 * 6
