"""The path KL compared with closed forms. The end of a path and its KL are always checked separately.

Equations f_p + c + s t + A w are solved by both the plain and the fused Euler schemes, all others by the plain one.
"""

import itertools
import math

import pytest
import torch

from sdeweights import Brownian, Cut, Grid, OrnsteinUhlenbeck, Prior, PriorPlus, WeightProcess, kl, path_kl
from sdeweights.brownian import draw
from sdeweights.solvers import SDE_SOLVERS
from sdeweights.testing import affine_posterior, observed_order, random_posterior, seeded


def sampled(w0, drift, prior, cut, steps=20, **how):
    return WeightProcess(torch.tensor(w0), drift, prior, cut, **how).sample(steps, 3, generator=seeded(5))


def affine_process(w0, prior, cut, **net):
    return WeightProcess(torch.tensor(w0), affine_posterior(prior, cut, len(w0), **net), prior, cut)


def affine(euler, w0, prior, cut, steps=20, **net):
    return affine_process(w0, prior, cut, **net).sample(steps, 3, generator=seeded(5), **euler)


def no_noise(samples, steps, m, dt):
    noise = draw(samples, steps, m, dt, noises=2)
    return noise._replace(dB=torch.zeros_like(noise.dB), Z=torch.zeros_like(noise.Z))


def test_the_integrand_has_the_factor_one_half():
    assert kl.integrand(torch.tensor([3.0, 4.0])).item() == 12.5


GAP = torch.tensor([0.3, 0.4], dtype=torch.float64)
VERTICAL = [
    (Cut.full(), 1.0),
    (Cut.ode_first(0.1), 0.1),
    (Cut.sde_first(0.3), 0.3),
    (Cut.vertical(0.3, 0.6), 0.3),
    (Cut.vertical(0.3, 0.6, "fixed"), 0.3),
    (Cut.vertical(0.3, 0.6, "learned"), 0.3),
    (Cut.none(), 0.0),
]


@pytest.mark.parametrize(("cut", "length"), VERTICAL)
def test_constant_gap_over_part_of_the_depth(euler, cut, length):
    # 1/2 |c|^2 length / sigma^2 with c = (0.3, 0.4), sigma = 0.5: 0.5 * 0.25 * length / 0.25
    path = affine(euler, [1.0, -1.0], OrnsteinUhlenbeck(2.0, 1.0, 0.5), cut, constant=GAP)
    assert path.kl.tolist() == pytest.approx([0.5 * length] * 3, abs=1e-12)


@pytest.mark.parametrize(("cut", "length"), [case for case in VERTICAL if not case[0].resets])
def test_end_of_a_path_with_constant_drift(euler, cut, length):
    # w(1) = w0 + c + sigma (B(t2) - B(t1)): exact on every grid
    process = affine_process([1.0, -1.0], Brownian(0.5), cut, constant=GAP)
    steps = Grid.of(cut, 20).sde
    noise = None if steps is None else draw(3, steps.steps, 2, length / steps.steps, generator=seeded())
    path = process.sample(20, noise=noise, **euler)
    rise = 0 if noise is None else 0.5 * noise.dB.sum(1)
    assert torch.allclose(path.w[:, -1], torch.tensor([1.3, -0.6]) + rise, rtol=0, atol=1e-13)
    assert path.times[-1] == 1


@pytest.mark.parametrize(("cut", "length"), [case for case in VERTICAL if case[1]])
@pytest.mark.parametrize("sigma", [0.5, torch.tensor([0.5, 2.0], dtype=torch.float64)], ids=["number", "vector"])
def test_gradient_of_the_kl_of_a_constant_gap(euler, cut, length, sigma):
    # c = bias / 2, so d/d bias of 1/2 sum (c_i / sigma_i)^2 length is 1/2 c length / sigma^2
    process = affine_process([1.0, -1.0], OrnsteinUhlenbeck(2.0, 1.0, sigma), cut, constant=GAP)
    path = process.sample(20, 3, generator=seeded(5), **euler)
    (gradient,) = torch.autograd.grad(path.kl.mean(), process.drift.net.layers[-1].bias)
    assert torch.allclose(gradient, 0.5 * GAP * length / sigma**2, rtol=1e-12)


