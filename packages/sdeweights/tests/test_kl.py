"""The path KL against closed forms. Two things are always checked apart: where the path ends, and its KL."""

import itertools
import math

import pytest
import torch

from sdeweights import Brownian, Cut, Grid, OrnsteinUhlenbeck, Prior, PriorPlus, SplitDrift, WeightProcess, path_kl
from sdeweights.brownian import draw
from sdeweights.kl import integrand
from sdeweights.solvers import SDE_SOLVERS
from sdeweights.testing import observed_order, seeded

GENERAL = [name for name in SDE_SOLVERS if not name.startswith("fused")]  # take every equation


def sampled(w0, drift, prior, cut, steps=20, samples=3, **how):
    return WeightProcess(torch.tensor(w0), drift, prior, cut, **how).sample(steps, samples, generator=seeded(5))


def no_noise(samples, steps, m, dt):
    noise = draw(samples, steps, m, dt, noises=2)
    return noise._replace(dB=torch.zeros_like(noise.dB), Z=torch.zeros_like(noise.Z))


def test_the_integrand_has_its_half():
    assert integrand(torch.tensor([3.0, 4.0])).item() == 12.5


@pytest.mark.parametrize(
    ("cut", "length"),
    [
        (Cut.full(), 1.0),
        (Cut.ode_first(0.1), 0.1),
        (Cut.sde_first(0.3), 0.3),
        (Cut.vertical(0.3, 0.6), 0.3),
        (Cut.vertical(0.3, 0.6, "fixed"), 0.3),
        (Cut.vertical(0.3, 0.6, "learned"), 0.3),
        (Cut.none(), 0.0),
    ],
)
def test_constant_gap_over_part_of_depth(cut, length):
    # 1/2 |c|^2 length / sigma^2 with c = (0.3, 0.4), sigma = 0.5: 0.5 * 0.25 * length / 0.25
    gap = torch.tensor([0.3, 0.4])
    prior = OrnsteinUhlenbeck(theta=2.0, mu=1.0, sigma=0.5)
    path = sampled([1.0, -1.0], lambda t, w: prior.drift(t, w) + gap, prior, cut)
    assert path.kl.tolist() == pytest.approx([0.5 * length] * 3, abs=1e-12)
    assert path.times[-1] == 1


def test_constant_gap_on_part_of_the_coordinates():
    drift = SplitDrift(lambda t, w: -w + 0.3, lambda t, w: -w + 100, [1, 3], 4)
    path = sampled([0.0] * 4, drift, OrnsteinUhlenbeck(sigma=0.5), Cut.horizontal([1, 3]))
    assert path.kl.tolist() == pytest.approx([0.5 * 2 * 0.36] * 3, abs=1e-12)  # 100 does not count


def test_constant_gap_with_both_cuts():
    drift = SplitDrift(lambda t, w: -w + 0.3, lambda t, w: -w + 100, [1, 3], 4)
    path = sampled([0.0] * 4, drift, OrnsteinUhlenbeck(sigma=0.5), Cut.both(0.2, 0.7, [1, 3], "fixed"))
    assert path.kl.tolist() == pytest.approx([0.5 * 2 * 0.36 * 0.5] * 3, abs=1e-12)


def test_deterministic_coordinates_do_not_divide_by_their_zero_diffusion():
    prior = Prior(lambda t, w: -w, torch.tensor([0.5, 0.0]))
    path = sampled([0.0, 0.0], lambda t, w: -w + 0.3, prior, Cut.horizontal([0]), allow_leak=True)
    assert path.kl.tolist() == pytest.approx([0.5 * 0.36] * 3, abs=1e-12)


def test_every_coordinate_has_its_own_sigma():
    prior = OrnsteinUhlenbeck(sigma=torch.tensor([0.5, 2.0]))
    path = sampled([1.0, 1.0], lambda t, w: -w + 1, prior, Cut.full())
    assert path.kl.tolist() == pytest.approx([0.5 * (4 + 0.25)] * 3, abs=1e-12)


