"""Bugs in the integration and KL of the paper's published code; each test fails if its bug is reintroduced.

The equations are f_p + c + s t + A w, so each test runs with both the plain and the fused Euler schemes. In the
docstrings, "published code" is the code released with the paper.
"""

import itertools

import pytest
import torch

from sdeweights import Brownian, Cut, Grid, OrnsteinUhlenbeck, Prior, PriorPlus, WeightProcess, bottleneck
from sdeweights.brownian import draw
from sdeweights.testing import affine_posterior, seeded


def process_of(w0, prior, cut, **net):
    return WeightProcess(torch.tensor(w0), affine_posterior(prior, cut, len(w0), **net), prior, cut)


def lengths(path):
    return torch.tensor([b - a for a, b in itertools.pairwise(path.times)])


@pytest.mark.parametrize("steps", [29, 30, 59, 60])
@pytest.mark.parametrize(
    "cut", [Cut.full(), Cut.ode_first(0.1), Cut.sde_first(0.1), Cut.sde_first(0.7), Cut.horizontal([1])]
)
def test_integration_reaches_t_1_and_no_step_is_empty(euler, cut, steps):
    """In the published code, `next_t = target_t - curr_t` makes every second step empty; it stops at 15/29 = 0.517."""
    # dw = (1, t) dt: the first weight shows the length of each step, the second the time at which f_q is evaluated
    process = process_of(
        [0.0, 0.0], Brownian(1e-12), cut, constant=torch.tensor([1.0, 0]), slope=torch.tensor([0, 1.0])
    )
    path = process.sample(steps, generator=seeded(), **euler)
    dt, starts = lengths(path), path.ts[:-1]
    assert path.evaluations == steps
    assert path.w[0, -1, 0].item() == pytest.approx(1.0, abs=1e-10)
    assert torch.allclose(path.w[0].diff(dim=0), torch.stack([dt, starts * dt], -1), rtol=0, atol=1e-10)
    assert (dt > 0).all()
    # the same for the KL: 1/2 int (1 + t^2) / sigma^2 over the window, on S only
    inside = (starts >= cut.t1 - 1e-12) & (starts < cut.t2 - 1e-12)
    rate = torch.stack([torch.ones(steps), starts**2], -1)[:, cut.indices(2)].sum(-1)
    assert path.kl.item() == pytest.approx(0.5e24 * (rate * dt)[inside].sum().item(), rel=1e-9)


@pytest.mark.parametrize("cut", [Cut.full(), Cut.none(), Cut.ode_first(0.1), Cut.sde_first(0.3), Cut.horizontal(0.5)])
def test_prior_drift_is_part_of_the_posterior_drift(euler, cut):
    """The published code loses the OU term in a swapped tuple: an untrained network does not pull w towards mu."""
    for theta, mu in ((1.0, 0.0), (2.0, 0.5)):
        prior = OrnsteinUhlenbeck(theta, mu, sigma=1e-12)
        process = WeightProcess(torch.ones(2), PriorPlus(prior, bottleneck(2, cut, "1-4-1")), prior, cut)
        path = process.sample(30, generator=seeded(), **euler)
        decay = (1 - theta / 30) ** 30
        assert path.w[0, -1].tolist() == pytest.approx([mu + (1 - mu) * decay] * 2, abs=1e-9)
        (gradient,) = torch.autograd.grad(path.w[:, -1].sum(), process.w0)
        assert gradient.tolist() == pytest.approx([decay] * 2, rel=1e-12)
        assert path.kl.item() == 0


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5, 0.7])
def test_stochastic_phase_of_ode_first_is_at_the_end_of_depth(euler, ratio):
    """The published code integrates it on (0, ratio) instead of (1 - ratio, 1), so f_q and f_h get the wrong times."""
    process = process_of([1.0], Brownian(0.1), Cut.ode_first(ratio), slope=1.0)
    n = Grid.of(process.cut, 30).sde.steps
    noise = draw(2, n, 1, ratio / n, generator=seeded())
    path = process.sample(30, noise=noise, **euler)
    first = path.times.index(1 - ratio)
    assert torch.equal(path.w[0, : first + 1], path.w[1, : first + 1])
    assert (path.w[0, first + 1 :] != path.w[1, first + 1 :]).all()
    # without its noise each step is t dt, with the t of its left end: in (0, ratio) it would be far smaller
    without = path.w[..., 0].diff(dim=1)
    without[:, first:] -= 0.1 * noise.dB[..., 0]
    assert torch.allclose(without, (path.ts[:-1] * lengths(path)).expand(2, -1), rtol=0, atol=1e-14)
    expected = 0.5 * (path.ts[first:-1] ** 2 * lengths(path)[first:]).sum().item() / 0.01
    assert path.kl.tolist() == pytest.approx([expected] * 2, rel=1e-12)


def test_kl_has_the_factor_one_half_in_value_and_gradient(euler):
    """The published KL is int u^2 dt; since its horizon is 1/2, its value is still about right."""
    # u = c / sigma = 0.6 / 0.5, so KL = 0.72; c = bias / 2, so its derivative by the bias is u / (2 sigma) = 1.2
    process = process_of([0.0], OrnsteinUhlenbeck(sigma=0.5), Cut.full(), constant=0.6)
    total = process.sample(10, generator=seeded(), **euler).kl.sum()
    (gradient,) = torch.autograd.grad(total, process.drift.net.layers[-1].bias)
    assert total.item() == pytest.approx(0.72, rel=1e-12)
    assert gradient.item() == pytest.approx(1.2, rel=1e-12)