@pytest.mark.parametrize("sigma", [0.4, torch.tensor([0.4, 0.9, 0.2], dtype=torch.float64)], ids=["number", "vector"])
def test_value_and_gradient_share_one_constant_for_the_half(euler, sigma, monkeypatch):
    prior = OrnsteinUhlenbeck(sigma=sigma)
    process = WeightProcess(torch.tensor([0.1, 0.2, 0.3]), random_posterior(prior, Cut.full(), 3), prior, Cut.full())

    def value_and_gradients():
        total = process.sample(10, 2, generator=seeded(), **euler).kl.sum()
        return [total, *torch.autograd.grad(total, list(process.parameters()))]

    halved = value_and_gradients()
    monkeypatch.setattr(kl, "_HALF", 1.0)
    for whole, half in zip(value_and_gradients(), halved, strict=True):
        assert torch.allclose(whole, 2 * half, rtol=1e-12)
        assert half.abs().max() > 0


FOUR, D_GAP = [0.0] * 4, torch.tensor([100, 0.3, 100, 0.3], dtype=torch.float64)


@pytest.mark.parametrize(("cut", "length"), [(Cut.horizontal([1, 3]), 1.0), (Cut.both(0.2, 0.7, [1, 3], "fixed"), 0.5)])
def test_constant_gap_on_part_of_the_coordinates(euler, cut, length):
    path = affine(euler, FOUR, OrnsteinUhlenbeck(sigma=0.5), cut, constant=D_GAP)
    assert path.kl.tolist() == pytest.approx(
        [0.5 * 2 * 0.36 * length] * 3, abs=1e-12
    )  # the gap of 100 on D is not in it


def test_deterministic_coordinates_do_not_divide_by_their_zero_diffusion():
    prior = Prior(lambda t, w: -w, torch.tensor([0.5, 0.0]))
    path = sampled([0.0, 0.0], lambda t, w: -w + 0.3, prior, Cut.horizontal([0]), allow_leak=True)
    assert path.kl.tolist() == pytest.approx([0.5 * 0.36] * 3, abs=1e-12)


@pytest.mark.parametrize(("cut", "expected"), [(Cut.full(), 4 + 0.25), (Cut.horizontal([1]), 0.25)])
def test_kl_with_one_sigma_per_coordinate(euler, cut, expected):
    path = affine(euler, [1.0, 1.0], OrnsteinUhlenbeck(sigma=torch.tensor([0.5, 2.0])), cut, constant=1.0)
    assert path.kl.tolist() == pytest.approx([0.5 * expected] * 3, abs=1e-12)


def test_dense_diffusion_weights_the_gap_by_the_inverse_of_g_g_transposed():
    g = torch.tensor([[1.0, 0.2, 0.0], [0.0, 0.5, 0.1], [0.3, 0.0, 0.7]])
    c = torch.tensor([0.1, -0.2, 0.3])
    path = sampled([0.0] * 3, lambda t, w: c + 0 * w, Brownian(g), Cut.full())
    expected = 0.5 * c @ torch.linalg.inv(g @ g.T) @ c
    assert path.kl.tolist() == pytest.approx([expected.item()] * 3, rel=1e-12)


def test_dense_diffusion_on_part_of_the_coordinates_uses_the_block_of_s():
    g = torch.tensor([[1.0, 0.2, 9.0], [0.0, 0.5, 9.0], [9.0, 9.0, 9.0]])
    c = torch.tensor([0.1, -0.2, 7.0])
    path = sampled([0.0] * 3, lambda t, w: c + 0 * w, Brownian(g), Cut.horizontal([0, 1]), allow_leak=True)
    block = g[:2, :2]
    expected = 0.5 * c[:2] @ torch.linalg.inv(block @ block.T) @ c[:2]
    assert path.kl.tolist() == pytest.approx([expected.item()] * 3, rel=1e-12)


@pytest.mark.parametrize("n", [1, 5, 40])
def test_gap_that_grows_with_time_is_summed_at_left_points(euler, n):
    # gap t, sigma 1: 1/2 sum (k/n)^2 / n = (n - 1)(2n - 1) / (12 n^2), which tends to 1/6
    path = affine(euler, [0.0], Brownian(), Cut.full(), n, slope=1.0)
    assert path.kl.tolist() == pytest.approx([(n - 1) * (2 * n - 1) / (12 * n * n)] * 3, abs=1e-12)