def test_dense_diffusion_weighs_the_gap_by_the_inverse_of_g_g_transposed():
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
def test_gap_that_grows_with_time_is_summed_at_left_points(n):
    # gap t, sigma 1: 1/2 sum (k/n)^2 / n = (n - 1)(2n - 1) / (12 n^2), which tends to 1/6
    path = sampled([0.0], lambda t, w: t + 0 * w, Brownian(), Cut.full(), steps=n)
    assert path.kl.tolist() == pytest.approx([(n - 1) * (2 * n - 1) / (12 * n * n)] * 3, abs=1e-12)


def test_left_point_sum_converges_to_the_integral_at_first_order():
    errors = [
        1 / 6 - sampled([0.0], lambda t, w: t + 0 * w, Brownian(), Cut.full(), n).kl[0].item()
        for n in (8, 16, 32, 64, 128)
    ]
    assert observed_order([1 / n for n in (8, 16, 32, 64, 128)], errors) == pytest.approx(1.0, abs=0.05)


def test_diffusion_that_grows_with_time():
    # gap 1, g = e^t: 1/2 h sum e^{-2kh} = 1/2 h (1 - e^{-2}) / (1 - e^{-2h})
    n = 25
    path = sampled([0.0], lambda t, w: 1 + 0 * w, Prior(lambda t, w: 0 * w, lambda t, w: torch.exp(t)), Cut.full(), n)
    expected = 0.5 / n * (1 - math.exp(-2)) / (1 - math.exp(-2 / n))
    assert path.kl.tolist() == pytest.approx([expected] * 3, rel=1e-12)


def test_diffusion_proportional_to_the_state():
    # f_q - f_p = 0.3 w and g = 0.6 w: u = 1/2 whatever w is
    prior = Prior(lambda t, w: 0 * w, lambda t, w: 0.6 * w)
    path = sampled([1.0, 2.0], lambda t, w: 0.3 * w, prior, Cut.vertical(0.5, 1))
    assert path.kl.tolist() == pytest.approx([0.5 * 2 * 0.25 * 0.5] * 3, rel=1e-12)


THETA_Q, THETA_P, SIGMA, W0 = 0.5, 2.0, 0.7, 1.3


def ou_against_ou(n):
    """KL of the Euler chains of dw = -theta w dt + sigma dB: 1/2 (gap / sigma)^2 h sum E w_k^2, and its noiseless part."""
    h = 1 / n
    a = 1 - THETA_Q * h
    rate = 0.5 * (THETA_Q - THETA_P) ** 2 / SIGMA**2 * h
    noiseless = rate * sum(W0**2 * a ** (2 * k) for k in range(n))
    noise = rate * sum(SIGMA**2 * h * (1 - a ** (2 * k)) / (1 - a * a) for k in range(n))
    return noiseless, noise


@pytest.mark.parametrize("n", [1, 10, 100])
def test_ou_against_ou_without_noise_is_the_closed_form_of_the_sum(n):
    process = WeightProcess(
        torch.tensor([W0]), lambda t, w: -THETA_Q * w, OrnsteinUhlenbeck(THETA_P, 0.0, SIGMA), Cut.full()
    )
    path = process.sample(n, noise=no_noise(2, n, 1, 1 / n))
    assert path.kl.tolist() == pytest.approx([ou_against_ou(n)[0]] * 2, rel=1e-10)
    assert path.w[0, -1].item() == pytest.approx(W0 * (1 - THETA_Q / n) ** n, rel=1e-12)


def test_ou_against_ou_converges_to_the_integral_at_first_order():
    # 1/2 (gap / sigma)^2 int E w_t^2, E w_t^2 = w0^2 e^{-2 q t} + sigma^2 (1 - e^{-2 q t}) / (2 q)
    q, rate = THETA_Q, 0.5 * (THETA_Q - THETA_P) ** 2 / SIGMA**2
    decay = (1 - math.exp(-2 * q)) / (2 * q)
    integral = rate * (W0**2 * decay + SIGMA**2 / (2 * q) * (1 - decay))
    errors = [abs(sum(ou_against_ou(n)) - integral) for n in (8, 16, 32, 64, 128)]
    assert observed_order([1 / n for n in (8, 16, 32, 64, 128)], errors) == pytest.approx(1.0, abs=0.05)


