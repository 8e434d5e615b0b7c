"""Marginal distributions of the priors, and diffusions of every shape."""

import math

import pytest
import torch
from torch import nn

from sdeweights import Brownian, BrownianBridge, Cut, OrnsteinUhlenbeck, Positive, Prior, SplitDrift, WeightProcess
from sdeweights.brownian import draw
from sdeweights.diffusion import Kind, kind_of
from sdeweights.testing import affine_posterior, seeded

N = 100_000  # paths; the standard error of a mean is sd / 316, that of a variance 0.45 %


def ends(prior, w0, steps=64, solver="sra1"):
    process = WeightProcess(torch.tensor(w0), prior.drift, prior, Cut.full())
    with torch.no_grad():
        return process.sample(steps, samples=N, generator=seeded(3), solver=solver).w[:, -1]


@pytest.mark.parametrize(("theta", "mu", "sigma", "w0"), [(1.0, 0.0, 1.0, 0.7), (2.0, -1.0, 0.5, 1.0)])
def test_ornstein_uhlenbeck_marginals(theta, mu, sigma, w0):
    w1 = ends(OrnsteinUhlenbeck(theta, mu, sigma), [w0])
    mean = mu + (w0 - mu) * math.exp(-theta)
    variance = sigma**2 * (1 - math.exp(-2 * theta)) / (2 * theta)
    # 4 standard errors: fails by chance once in 16,000; the scheme's own bias at 64 steps is below 1e-4
    assert w1.mean().item() == pytest.approx(mean, abs=4 * (variance / N) ** 0.5 + 1e-4)
    assert w1.var().item() == pytest.approx(variance, rel=4 * (2 / N) ** 0.5 + 1e-3)


def test_brownian_marginals_are_exact_on_any_grid():
    w1 = ends(Brownian(0.5), [1.0, 2.0], steps=3, solver="euler")
    assert w1.mean(0).tolist() == pytest.approx([1.0, 2.0], abs=4 * 0.5 / N**0.5)
    assert w1.var(0).tolist() == pytest.approx([0.25, 0.25], rel=4 * (2 / N) ** 0.5)


def test_dense_diffusion_has_the_covariance_of_g_g_transposed():
    g = torch.tensor([[1.0, 0.0], [0.6, 0.5]])
    w1 = ends(Brownian(g), [0.0, 0.0], steps=2, solver="euler")
    assert torch.cov(w1.T).flatten().tolist() == pytest.approx((g @ g.T).flatten().tolist(), abs=0.02)


@pytest.mark.parametrize(
    ("g", "kind"),
    [
        (0.5, Kind.SCALAR),
        (torch.tensor(0.5), Kind.SCALAR),
        (torch.tensor([0.5]), Kind.SCALAR),
        (torch.full((3,), 0.5), Kind.DIAGONAL),
        (0.5 * torch.eye(3), Kind.DENSE),
        (lambda t, w: 0.5 + 0 * w, Kind.DIAGONAL),
        (lambda t, w: 0.5 * torch.eye(3).expand(*w.shape, 3), Kind.DENSE),
        (lambda t, w: 0.5, Kind.SCALAR),
    ],
)
@pytest.mark.parametrize("samples", [1, 3, 5])  # 3 samples of 3 weights: (3, 3) must not be mistaken for a matrix
def test_the_same_noise_written_in_any_shape_gives_the_same_path(g, kind, samples):
    prior = Prior(lambda t, w: -w, g)
    w0 = torch.tensor([1.0, 2.0, 3.0])
    assert kind_of(prior.diffusion, torch.tensor(0.0), w0) is kind
    reference = OrnsteinUhlenbeck(sigma=0.5)
    drift = lambda t, w: -w + t  # noqa: E731
    path, expected = (
        WeightProcess(w0, drift, p, Cut.full()).sample(8, samples=samples, generator=seeded())
        for p in (prior, reference)
    )
    assert torch.allclose(path.w, expected.w, rtol=0, atol=1e-12)  # the fast path for constants against the general one
    assert torch.allclose(path.kl, expected.kl, rtol=1e-12)