def test_left_point_sum_converges_to_the_integral_at_first_order(euler):
    steps = (8, 16, 32, 64, 128)
    errors = [1 / 6 - affine(euler, [0.0], Brownian(), Cut.full(), n, slope=1.0).kl[0].item() for n in steps]
    assert observed_order([1 / n for n in steps], errors) == pytest.approx(1.0, abs=0.05)


def test_diffusion_that_grows_with_time():
    # gap 1, g = e^t: 1/2 h sum e^{-2kh} = 1/2 h (1 - e^{-2}) / (1 - e^{-2h})
    n = 25
    path = sampled([0.0], lambda t, w: 1 + 0 * w, Prior(lambda t, w: 0 * w, lambda t, w: torch.exp(t)), Cut.full(), n)
    expected = 0.5 / n * (1 - math.exp(-2)) / (1 - math.exp(-2 / n))
    assert path.kl.tolist() == pytest.approx([expected] * 3, rel=1e-12)


def test_diffusion_proportional_to_the_state():
    # f_q - f_p = 0.3 w and g = 0.6 w, so u = 1/2 for every w
    prior = Prior(lambda t, w: 0 * w, lambda t, w: 0.6 * w)
    path = sampled([1.0, 2.0], lambda t, w: 0.3 * w, prior, Cut.vertical(0.5, 1))
    assert path.kl.tolist() == pytest.approx([0.5 * 2 * 0.25 * 0.5] * 3, rel=1e-12)


THETA_Q, THETA_P, SIGMA, W0 = 0.5, 2.0, 0.7, 1.3


def ou_process():
    """f_q = -theta_q w, written as -theta_p w + (theta_p - theta_q) w."""
    return affine_process([W0], OrnsteinUhlenbeck(THETA_P, 0.0, SIGMA), Cut.full(), matrix=THETA_P - THETA_Q)


def ou_against_ou(n):
    """KL between two OU Euler chains, 1/2 (gap / sigma)^2 h sum E w_k^2, and the same without noise."""
    h = 1 / n
    a = 1 - THETA_Q * h
    rate = 0.5 * (THETA_Q - THETA_P) ** 2 / SIGMA**2 * h
    noiseless = rate * sum(W0**2 * a ** (2 * k) for k in range(n))
    noise = rate * sum(SIGMA**2 * h * (1 - a ** (2 * k)) / (1 - a * a) for k in range(n))
    return noiseless, noise


@pytest.mark.parametrize("n", [1, 10, 100])
def test_ou_against_ou_without_noise_equals_the_closed_form_of_the_sum(euler, n):
    path = ou_process().sample(n, noise=no_noise(2, n, 1, 1 / n), **euler)
    assert path.kl.tolist() == pytest.approx([ou_against_ou(n)[0]] * 2, rel=1e-10)
    assert path.w[0, -1].item() == pytest.approx(W0 * (1 - THETA_Q / n) ** n, rel=1e-12)


def test_ou_against_ou_converges_to_the_integral_at_first_order():
    # 1/2 (gap / sigma)^2 int E w_t^2, E w_t^2 = w0^2 e^{-2 q t} + sigma^2 (1 - e^{-2 q t}) / (2 q)
    q, rate = THETA_Q, 0.5 * (THETA_Q - THETA_P) ** 2 / SIGMA**2
    decay = (1 - math.exp(-2 * q)) / (2 * q)
    integral = rate * (W0**2 * decay + SIGMA**2 / (2 * q) * (1 - decay))
    errors = [abs(sum(ou_against_ou(n)) - integral) for n in (8, 16, 32, 64, 128)]
    assert observed_order([1 / n for n in (8, 16, 32, 64, 128)], errors) == pytest.approx(1.0, abs=0.05)


def test_ou_against_ou_sampled(euler):
    n, paths = 20, 20_000
    with torch.no_grad():
        found = ou_process().sample(n, samples=paths, generator=seeded(11), **euler).kl
    # 4 standard errors: fails by chance once in 16,000
    assert found.mean().item() == pytest.approx(sum(ou_against_ou(n)), abs=4 * found.std().item() / paths**0.5)