def test_ou_against_ou_sampled():
    n, paths = 20, 20_000
    process = WeightProcess(
        torch.tensor([W0]), lambda t, w: -THETA_Q * w, OrnsteinUhlenbeck(THETA_P, 0.0, SIGMA), Cut.full()
    )
    with torch.no_grad():
        kl = process.sample(n, samples=paths, generator=seeded(11)).kl
    assert kl.mean().item() == pytest.approx(sum(ou_against_ou(n)), abs=4 * kl.std().item() / paths**0.5)


def test_mean_shift_is_a_constant_gap():
    path = sampled([0.3], OrnsteinUhlenbeck(2.0, 1.0, 0.5).drift, OrnsteinUhlenbeck(2.0, 0.25, 0.5), Cut.full())
    assert path.kl.tolist() == pytest.approx([0.5 * (2 * 0.75 / 0.5) ** 2] * 3, rel=1e-12)


def test_expected_sum_is_the_kl_of_the_two_gaussian_chains():
    """Independent of Girsanov: the joint normal laws of (w_1, ..., w_n) under q and p, and the KL between normals."""
    n, d = 6, 2
    h = 1 / n
    A_q, A_p = torch.tensor([[-0.5, 0.8], [-0.3, 0.1]]), torch.tensor([[-1.0, 0.0], [0.2, -0.4]])
    g, w0 = torch.tensor([[0.5, 0.0], [0.2, 0.4]]), torch.tensor([1.0, -0.5])

    def chain(A):
        """Mean and covariance of the whole path: w_k = M^k w0 + sum_j M^(k-1-j) g dB_j."""
        M = torch.eye(d) + h * A
        power = [torch.linalg.matrix_power(M, k) for k in range(n + 1)]
        mean = torch.cat([power[k] @ w0 for k in range(1, n + 1)])
        rows = [[power[k - 1 - j] @ g if j < k else torch.zeros(d, d) for j in range(n)] for k in range(1, n + 1)]
        L = torch.cat([torch.cat(row, 1) for row in rows]) * h**0.5
        return torch.distributions.MultivariateNormal(mean, L @ L.T)

    expected = torch.distributions.kl_divergence(chain(A_q), chain(A_p)).item()
    prior = Prior(lambda t, w: w @ A_p.T, g)
    process = WeightProcess(w0, lambda t, w: w @ A_q.T, prior, Cut.full())
    paths = 40_000
    with torch.no_grad():
        kl = process.sample(n, samples=paths, generator=seeded(2)).kl
    assert kl.mean().item() == pytest.approx(expected, abs=4 * kl.std().item() / paths**0.5)
    assert 4 * kl.std().item() / paths**0.5 < 0.02 * expected  # the test would notice a missing half, by far


def test_kl_is_exactly_zero_where_posterior_and_prior_agree():
    for prior in (
        OrnsteinUhlenbeck(1.5, 0.2, 0.3),
        Brownian(2.0),
        Prior(lambda t, w: torch.sin(w) * t, lambda t, w: 1 + w**2),
    ):
        path = sampled([0.3, -0.7], prior.drift, prior, Cut.full())
        assert (path.kl == 0).all()
        path = sampled([0.3, -0.7], PriorPlus(prior, lambda t, w: torch.zeros_like(w)), prior, Cut.vertical(0.2, 0.9))
        assert (path.kl == 0).all()


def test_drift_built_on_another_prior_is_compared_with_the_prior_of_the_process():
    # f_q = (1 - w) + 0.5, f_p = -w: a gap of 1.5, whatever the prior that f_q was written with
    drift = PriorPlus(OrnsteinUhlenbeck(1.0, 1.0, 0.3), lambda t, w: 0.5 + 0 * w)
    path = sampled([0.3, -0.7], drift, OrnsteinUhlenbeck(sigma=0.5), Cut.full())
    assert path.kl.tolist() == pytest.approx([0.5 * 2 * 9] * 3, rel=1e-12)
    assert path_kl(drift, OrnsteinUhlenbeck(sigma=0.5), path, Cut.full()).tolist() == pytest.approx([9] * 3, rel=1e-12)


