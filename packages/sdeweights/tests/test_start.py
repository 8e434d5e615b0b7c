"""A Gaussian w_0: its KL, its gradients, seeds, and bounds on the log evidence, compared with closed forms."""

import math

import pytest
import torch
from torch import distributions

from sdeweights import (
    Brownian,
    Cut,
    GaussianStart,
    LogNormal,
    OrnsteinUhlenbeck,
    Prior,
    SplitDrift,
    WeightPath,
    WeightProcess,
    flow,
    importance_bound,
    path_kl,
    shared_prefix,
)
from sdeweights.brownian import draw
from sdeweights.gaussian import Gaussian
from sdeweights.grid import Grid
from sdeweights.hidden import SCHEMES
from sdeweights.testing import affine_posterior, random_posterior, seeded

D = 3
W0 = torch.tensor([0.4, -0.7, 0.2], dtype=torch.float64)
STD = torch.tensor([0.3, 0.1, 0.6], dtype=torch.float64)
PRIOR_MEAN = torch.tensor([0.1, 0.0, -0.3], dtype=torch.float64)
START = GaussianStart(STD, PRIOR_MEAN, 0.5)
PRIOR = OrnsteinUhlenbeck(theta=0.7, mu=0.1, sigma=0.4)
CUTS = [Cut.none(), Cut.full(), Cut.ode_first(0.4), Cut.vertical(0.2, 0.6, "fixed"), Cut.vertical(0.2, 0.6, "learned"),
        Cut.horizontal([0, 2]), Cut.both(0.2, 0.6, [1], "learned")]  # fmt: skip


def process_of(cut=CUTS[1], start=START, prior=PRIOR):
    return WeightProcess(W0, random_posterior(prior, cut, D), prior, cut, start=start)


def laws():
    """The posterior and the prior of w_0 in torch.distributions."""
    return distributions.Normal(W0, STD), distributions.Normal(PRIOR_MEAN, 0.5)


def expected_kl():
    return distributions.kl_divergence(*laws()).sum()


def test_kl_and_log_ratio_are_those_of_torch_distributions():
    q, p = laws()
    law = Gaussian(W0, STD.log(), PRIOR_MEAN, torch.full((D,), 0.5).log())
    x = torch.randn(5, D, generator=seeded())
    torch.testing.assert_close(law.kl(), expected_kl(), rtol=1e-13, atol=0)
    torch.testing.assert_close(law.log_ratio(x), (q.log_prob(x) - p.log_prob(x)).sum(-1), rtol=1e-12, atol=1e-12)
    assert torch.equal(law.log_ratio(x, detached=True), law.log_ratio(x))