def test_mean_shift_is_a_constant_gap(euler):
    # 2 (1 - w) = 2 (0.25 - w) + 1.5
    path = affine(euler, [0.3], OrnsteinUhlenbeck(2.0, 0.25, 0.5), Cut.full(), constant=1.5)
    assert path.kl.tolist() == pytest.approx([0.5 * (1.5 / 0.5) ** 2] * 3, rel=1e-12)
    general = sampled([0.3], OrnsteinUhlenbeck(2.0, 1.0, 0.5).drift, OrnsteinUhlenbeck(2.0, 0.25, 0.5), Cut.full())
    assert torch.allclose(general.kl, path.kl, rtol=1e-12)


def kl_of_gaussian_chains(A_q, A_p, g, w0, n):
    """KL between the joint normal laws of (w_1, ..., w_n) under q and p, computed without Girsanov's theorem."""
    h, d = 1 / n, len(w0)

    def chain(A):
        """Mean and covariance of the whole path: w_k = M^k w0 + sum_j M^(k-1-j) g dB_j."""
        M = torch.eye(d) + h * A
        power = [torch.linalg.matrix_power(M, k) for k in range(n + 1)]
        mean = torch.cat([power[k] @ w0 for k in range(1, n + 1)])
        rows = [[power[k - 1 - j] @ g if j < k else torch.zeros(d, d) for j in range(n)] for k in range(1, n + 1)]
        L = torch.cat([torch.cat(row, 1) for row in rows]) * h**0.5
        return torch.distributions.MultivariateNormal(mean, L @ L.T)

    return torch.distributions.kl_divergence(chain(A_q), chain(A_p)).item()


def require_kl_of_chains(process, A_q, A_p, g, **euler):
    n, paths = 6, 40_000
    with torch.no_grad():
        found = process.sample(n, samples=paths, generator=seeded(2), **euler).kl
    expected, error = kl_of_gaussian_chains(A_q, A_p, g, process.w0.detach(), n), found.std().item() / paths**0.5
    assert found.mean().item() == pytest.approx(expected, abs=4 * error)  # fails by chance once in 16,000
    assert 4 * error < 0.02 * expected  # so a missing 1/2 would be far outside


def test_expected_sum_equals_the_kl_of_the_two_gaussian_chains(euler):
    A_q, theta, sigma = torch.tensor([[-0.5, 0.8], [-0.3, 0.1]]), 0.7, torch.tensor([0.5, 0.4])
    A_p, prior = -theta * torch.eye(2), OrnsteinUhlenbeck(theta, 0.0, sigma)
    process = affine_process([1.0, -0.5], prior, Cut.full(), matrix=A_q - A_p)
    require_kl_of_chains(process, A_q, A_p, torch.diag(sigma), **euler)


def test_expected_sum_equals_the_kl_of_the_two_gaussian_chains_with_dense_noise():
    A_q, A_p = torch.tensor([[-0.5, 0.8], [-0.3, 0.1]]), torch.tensor([[-1.0, 0.0], [0.2, -0.4]])
    g = torch.tensor([[0.5, 0.0], [0.2, 0.4]])
    prior = Prior(lambda t, w: w @ A_p.T, g)
    require_kl_of_chains(
        WeightProcess(torch.tensor([1.0, -0.5]), lambda t, w: w @ A_q.T, prior, Cut.full()), A_q, A_p, g
    )


def test_kl_is_exactly_zero_if_posterior_and_prior_agree(euler):
    for prior in (OrnsteinUhlenbeck(1.5, 0.2, 0.3), Brownian(2.0)):
        for cut in (Cut.full(), Cut.vertical(0.2, 0.9), Cut.horizontal([1])):
            assert (affine(euler, [0.3, -0.7], prior, cut).kl == 0).all()


def test_kl_is_exactly_zero_if_posterior_and_prior_are_the_same_function():
    for prior in (OrnsteinUhlenbeck(1.5, 0.2, 0.3), Prior(lambda t, w: torch.sin(w) * t, lambda t, w: 1 + w**2)):
        assert (sampled([0.3, -0.7], prior.drift, prior, Cut.full()).kl == 0).all()