def test_kl_divides_the_gap_by_sigma_before_squaring(euler):
    """In the published `svi.py`, the integrand is ((f_q - f_p)^2 / g)^2."""
    sigma = torch.tensor([0.2, 3.0])
    path = process_of([0.0, 0.0], Brownian(sigma), Cut.full(), constant=0.6).sample(10, generator=seeded(), **euler)
    assert path.kl.item() == pytest.approx(0.5 * (0.6 / 0.2) ** 2 + 0.5 * (0.6 / 3) ** 2, rel=1e-12)


@pytest.mark.parametrize("cut", [Cut.horizontal([1]), Cut.both(0.2, 0.7, [1])])
def test_deterministic_weights_have_no_noise_and_no_kl(euler, cut):
    """The published code draws normals for everything it integrates. Here w_D gets none and adds nothing to the KL."""
    process = process_of([1.0, 1.0, 1.0], OrnsteinUhlenbeck(sigma=0.5), cut, constant=torch.tensor([7.0, 0.5, -7.0]))
    path = process.sample(20, 3, generator=seeded(), **euler)
    D = cut.complement(3)
    decay = 1 + torch.tensor([6.0, -8.0]) * (
        1 - (1 - 1 / 20) ** 20
    )  # w - c shrinks by the factor 1 - dt in each step of 1/20
    assert torch.equal(path.w[..., D], path.w[:1, :, D].expand(3, -1, -1))
    assert torch.allclose(path.w[0, -1, D], decay, rtol=1e-12)
    assert path.kl.tolist() == pytest.approx([0.5 * (cut.t2 - cut.t1)] * 3, rel=1e-12)


def test_sticking_the_landing_pairs_one_half_with_one(euler):
    """The published code pairs u^2 dt with 1 u dB. For constant u, log dQ/dP = 1/2 u^2 + u B(1), with mean 1/2 u^2."""
    u = 0.7
    path = process_of([0.0], Brownian(1.0), Cut.full(), constant=u).sample(10, 50, generator=seeded(), **euler)
    B1 = path.w[:, -1, 0] - u
    assert torch.allclose(path.kl_stl, 0.5 * u**2 + u * B1, atol=1e-12)


def late_sum(f_q, f_p, path, sigma):
    """The KL as summed by earlier published code: f_q before each step, f_p after it."""
    ts, w = path.ts, path.w
    gaps = [f_q(ts[k], w[:, k]) - f_p(ts[k + 1], w[:, k + 1]) for k in range(path.steps)]
    return sum(0.5 * (u / sigma).square().sum(-1) / path.steps for u in gaps)


def test_both_drifts_of_the_kl_are_evaluated_at_the_same_state():
    """Earlier published code evaluates f_p after the step and f_q before it, so q = p has a KL of order 1."""

    def pull(t, w):
        return -3 * w + t

    process = WeightProcess(torch.ones(2), pull, Prior(lambda t, w: pull(t, w), 0.5), Cut.full())
    path = process.sample(20, 50, generator=seeded())
    assert (path.kl == 0).all()
    assert (path.kl_stl == 0).all()
    assert late_sum(pull, pull, path, 0.5).mean() > 0.1


def test_the_gap_is_evaluated_at_the_left_end_of_each_step(euler):
    """The same mistake in f_q = -w against f_p = -3 w, whose gap is 2 w."""
    process = process_of([1.0, 1.0], OrnsteinUhlenbeck(3.0, 0.0, 0.5), Cut.full(), matrix=2.0)
    path = process.sample(20, 50, generator=seeded(), **euler)
    by_hand = (0.5 * (2 * path.w[:, :-1] / 0.5).square().sum(-1) / 20).sum(-1)
    assert torch.allclose(path.kl, by_hand, rtol=1e-12)
    assert (late_sum(process.drift, process.prior.drift, path, 0.5) - path.kl).abs().mean() > 0.1


@pytest.mark.parametrize(("steps", "ratio", "count"), [(100, 0.29, 29), (30, 0.1, 3), (10, 0.01, 1), (60, 0.001, 1)])
def test_number_of_stochastic_steps_is_not_truncated(steps, ratio, count):
    """The published int(100 * 0.29) is 28, and a small ratio leaves no stochastic step at all."""
    assert Grid.of(Cut.sde_first(ratio), steps).sde.steps == count
    assert Grid.of(Cut.ode_first(ratio), steps).sde.steps == count


def test_normals_are_drawn_only_for_the_weights(euler):
    """The published Brownian tree over activations, weights and KL draws 22 (d_x batch + 2 d_w) normals per step."""
    d, prior = 19_978, OrnsteinUhlenbeck()
    process = WeightProcess(
        torch.zeros(d), PriorPlus(prior, bottleneck(d, Cut.full(), "1-4-1")), prior, Cut.ode_first(0.1)
    )
    assert process.sample(60, generator=seeded(), **euler).gaussians == d * 6