def test_tensor_valued_priors_are_restricted_to_the_stochastic_coordinates():
    theta, mu, sigma = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, -0.5, 0.1]), torch.tensor([0.1, 0.2, 0.3])
    whole = OrnsteinUhlenbeck(theta, mu, sigma)
    part = whole.restrict(torch.tensor([0, 2]))
    t, w = torch.tensor(0.3), torch.tensor([1.0, 5.0, 2.0])
    assert torch.equal(part.drift(t, w[[0, 2]]), whole.drift(t, w)[[0, 2]])
    assert torch.equal(part.diffusion(t, w[[0, 2]]), sigma[[0, 2]])


def test_prior_that_mixes_coordinates_is_evaluated_along_the_deterministic_ones():
    # g of the stochastic weight equals the deterministic weight e^t, so Var w_S(1) = int e^{2t} = (e^2 - 1) / 2.
    prior = Prior(lambda t, w: 0 * w, lambda t, w: w.flip(-1))
    drift = SplitDrift(lambda t, w: 0 * w, lambda t, w: w, [0], 2)
    process = WeightProcess(torch.tensor([1.0, 1.0]), drift, prior, Cut.horizontal([0]))
    with torch.no_grad():
        path = process.sample(200, samples=20_000, generator=seeded(), ode_solver="rk4")
    assert path.w[0, -1, 1].item() == pytest.approx(math.e, rel=1e-8)
    assert path.w[:, -1, 0].var().item() == pytest.approx((math.e**2 - 1) / 2, rel=0.05)  # 5 standard errors


def test_learned_sigma_is_a_parameter_of_the_process_and_gets_a_gradient():
    sigma = nn.Parameter(torch.tensor(0.5))
    process = WeightProcess(torch.zeros(2), lambda t, w: 1 + 0 * w, Brownian(sigma), Cut.full())
    assert any(p is sigma for p in process.parameters())
    path = process.sample(4, generator=seeded())
    path.kl.sum().backward()
    # KL = 1/2 * 2 / sigma^2, whose derivative is -2 / sigma^3
    assert sigma.grad.item() == pytest.approx(-2 / 0.5**3, rel=1e-12)


@pytest.mark.parametrize(("b", "T", "sigma", "w0"), [(2.0, 1.25, 0.6, 0.0), (-0.5, 3.0, 1.2, 1.0)])
def test_marginals_of_a_brownian_bridge_at_interior_times(b, T, sigma, w0):
    # mean w0 + (b - w0) t / T, variance sigma^2 t (T - t) / T; 50,000 paths, 4.5 standard errors for each of
    # 8 numbers: fails by chance once in 18,000. The bias of sra1 with 64 steps is below 2e-4 of either
    n = 50_000
    process = WeightProcess(torch.tensor([w0]), (prior := BrownianBridge(b, T, sigma)).drift, prior, Cut.full())
    with torch.no_grad():
        path = process.sample(64, n, generator=seeded(4), solver="sra1")
    for t in (0.25, 0.5, 0.75, 1.0):
        w, mean, variance = path.at(t)[:, 0], w0 + (b - w0) * t / T, sigma**2 * t * (T - t) / T
        assert w.mean().item() == pytest.approx(mean, abs=4.5 * (variance / n) ** 0.5 + 1e-3)
        assert w.var().item() == pytest.approx(variance, rel=4.5 * (2 / n) ** 0.5 + 2e-3)
    assert (path.kl == 0).all()