def test_a_drift_built_on_another_prior_is_compared_with_the_process_prior():
    # f_q = (1 - w) + 0.5, f_p = -w: a gap of 1.5, regardless of the prior used to define f_q
    drift = PriorPlus(OrnsteinUhlenbeck(1.0, 1.0, 0.3), lambda t, w: 0.5 + 0 * w)
    path = sampled([0.3, -0.7], drift, OrnsteinUhlenbeck(sigma=0.5), Cut.full())
    assert path.kl.tolist() == pytest.approx([0.5 * 2 * 9] * 3, rel=1e-12)
    assert path_kl(drift, OrnsteinUhlenbeck(sigma=0.5), path, Cut.full()).tolist() == pytest.approx([9] * 3, rel=1e-12)


@pytest.mark.parametrize("cut", [Cut.full(), Cut.horizontal([1])])
def test_a_small_gap_is_not_lost_in_a_large_prior_drift(euler, cut):
    # f_p is about 1e8 and the net is 1e-9: the difference f_q - f_p would round to 0
    prior = OrnsteinUhlenbeck(1.0, 1e8, 1e-9)
    path = affine(euler, [0.0, 0.0], prior, cut, constant=1e-9)
    assert path.kl.tolist() == pytest.approx([0.5 * len(cut.indices(2))] * 3, rel=1e-9)
    again = path_kl(affine_posterior(prior, cut, 2, constant=1e-9), prior, path, cut)
    assert again.tolist() == pytest.approx(path.kl.tolist(), rel=1e-12)


def test_kl_of_consecutive_windows_adds_up(euler):
    prior = OrnsteinUhlenbeck(sigma=0.5)
    process = WeightProcess(torch.tensor([0.3, -0.7]), random_posterior(prior, Cut.full(), 2), prior, Cut.full())
    path = process.sample(10, 3, generator=seeded(5), **euler)
    parts = [path_kl(process.drift, prior, path, Cut.vertical(a, b)) for a, b in ((0, 0.3), (0.3, 0.5), (0.5, 1))]
    assert torch.allclose(sum(parts), path.kl, rtol=1e-12)
    with pytest.raises(ValueError, match=r"expected a point of the grid, got t=0\.25"):
        path_kl(process.drift, prior, path, Cut.vertical(0.25, 1))


def test_each_step_of_a_window_is_weighted_by_its_length(euler):
    # steps of 1/4, 1/16 and 1/6; the gap grows with t, so no two steps contribute the same
    cut, prior = Cut.vertical(0.25, 0.5), Brownian(0.5)
    process = affine_process([0.3, -0.7], prior, cut, constant=1.0, slope=1.0)
    path = process.sample(Grid.of(cut, 8, sde_steps=4), 3, generator=seeded(), **euler)
    lengths = [b - a for a, b in itertools.pairwise(path.times)]
    assert lengths == pytest.approx([1 / 4] + 4 * [1 / 16] + 3 * [1 / 6])
    terms = [0.5 * 2 * ((1 + t) / 0.5) ** 2 * dt for t, dt in zip(path.times, lengths, strict=False)]
    assert path.kl.tolist() == pytest.approx([sum(terms[1:5])] * 3, rel=1e-12)
    assert path_kl(process.drift, prior, path, Cut.full()).tolist() == pytest.approx([sum(terms)] * 3, rel=1e-12)


@pytest.mark.parametrize("window", [(0.5, 1.0), (0.25, 1.0), (0.0, 0.75)])
def test_the_step_after_a_reset_uses_the_right_limit(euler, window):
    # gap w, w = w_t2 = 3 right after t2 = 1/2: the left limit there is about 0
    cut, prior = Cut.sde_first(0.5, "fixed"), Brownian(0.1)
    drift = affine_posterior(prior, cut, 1, matrix=1.0)
    process = WeightProcess(torch.zeros(1), drift, prior, cut, w_t2=torch.tensor([3.0]))
    path = process.sample(8, 4, generator=seeded(), **euler)
    first, last = (path.times.index(t) for t in window)
    starts = [path.at(path.times[k])[:, 0] for k in range(first, last)]  # the right limit at t2
    expected = sum(0.5 * (w / 0.1) ** 2 / 8 for w in starts)
    assert (path.at(0.5) == 3).all()
    assert (path.w[:, 4].abs() < 1).all()
    assert torch.allclose(path_kl(drift, prior, path, Cut.vertical(*window)), expected, rtol=1e-12)