def test_the_kl_of_two_equal_laws_is_exactly_zero():
    scale = torch.tensor([0.3, 1e-8, 1e8]).log()
    assert Gaussian(W0, scale, W0, scale).kl() == 0


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_the_kl_of_w0_is_added_to_that_of_the_path_exactly_once(euler, cut):
    process = process_of(cut)
    path = process.sample(10, 4, generator=seeded(), **euler)
    along = path_kl(process.drift, process.prior, path, cut)
    torch.testing.assert_close(path.kl_start, expected_kl(), rtol=1e-12, atol=0)
    torch.testing.assert_close(path.kl, along + expected_kl(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_a_sample_is_the_path_of_a_process_that_starts_at_its_w0(euler, cut):
    process = process_of(cut)
    sde = Grid.of(cut, 10).sde
    noise = None if sde is None else draw(3, sde.steps, len(process.S), (sde.stop - sde.start) / sde.steps)
    path = process.sample(10, 3, noise=noise, generator=seeded(), **euler)
    for i in range(3):
        w_t2 = process.w_t2 if cut.resets else None
        alone = WeightProcess(path.w[i, 0].detach(), process.drift, PRIOR, cut, w_t2=w_t2)
        own = None if noise is None else noise._replace(dB=noise.dB[i : i + 1])
        expected = alone.sample(10, noise=own)
        torch.testing.assert_close(path.w[i], expected.w[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(path.kl[i] - path.kl_start, expected.kl[0], rtol=1e-11, atol=1e-13)
        if cut.resets:
            torch.testing.assert_close(path.after_reset[i], expected.after_reset[0], rtol=1e-12, atol=1e-12)


def test_a_prior_that_mixes_coordinates_follows_the_deterministic_weights_of_each_sample():
    # w_D = w_D(0) exactly, g_S = w_D and f_p = w_D: w_S(1) = w_S(0) + w_D B(1), KL = 1/2 (w_D / w_D)^2
    prior = Prior(lambda t, w: w.flip(-1), lambda t, w: w.flip(-1))
    drift = SplitDrift(lambda t, w: 0 * w, lambda t, w: 0 * w, [0], 2)
    process = WeightProcess(torch.tensor([1.0, 3.0]), drift, prior, Cut.horizontal([0]), start=GaussianStart(0.2))
    noise = draw(4, 5, 1, 0.2, generator=seeded())
    path = process.sample(5, noise=noise, generator=seeded(1))
    S, D = path.w[:, 0].unbind(-1)
    torch.testing.assert_close(path.w[:, -1, 0], S + D * noise.dB.sum((1, 2)), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(path.kl - path.kl_start, torch.full((4,), 0.5), rtol=1e-12, atol=1e-12)
    assert D.std() > 0.05


def test_samples_of_a_deterministic_cut_differ_and_have_the_law_of_w0():
    n = 40_000  # 4 standard errors for each of 6 numbers: fails by chance once in 2,600
    process = WeightProcess(W0, lambda t, w: -w, Brownian(), Cut.none(), start=START)
    with torch.no_grad():
        path = process.sample(4, n, generator=seeded())
    assert torch.all((path.w[:, 0].mean(0) - W0).abs() < 4 * STD / n**0.5)
    assert torch.all((path.w[:, 0].std(0) / STD - 1).abs() < 4 / (2 * n) ** 0.5)
    torch.testing.assert_close(path.w[:, -1], 0.75**4 * path.w[:, 0], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("solver", ["euler", "sra1"])
def test_sample_i_depends_on_the_seed_and_on_i_alone(cut, solver):
    process = process_of(cut)
    few, many = (process.sample(10, samples, generator=seeded(7), solver=solver) for samples in (2, 6))
    assert torch.equal(many.w[:2, 0], few.w[:, 0])
    torch.testing.assert_close(many.w[:2], few.w, rtol=1e-13, atol=1e-13)  # matrix products round by their shape
    generator = seeded(7)
    parts = [process.sample(10, 3, generator=generator, solver=solver) for _ in range(2)]
    torch.testing.assert_close(torch.cat([part.w for part in parts]), many.w, rtol=1e-13, atol=1e-13)
    assert torch.equal(process.sample(10, 2, generator=seeded(7), solver=solver).w, few.w)
    assert not torch.equal(process.sample(10, 2, generator=seeded(8), solver=solver).w[:, 0], few.w[:, 0])
    assert len({w.item() for w in many.w[:, 0, 0]}) == 6


def test_the_number_of_normals_is_counted():
    assert process_of(Cut.none()).sample(10, 4, generator=seeded()).gaussians == 4 * D
    assert process_of(Cut.full()).sample(10, 4, generator=seeded()).gaussians == 4 * (D + 10 * D)


def test_samples_share_nothing():
    path = process_of(Cut.ode_first(0.4)).sample(10, 3, generator=seeded())
    assert path.shared == -1
    f_h, h0 = (lambda t, h, w: w * h), torch.ones(D)
    assert shared_prefix(f_h, h0, path).steps == shared_prefix(f_h, h0, path, "rk4").steps == 0


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
@pytest.mark.parametrize("method", SCHEMES)
def test_hidden_states_of_all_samples_are_those_of_each_alone(method, gradient, vectorize):
    path = process_of(Cut.ode_first(0.4)).sample(5, 4, generator=seeded())
    f_h, h0 = (lambda t, h, w: torch.sin(w * h) + t), torch.linspace(-1, 1, 2 * D).view(2, D)
    expected = torch.cat([flow(f_h, h0, path[i], method, gradient) for i in range(4)])
    found = flow(f_h, h0, path, method, gradient, vectorize=vectorize)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)
    prefix = shared_prefix(f_h, h0, path, method, gradient)
    torch.testing.assert_close(flow(f_h, prefix, path, method, gradient), expected, rtol=1e-13, atol=1e-13)


def test_the_adjoint_follows_the_start_of_each_sample():
    process = process_of(Cut.ode_first(0.4))
    f_h, h0 = (lambda t, h, w: torch.sin(w * h) + t), torch.linspace(-1, 1, 2 * D).view(2, D)
    gradients = []
    for gradient in ("backprop", "adjoint"):
        h1 = flow(f_h, h0, process.sample(5, 4, generator=seeded()), "reversible_heun", gradient)
        gradients.append(torch.autograd.grad(h1.square().sum(), [process.w0, process.start.log_std]))
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)  # states recomputed backward


def test_a_path_built_by_hand_with_samples_that_start_differently():
    w = torch.randn(3, 4, D, generator=seeded())
    path = WeightPath(torch.linspace(0, 1, 4), w, torch.zeros(3))
    f_h, h0 = (lambda t, h, w: torch.sin(w * h)), torch.ones(2, D)
    alone = torch.cat([flow(f_h, h0, path[i], "reversible_heun") for i in range(3)])
    torch.testing.assert_close(flow(f_h, h0, path, "reversible_heun"), alone, rtol=1e-13, atol=0)


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_the_mean_path_starts_at_the_mean(euler, cut):
    process = process_of(cut)
    path = process.mean_path(10, **euler)
    fixed = WeightProcess(W0, process.drift, PRIOR, cut).mean_path(10, **euler)
    assert torch.equal(path.w[0, 0], W0)
    torch.testing.assert_close(path.w, fixed.w, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(path.kl, fixed.kl + expected_kl(), rtol=1e-12, atol=1e-12)


def test_gradients_of_path_and_kl_have_closed_forms(euler):
    # w(1) = q^n (m + s z) with f_q = f_p = -w: dw(1)/dm = q^n, dw(1)/ds = q^n z; dKL/dm = (m - m_p) / s_p^2,
    # dKL/ds = s / s_p^2 - 1 / s, times s for the logarithm of s
    n, q = 5, 0.8
    prior = OrnsteinUhlenbeck(sigma=0.3)
    process = WeightProcess(W0, affine_posterior(prior, Cut.none(), D), prior, Cut.none(), start=START)
    parameters = [process.w0, process.start.log_std]
    path = process.sample(n, 4, generator=seeded(), **euler)
    z = (path.w[:, 0].detach() - W0) / STD
    for gradient, expected in zip(
        torch.autograd.grad(path.w[:, -1].sum(), parameters, retain_graph=True),
        (torch.full((D,), 4 * q**n), q**n * STD * z.sum(0)),
        strict=True,
    ):
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-13)
    for gradient, expected in zip(
        torch.autograd.grad(path.kl.mean(), parameters),
        ((W0 - PRIOR_MEAN) / 0.25, STD * (STD / 0.25 - 1 / STD)),
        strict=True,
    ):
        torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("cut", [Cut.none(), Cut.vertical(0.3, 0.7), Cut.both(0.3, 0.7, [0, 2], "learned")], ids=str)
def test_gradients_equal_finite_differences(euler, cut):
    process = process_of(cut)
    names = ("w0", "start.log_std")

    def numbers(*tensors):
        how = {"generator": seeded(), **euler}
        path = torch.func.functional_call(process, dict(zip(names, tensors, strict=True)), (4, 2), how)
        return path.w, path.kl

    values = tuple(process.get_parameter(name).detach().clone().requires_grad_() for name in names)
    assert torch.autograd.gradcheck(numbers, values)


# --- bounds on the log evidence of y ~ N(w_1(first weight), WIDTH^2)

Y, WIDTH, STEPS = 0.8, 0.4, 5


def log_likelihood(path):
    return distributions.Normal(path.w[:, -1, 0], WIDTH).log_prob(torch.tensor(Y))


def exact_process():
    """w_1 = a w_0 without noise; q(w_0) is the posterior of w_0 given y, in closed form."""
    a, m_p, s_p = (1 - 1 / STEPS) ** STEPS, 0.3, 0.6
    precision = 1 / s_p**2 + a**2 / WIDTH**2
    mean = (m_p / s_p**2 + a * Y / WIDTH**2) / precision
    start = GaussianStart(precision**-0.5, m_p, s_p)
    process = WeightProcess(torch.tensor([mean]), lambda t, w: -w, OrnsteinUhlenbeck(), Cut.none(), start=start)
    evidence = distributions.Normal(a * m_p, math.hypot(a * s_p, WIDTH)).log_prob(torch.tensor(Y)).item()
    return process, evidence


@pytest.mark.parametrize("samples", [1, 7])
def test_with_the_exact_posterior_of_w0_the_importance_bound_is_the_log_evidence(samples):
    process, evidence = exact_process()
    path = process.sample(STEPS, samples, generator=seeded())
    each = log_likelihood(path) - path.log_ratio
    assert each.tolist() == pytest.approx([evidence] * samples, rel=1e-12)  # log p(y, w) - log q(w) is constant
    assert importance_bound(log_likelihood(path), path.log_ratio).item() == pytest.approx(evidence, rel=1e-12)


def test_with_the_exact_posterior_of_w0_the_expected_elbo_is_the_log_evidence():
    # E log p(y | w) = log N(y; a m, WIDTH^2) - (a s)^2 / (2 WIDTH^2)
    process, evidence = exact_process()
    mean = process.mean_path(STEPS)
    spread = (1 - 1 / STEPS) ** STEPS * process.start.log_std.exp().item()
    expected = log_likelihood(mean).item() - spread**2 / (2 * WIDTH**2)
    assert expected - mean.kl.item() == pytest.approx(evidence, rel=1e-12)


def test_sticking_the_landing_has_no_variance_at_the_exact_posterior_of_w0():
    process, _ = exact_process()
    parameters = [process.w0, process.start.log_std]
    path = process.sample(STEPS, 4, generator=seeded())
    for i in range(4):
        for kl, quiet in ((path.kl_stl, True), (path.kl, False)):
            gradients = torch.autograd.grad((kl - log_likelihood(path))[i], parameters, retain_graph=True)
            assert (max(float(g.abs().max()) for g in gradients) < 1e-12) == quiet


@pytest.mark.parametrize("cut", [Cut.full(), Cut.ode_first(0.4), Cut.horizontal([0, 2])], ids=str)
@pytest.mark.parametrize("random_theta", [False, True])
def test_the_mean_of_the_inverse_density_ratio_is_one(euler, cut, random_theta):
    prior = OrnsteinUhlenbeck(LogNormal(0.7, 0.3) if random_theta else 0.7, 0.1, 0.6)
    drift = affine_posterior(prior, cut, D, constant=0.2, matrix=-0.3)
    process = WeightProcess(0.5 * W0, drift, prior, cut, start=GaussianStart(0.4, 0.1, 0.5))
    with torch.no_grad():
        path = process.sample(STEPS, 40_000, generator=seeded(), **euler)
        weights = (-path.log_ratio).exp()
    assert path.kl_start > 0.05
    assert (path.kl - path.kl_start).mean() > 0.02
    # 4.5 standard errors: fails by chance once in 150,000
    assert abs(weights.mean() - 1) < 4.5 * weights.std() / math.sqrt(len(weights))
    error = path.log_ratio.std() / math.sqrt(len(weights))
    assert abs(path.log_ratio.mean() - path.kl.mean()) < 4.5 * error


def test_the_bound_rises_to_the_log_evidence_of_the_linear_gaussian_model(euler):
    # prior: w_0 ~ N(0.3, 0.5^2), then Euler steps of Ornstein-Uhlenbeck, so w_1 is normal
    q, m_p, s_p, sigma = 1 - 0.7 / STEPS, 0.3, 0.5, 0.6
    prior = OrnsteinUhlenbeck(0.7, 0.0, sigma)
    drift = affine_posterior(prior, Cut.full(), 1, constant=0.3)
    process = WeightProcess(torch.tensor([0.5]), drift, prior, Cut.full(), start=GaussianStart(0.4, m_p, s_p))
    with torch.no_grad():
        path = process.sample(STEPS, 65_536, generator=seeded(), **euler)
        terms = log_likelihood(path) - path.log_ratio
    variance = q ** (2 * STEPS) * s_p**2 + sigma**2 / STEPS * sum(q ** (2 * k) for k in range(STEPS)) + WIDTH**2
    evidence = distributions.Normal(q**STEPS * m_p, variance**0.5).log_prob(torch.tensor(Y)).item()
    means = []
    for k in (1, 4, 64, 1024):
        bounds = torch.vmap(importance_bound, in_dims=(0, None))(terms.view(-1, k), torch.zeros(k))
        means.append(bounds.mean().item())
    assert means == sorted(means)
    assert means[1] - means[0] > 0.01
    # 65,536 weights with a standard deviation of about their mean: 0.02 is 5 standard errors, once in 1,000,000
    assert abs(means[-1] - evidence) < 0.02
    elbo = (log_likelihood(path) - path.kl).mean().item()
    assert elbo < evidence
    assert abs(means[0] - elbo) < 0.02


# --- a module like any other


def test_a_fixed_w0_draws_nothing_and_has_no_part_in_the_kl():
    path = process_of(start=None).sample(10, 2, generator=seeded())
    assert path.kl_start is None
    assert path.latents == ()
    assert path.shared == 0


def test_the_standard_deviation_is_trained_and_saved_and_moves():
    process = process_of()
    assert any(p is process.start.log_std for p in process.parameters())
    other = process_of(start=GaussianStart(0.9, PRIOR_MEAN, 0.5))
    other.load_state_dict(process.state_dict())
    torch.testing.assert_close(other.start.log_std, STD.log(), rtol=0, atol=0)
    path = other.float().sample(4, 2, generator=seeded())
    assert path.w.dtype == path.kl.dtype == torch.float32
    assert "GaussianStart(prior_mean=<3 values" in repr(other)


def test_slices_keep_their_part_of_the_ratio():
    path = process_of().sample(4, 6, generator=seeded())
    torch.testing.assert_close(path[2:4].log_ratio, path.log_ratio[2:4])
    torch.testing.assert_close(path[1].kl_stl, path.kl_stl[1:2])
    assert path[1].kl_start == path.kl_start


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: GaussianStart(0.0), "expected the std of w_0 to be positive, got 0"),
        (lambda: GaussianStart(float("nan")), "expected the std of w_0 to be finite, got nan"),
        (lambda: GaussianStart(0.1, math.inf), "expected the prior_mean of w_0 to be finite, got inf"),
        (lambda: GaussianStart(0.1, 0.0, -1.0), "expected the prior_std of w_0 to be positive, got -1"),
        (lambda: GaussianStart("0.1"), "expected the std of w_0 to be a number .*, got str"),
        (lambda: GaussianStart(0.1, "0"), "expected the prior_mean of w_0 to be a number .*, got str"),
        (lambda: process_of(start=GaussianStart(torch.ones(2))), r"expected std of shape \(\) or \(3,\) like w0"),
        (lambda: process_of(start=0.1), "expected start to be a GaussianStart, got float"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