def test_euler_steps_of_a_bridge_have_the_exact_mean_and_the_variance_of_their_chain():
    # b - w shrinks by (T - t1) / (T - t) per step, a telescoping product; noise of step k shrinks from its right end
    b, T, sigma, n = torch.tensor([2.0, -1.0]), 1.1, 0.3, 5
    prior = BrownianBridge(b, T, sigma)
    process = WeightProcess(torch.tensor([0.5, 0.2]), prior.drift, prior, Cut.full())
    noise = draw(3, n, 2, 1 / n, generator=seeded())
    path = process.sample(n, noise=noise)
    right = torch.tensor([T - (k + 1) / n for k in range(n)])[:, None]
    for k in range(1, n + 1):
        mean = process.w0 + (b - process.w0) * (k / n) / T
        rest = (sigma * noise.dB[:, :k] * (T - k / n) / right[:k]).sum(1)
        torch.testing.assert_close(path.w[:, k], mean + rest, rtol=1e-12, atol=1e-12)


def test_kl_between_two_bridges_with_different_ends():
    # the gap is (b_q - b_p) / (T - t): KL = 1/2 sum ((b_q - b_p) / sigma)^2 dt / (T - t_k)^2
    T, sigma, n = 1.5, 0.4, 6
    prior = BrownianBridge(0.2, T, sigma)
    process = WeightProcess(torch.zeros(1), BrownianBridge(1.0, T, sigma).drift, prior, Cut.full())
    expected = 0.5 * (0.8 / sigma) ** 2 * sum(1 / n / (T - k / n) ** 2 for k in range(n))
    assert process.sample(n, 3, generator=seeded()).kl.tolist() == pytest.approx([expected] * 3, rel=1e-12)


def test_a_bridge_is_restricted_to_coordinates_described_and_trained():
    bridge = BrownianBridge(torch.tensor([1.0, 2.0, 3.0]), 2.0, Positive(0.5))
    part, t, w = bridge.restrict(torch.tensor([0, 2])), torch.tensor(0.5), torch.tensor([1.0, 5.0, 2.0])
    assert torch.equal(part.drift(t, w[[0, 2]]), bridge.drift(t, w)[[0, 2]])
    assert BrownianBridge(1.0, 1.25, 0.5).description == "BrownianBridge(b=1, T=1.25, sigma=0.5)"
    assert repr(BrownianBridge(1.0, 1.25, Positive(0.5))) == "BrownianBridge(b=1, T=1.25, sigma=Positive(0.5))"
    path = WeightProcess(torch.zeros(3), lambda t, w: 0 * w, bridge, Cut.full()).sample(4, generator=seeded())
    (gradient,) = torch.autograd.grad(path.kl.sum(), list(bridge.parameters()))
    assert gradient != 0


def test_the_fused_scheme_refuses_a_bridge():
    prior = BrownianBridge()
    process = WeightProcess(torch.zeros(2), affine_posterior(prior, Cut.full(), 2), prior, Cut.full())
    with pytest.raises(ValueError, match="expected an OrnsteinUhlenbeck or Brownian prior .* for fused-euler"):
        process.sample(4, solver="fused-euler")


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"T": 1.0}, "expected a finite time T > 1, since the drift is infinite at T, got 1.0"),
        ({"T": 0.5}, "expected a finite time T > 1, .*, got 0.5"),
        ({"T": math.nan}, "expected a finite time T > 1, .*, got nan"),
        ({"T": math.inf}, "expected a finite time T > 1, .*, got inf"),
        ({"T": "2"}, "expected a finite time T > 1, .*, got '2'"),
        ({"b": math.nan}, "expected the end b to be finite, got nan"),
        ({"b": torch.tensor([0.0, math.inf])}, "expected the end b to be finite, got inf"),
        ({"sigma": 0.0}, "expected sigma to be positive, got 0"),
        ({"sigma": torch.tensor([1.0, -2.0])}, "expected sigma to be positive, got -2"),
    ],
)
def test_bad_bridges_are_refused_in_one_line(how, message):
    with pytest.raises(ValueError, match=message) as caught:
        BrownianBridge(**how)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("solver", ["euler", "heun", "midpoint", "torchsde:midpoint"])