def test_small_gap_does_not_drown_in_a_large_prior_drift():
    # f_p is about 1e8, the net 1e-9: in f_q - f_p nothing would be left of it
    prior = OrnsteinUhlenbeck(1.0, 1e8, 1e-9)
    for cut in (Cut.full(), Cut.horizontal([1])):
        net = lambda t, w: 1e-9 + 0 * w  # noqa: E731
        net = net if not cut.splits(2) else SplitDrift(net, net, [1], 2)
        path = sampled([0.0, 0.0], PriorPlus(prior, net), prior, cut)
        assert path.kl.tolist() == pytest.approx([0.5 * len(cut.indices(2))] * 3, rel=1e-9)
        kl = path_kl(PriorPlus(prior, net), prior, path, cut)
        assert kl.tolist() == pytest.approx(path.kl.tolist(), rel=1e-12)


def test_kl_of_consecutive_windows_adds_up():
    prior = OrnsteinUhlenbeck(sigma=0.5)
    drift = lambda t, w: torch.sin(w) + t  # noqa: E731
    path = sampled([0.3, -0.7], drift, prior, Cut.full(), steps=10)
    parts = [path_kl(drift, prior, path, Cut.vertical(a, b)) for a, b in ((0, 0.3), (0.3, 0.5), (0.5, 1))]
    assert torch.allclose(sum(parts), path.kl, rtol=1e-12)
    with pytest.raises(ValueError, match=r"expected a point of the grid, got t=0\.25"):
        path_kl(drift, prior, path, Cut.vertical(0.25, 1))


def test_each_step_of_a_window_counts_with_its_own_length():
    # steps of 1/4, 1/16 and 1/6; the gap grows with t, so that every step has a weight of its own
    cut = Cut.vertical(0.25, 0.5)
    drift, prior = (lambda t, w: 1 + t + 0 * w), Brownian(0.5)
    process = WeightProcess(torch.tensor([0.3, -0.7]), drift, prior, cut)
    path = process.sample(Grid.of(cut, 8, sde_steps=4), 3, generator=seeded())
    lengths = [b - a for a, b in itertools.pairwise(path.times)]
    assert lengths == pytest.approx([1 / 4] + 4 * [1 / 16] + 3 * [1 / 6])
    expected = sum(0.5 * 2 * ((1 + t) / 0.5) ** 2 * dt for t, dt in zip(path.times, lengths, strict=False))
    assert path_kl(drift, prior, path, Cut.full()).tolist() == pytest.approx([expected] * 3, rel=1e-12)


@pytest.mark.parametrize("window", [(0.5, 1.0), (0.25, 1.0), (0.0, 0.75)])
def test_the_step_from_a_reset_counts_with_the_right_limit(window):
    # gap w, w = w_t2 = 3 right after t2 = 1/2: the left limit there is about 0
    cut = Cut.sde_first(0.5, "fixed")
    drift, prior = (lambda t, w: w), Brownian(0.1)
    process = WeightProcess(torch.zeros(1), drift, prior, cut, w_t2=torch.tensor([3.0]))
    path = process.sample(8, 4, generator=seeded())
    first, last = (path.times.index(t) for t in window)
    starts = [path.at(path.times[k])[:, 0] for k in range(first, last)]  # the right limit at t2
    expected = sum(0.5 * (w / 0.1) ** 2 / 8 for w in starts)
    assert (path.at(0.5) == 3).all()
    assert (path.w[:, 4].abs() < 1).all()
    assert torch.allclose(path_kl(drift, prior, path, Cut.vertical(*window)), expected, rtol=1e-12)