@pytest.mark.parametrize("off", [5e-3, -5e-3, 1e-4, 1e-5])
def test_a_window_off_the_grid_is_rejected(off):
    prior, drift = Brownian(0.5), lambda t, w: 1 + 0 * w
    path = sampled([0.3], drift, prior, Cut.full(), steps=10)
    for window in ((0.3 + off, 1.0), (0.0, 0.3 + off)):
        with pytest.raises(ValueError, match=r"expected a point of the grid, got t=0\.\d+; the nearest is 0\.3"):
            path_kl(drift, prior, path, Cut.vertical(*window))
    # a grid in float32 is rounded by up to 6e-8
    assert path_kl(drift, prior, path, Cut.vertical(0.3 + 6e-8, 1.0)).tolist() == pytest.approx([0.5 * 4 * 0.7] * 3)


def test_kl_is_invariant_under_a_change_of_coordinates():
    # v = M w has drift M f(M^{-1} v) and diffusion M g: the same law, the same noise, the same KL
    M = torch.tensor([[2.0, 1.0], [0.0, 0.5]])
    inverse = torch.linalg.inv(M)
    f_q, f_p = (lambda t, w: torch.tanh(w) + t), (lambda t, w: -w)
    path = sampled([0.3, -0.7], f_q, Prior(f_p, 0.5), Cut.full())
    moved = [(lambda t, v, f=f: f(t, v @ inverse.T) @ M.T) for f in (f_q, f_p)]
    other = sampled((M @ torch.tensor([0.3, -0.7])).tolist(), moved[0], Prior(moved[1], 0.5 * M), Cut.full())
    assert torch.allclose(other.w, path.w @ M.T, atol=1e-12)
    assert torch.allclose(other.kl, path.kl, rtol=1e-10)


@pytest.mark.parametrize("solver", [*SDE_SOLVERS, "torchsde:srk", "torchsde:reversible_heun", "torchsde:log_ode"])
@pytest.mark.parametrize("cut", [Cut.full(), Cut.vertical(0.3, 0.6, "fixed"), Cut.both(0.2, 0.7, [0, 2])])
def test_kl_is_the_left_point_sum_on_the_path_for_every_solver(solver, cut):
    prior = OrnsteinUhlenbeck(sigma=0.4)
    process = WeightProcess(torch.tensor([0.1, 0.2, 0.3]), random_posterior(prior, cut, 3), prior, cut)
    ode_solver = "fused-euler" if solver == "fused-euler" else "euler"
    path = process.sample(10, samples=4, generator=seeded(), solver=solver, ode_solver=ode_solver)
    by_hand = torch.zeros(4)
    S = cut.indices(3)
    for k in range(path.steps):
        if cut.t1 <= path.times[k] < cut.t2:
            gap = (process.drift(path.ts[k], path.w[:, k]) - prior.drift(path.ts[k], path.w[:, k]))[:, S]
            by_hand += 0.5 * (gap / 0.4).square().sum(-1) * (path.times[k + 1] - path.times[k])
    assert torch.allclose(path.kl, by_hand, rtol=1e-12)
    assert torch.allclose(path_kl(process.drift, prior, path, cut), path.kl, rtol=1e-12)


def test_kl_integrated_as_an_extra_coordinate_is_the_same():
    # dk = 1/2 |u|^2 dt as a deterministic coordinate next to w, integrated by the same Euler steps
    prior, n = Brownian(0.5), 12
    drift = lambda t, w: torch.sin(w) + t  # noqa: E731
    noise = draw(4, n, 1, 1 / n, generator=seeded())
    path = WeightProcess(torch.tensor([0.2]), drift, prior, Cut.full()).sample(n, noise=noise)

    def augmented(t, w):
        f = drift(t, w[..., :1])
        return torch.cat([f, 0.5 * (f / 0.5) ** 2], -1)

    both = WeightProcess(torch.tensor([0.2, 0.0]), augmented, prior, Cut.horizontal([0]), allow_leak=True)
    assert torch.allclose(both.sample(n, noise=noise).w[:, -1, 1], path.kl, rtol=1e-12)