def test_noise_scaled_by_a_deterministic_weight_follows_that_weight_inside_a_step(solver):
    # w_D = 1 + 2 t exactly, g_S = w_D: dw_S = w_D dB with w_D half-way (midpoint) or the mean of both ends (Heun)
    prior = Prior(lambda t, w: 0 * w, lambda t, w: torch.stack([w[..., 1], torch.ones_like(w[..., 1])], -1))
    drift = SplitDrift(lambda t, w: 0 * w, lambda t, w: 2 + 0 * w, [0], 2)
    process = WeightProcess(torch.tensor([0.0, 1.0]), drift, prior, Cut.horizontal([0]))
    steps, dt = 5, 0.2
    noise = draw(3, steps, 1, dt, generator=seeded())
    path = process.sample(steps, noise=noise, solver=solver)
    left = 1 + 2 * dt * torch.arange(steps)
    right = left + 2 * dt
    factor = {"euler": left, "heun": (left + right) / 2}.get(solver, left + dt)
    expected = factor * noise.dB[..., 0]
    assert torch.allclose(path.w[:, 1:, 0], expected.cumsum(-1), rtol=0, atol=1e-12)
    assert torch.allclose(path.w[0, :, 1], 1 + 2 * path.ts, atol=1e-14)


def test_prior_drift_that_mixes_coordinates_is_compared_at_the_left_end_of_each_step():
    # f_q - f_p = -w_D with w_D = 1 + 2 t: KL = 1/2 sum (1 + 2 t_k)^2 dt
    prior = Prior(lambda t, w: w.flip(-1), 1.0)
    drift = SplitDrift(lambda t, w: 0 * w, lambda t, w: 2 + 0 * w, [0], 2)
    path = WeightProcess(torch.tensor([0.0, 1.0]), drift, prior, Cut.horizontal([0])).sample(5, 3, generator=seeded())
    expected = sum(0.5 * (1 + 2 * t) ** 2 * 0.2 for t in (0.0, 0.2, 0.4, 0.6, 0.8))
    assert path.kl.tolist() == pytest.approx([expected] * 3, rel=1e-12)


def test_repr_shows_the_numbers_of_a_prior_and_of_a_process():
    assert repr(OrnsteinUhlenbeck(theta=2.0, sigma=0.5)) == "OrnsteinUhlenbeck(theta=2, mu=0, sigma=0.5)"
    assert repr(Brownian(torch.ones(3))) == "Brownian(sigma=<3 values>)"
    process = WeightProcess(
        torch.zeros(4), lambda t, w: -w, Brownian(0.1), Cut.both(0.5, 1, [0], "continue"), allow_leak=True
    )
    assert "d=4, stochastic=1, cut=Cut(t1=0.5, t2=1.0, stochastic=(0,)" in repr(process)
    assert "Brownian(sigma=0.1)" in repr(process)


def test_the_description_of_a_prior_names_its_constants_and_functions():
    assert OrnsteinUhlenbeck(2, 0.5, 0.1).description == "OrnsteinUhlenbeck(theta=2, mu=0.5, sigma=0.1)"
    assert Brownian(torch.tensor(0.2, dtype=torch.float32)).description == "Brownian(sigma=0.2)"
    assert Prior(draw, seeded).description == "Prior(drift=draw, diffusion=seeded)"
    assert Prior(nn.Identity(), 0.25).description == "Prior(drift=Identity, sigma=0.25)"


def test_the_description_of_a_prior_tells_fixed_tensors_apart_and_ignores_trainable_values():
    texts = {OrnsteinUhlenbeck(sigma=torch.full((3,), s)).description for s in (0.1, 0.2, 0.3)}
    assert len(texts) == 3
    assert OrnsteinUhlenbeck(sigma=torch.full((3,), 0.1)).float().description in texts  # in any precision
    trainable = {OrnsteinUhlenbeck(sigma=nn.Parameter(torch.full((3,), s))).description for s in (0.1, 0.2)}
    assert trainable == {"OrnsteinUhlenbeck(theta=1, mu=0, sigma=<3 trainable>)"}