@pytest.mark.parametrize("off", [5e-3, -5e-3, 1e-4, 1e-5])
def test_a_window_off_the_grid_is_refused(off):
    prior, drift = Brownian(0.5), lambda t, w: 1 + 0 * w
    path = sampled([0.3], drift, prior, Cut.full(), steps=10)
    for window in ((0.3 + off, 1.0), (0.0, 0.3 + off)):
        with pytest.raises(ValueError, match=r"expected a point of the grid, got t=0\.\d+; the nearest is 0\.3"):
            path_kl(drift, prior, path, Cut.vertical(*window))
    # a grid in float32 is rounded by up to 6e-8
    assert path_kl(drift, prior, path, Cut.vertical(0.3 + 6e-8, 1.0)).tolist() == pytest.approx([0.5 * 4 * 0.7] * 3)


def test_kl_does_not_change_with_the_coordinates_of_the_weights():
    # v = M w has drift M f(M^{-1} v) and diffusion M g: the same law, the same noise, the same KL
    M = torch.tensor([[2.0, 1.0], [0.0, 0.5]])
    inverse = torch.linalg.inv(M)
    f_q, f_p = (lambda t, w: torch.tanh(w) + t), (lambda t, w: -w)
    path = sampled([0.3, -0.7], f_q, Prior(f_p, 0.5), Cut.full())
    moved = [(lambda t, v, f=f: f(t, v @ inverse.T) @ M.T) for f in (f_q, f_p)]
    other = sampled((M @ torch.tensor([0.3, -0.7])).tolist(), moved[0], Prior(moved[1], 0.5 * M), Cut.full())
    assert torch.allclose(other.w, path.w @ M.T, atol=1e-12)
    assert torch.allclose(other.kl, path.kl, rtol=1e-10)


@pytest.mark.parametrize("solver", [*GENERAL, "torchsde:srk", "torchsde:reversible_heun", "torchsde:log_ode"])
@pytest.mark.parametrize("cut", [Cut.full(), Cut.vertical(0.3, 0.6, "fixed"), Cut.both(0.2, 0.7, [0, 2])])
def test_kl_is_the_left_point_sum_on_the_path_whatever_the_solver(solver, cut):
    prior = OrnsteinUhlenbeck(sigma=0.4)
    net = (
        (lambda t, w: torch.sin(w) * t)
        if not cut.splits(3)
        else SplitDrift(lambda t, w: torch.sin(w) * t, lambda t, w: torch.cos(w), [0, 2], 3)
    )
    process = WeightProcess(torch.tensor([0.1, 0.2, 0.3]), PriorPlus(prior, net), prior, cut)
    path = process.sample(10, samples=4, generator=seeded(), solver=solver)
    by_hand = torch.zeros(4)
    S = cut.indices(3)
    for k in range(path.steps):
        if cut.t1 <= path.times[k] < cut.t2:
            gap = (process.drift(path.ts[k], path.w[:, k]) - prior.drift(path.ts[k], path.w[:, k]))[:, S]
            by_hand += 0.5 * (gap / 0.4).square().sum(-1) * (path.times[k + 1] - path.times[k])
    assert torch.allclose(path.kl, by_hand, rtol=1e-12)
    assert torch.allclose(path_kl(process.drift, prior, path, cut), path.kl, rtol=1e-12)


def test_kl_carried_as_an_extra_coordinate_is_the_same_number():
    # dk = 1/2 |u|^2 dt as a further deterministic coordinate, integrated by the same Euler steps
    prior, n = Brownian(0.5), 12
    drift = lambda t, w: torch.sin(w) + t  # noqa: E731
    noise = draw(4, n, 1, 1 / n, generator=seeded())
    path = WeightProcess(torch.tensor([0.2]), drift, prior, Cut.full()).sample(n, noise=noise)

    def augmented(t, w):
        f = drift(t, w[..., :1])
        return torch.cat([f, 0.5 * (f / 0.5) ** 2], -1)

    beside = WeightProcess(torch.tensor([0.2, 0.0]), augmented, prior, Cut.horizontal([0]), allow_leak=True).sample(
        n, noise=noise
    )
    assert torch.allclose(beside.w[:, -1, 1], path.kl, rtol=1e-12)
