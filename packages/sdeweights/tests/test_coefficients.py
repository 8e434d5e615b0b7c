"""Trained and random coefficients of a prior: values, gradients and KL compared with closed forms."""

import copy
import math

import pytest
import torch
from torch import distributions, nn

from sdeweights import (
    Brownian,
    Cut,
    LogNormal,
    OrnsteinUhlenbeck,
    Positive,
    Prior,
    PriorPlus,
    WeightProcess,
    path_action,
    path_kl,
)
from sdeweights.brownian import draw
from sdeweights.testing import affine_posterior, random_posterior, seeded

W0 = torch.tensor([1.0, -0.5, 0.3], dtype=torch.float64)
GAP = torch.tensor([0.3, 0.4, -0.2], dtype=torch.float64)
SIGMAS = {"number": torch.tensor(0.5).double(), "vector": torch.tensor([0.5, 2.0, 0.7]).double()}
LENGTHS = [(Cut.full(), 1.0), (Cut.ode_first(0.3), 0.3), (Cut.vertical(0.2, 0.6, "learned"), 0.4)]


def affine_process(prior, cut, **net):
    return WeightProcess(W0, affine_posterior(prior, cut, 3, **net), prior, cut)


def random_process(prior, cut=LENGTHS[0][0], d=3, **how):
    return WeightProcess(torch.linspace(-1, 1, d), random_posterior(prior, cut, d), prior, cut, **how)


def moved(latent, mean, spread):
    """A random coefficient whose posterior differs from its hyper-prior."""
    with torch.no_grad():
        latent.mean.fill_(mean)
        latent.log_std.fill_(math.log(spread))
    return latent


# --- trained and positive


@pytest.mark.parametrize("sigma", SIGMAS.values(), ids=SIGMAS)
@pytest.mark.parametrize(("cut", "length"), LENGTHS)
def test_the_derivative_of_the_kl_in_sigma_is_minus_the_squared_gap_over_sigma_cubed(euler, cut, length, sigma):
    # KL = 1/2 sum c_i^2 length / sigma_i^2, dKL/dsigma_i = -c_i^2 length / sigma_i^3, times sigma for its logarithm
    prior = OrnsteinUhlenbeck(2.0, 1.0, Positive(sigma))
    path = affine_process(prior, cut, constant=GAP).sample(20, 3, generator=seeded(), **euler)
    assert path.kl.tolist() == pytest.approx([0.5 * float((GAP**2 / sigma**2).sum()) * length] * 3, rel=1e-12)
    (gradient,) = torch.autograd.grad(path.kl.mean(), prior._diffusion.value.log)
    expected = -(GAP**2) * length / sigma**3
    torch.testing.assert_close(gradient / sigma, expected if sigma.ndim else expected.sum(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("cut", [Cut.horizontal([0, 2]), Cut.both(0.25, 0.75, [0, 2])])
def test_only_the_noisy_coordinates_count_in_the_derivative_of_the_kl(euler, cut):
    prior = Brownian(Positive(SIGMAS["vector"]))
    path = affine_process(prior, cut, constant=GAP).sample(8, 2, generator=seeded(), **euler)
    (gradient,) = torch.autograd.grad(path.kl.mean(), prior._diffusion.value.log)
    expected = -(GAP**2) * (cut.t2 - cut.t1) / SIGMAS["vector"] ** 2 * torch.tensor([1.0, 0.0, 1.0])
    torch.testing.assert_close(gradient, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("sigma", SIGMAS.values(), ids=SIGMAS)
def test_the_derivative_of_the_end_of_a_brownian_path_in_sigma_is_the_noise(euler, sigma):
    # w(1) = w0 + c + sigma B(1), so dw(1)/dsigma = B(1)
    prior = Brownian(Positive(sigma))
    noise = draw(2, 6, 3, 1 / 6, generator=seeded())
    path = affine_process(prior, Cut.full(), constant=GAP).sample(6, noise=noise, **euler)
    B = noise.dB.sum(1)
    torch.testing.assert_close(path.w[:, -1], W0 + GAP + sigma * B, rtol=1e-13, atol=1e-13)
    (gradient,) = torch.autograd.grad(path.w[:, -1].sum(), prior._diffusion.value.log)
    expected = B.sum(0) if sigma.ndim else B.sum()
    torch.testing.assert_close(gradient / sigma, expected, rtol=1e-12, atol=1e-13)


def test_the_derivative_of_the_end_of_an_ornstein_uhlenbeck_path_in_sigma_and_theta(euler):
    # Euler: w(1) = q^n w0 + sum_k q^(n-1-k) sigma dB_k with q = 1 - theta dt, and mu = 0
    n, theta, sigma = 5, 0.7, 0.4
    prior = OrnsteinUhlenbeck(Positive(theta), 0.0, Positive(sigma))
    noise = draw(2, n, 3, 1 / n, generator=seeded())
    path = affine_process(prior, Cut.full()).sample(n, noise=noise, **euler)
    q, powers = 1 - theta / n, torch.arange(n - 1, -1, -1.0)[:, None]
    decayed = (q**powers * noise.dB).sum(1)
    torch.testing.assert_close(path.w[:, -1], q**n * W0 + sigma * decayed, rtol=1e-12, atol=1e-13)
    drift, diffusion = prior._drift.theta.value.log, prior._diffusion.value.log
    to_theta, to_sigma = torch.autograd.grad(path.w[:, -1].sum(), (drift, diffusion))
    slope = n * q ** (n - 1) * W0 + sigma * (powers * q ** (powers - 1) * noise.dB).sum(1)  # d/dq
    torch.testing.assert_close(to_theta, theta * (-1 / n) * slope.sum(), rtol=1e-12, atol=0)
    torch.testing.assert_close(to_sigma, sigma * decayed.sum(), rtol=1e-12, atol=0)


PRIORS = {
    "sigma": lambda: OrnsteinUhlenbeck(0.7, 0.3, Positive(torch.tensor(0.5))),
    "sigma per coordinate": lambda: OrnsteinUhlenbeck(0.7, 0.3, Positive(torch.tensor([0.5, 0.8, 0.3]))),
    "theta and sigma": lambda: OrnsteinUhlenbeck(Positive(torch.tensor(0.7)), 0.3, Positive(torch.tensor(0.4))),
    "Brownian": lambda: Brownian(Positive(torch.tensor(0.5))),
    "random theta": lambda: OrnsteinUhlenbeck(moved(LogNormal(0.8, 0.4), -0.1, 0.3), 0.3, 0.5),
    "random sigma": lambda: OrnsteinUhlenbeck(0.7, 0.3, moved(LogNormal(0.5, 0.3), -0.8, 0.2)),
    "both random": lambda: OrnsteinUhlenbeck(LogNormal(0.8, 0.4), 0.3, LogNormal(torch.tensor([0.5, 0.8, 0.3]), 0.2)),
}


@pytest.mark.parametrize("cut", [Cut.vertical(0.3, 0.7), Cut.both(0.3, 0.7, [0, 2])])
@pytest.mark.parametrize("name", PRIORS)
def test_gradients_of_path_and_kl_equal_finite_differences(euler, name, cut):
    process = random_process(PRIORS[name](), cut)
    # those of the net are compared with the plain scheme and with finite differences in test_fused.py
    names, values = zip(*((k, p) for k, p in process.named_parameters() if ".net." not in k), strict=True)

    def numbers(*tensors):
        how = {"generator": seeded(), **euler}
        path = torch.func.functional_call(process, dict(zip(names, tensors, strict=True)), (4, 2), how)
        return path.w, path.kl

    assert torch.autograd.gradcheck(numbers, tuple(v.detach().clone().requires_grad_() for v in values))


def test_prior_and_posterior_share_one_parameter():
    prior = OrnsteinUhlenbeck(sigma=Positive(0.3))
    process = random_process(prior)
    own = prior._diffusion.value.log
    assert sum(p is own for p in process.parameters()) == 1
    assert process.drift.prior._diffusion.value.log is own
    twin = copy.deepcopy(process)
    assert twin.prior._diffusion.value.log is twin.drift.prior._diffusion.value.log is not own


def test_sigma_stays_positive_whatever_the_optimiser_does():
    prior = Brownian(Positive(0.3))
    process = random_process(prior)
    optimizer = torch.optim.SGD(prior.parameters(), lr=1.0)
    for sign in (1, -1, -1, 1):
        (10 * sign * prior.sigma).backward()
        optimizer.step()
        assert prior.sigma > 0
        optimizer.zero_grad()
    assert process.sample(3, generator=seeded()).w.isfinite().all()


def test_a_trained_sigma_minimises_the_kl_of_a_noisy_target():
    # KL of N(., sigma^2 dt) chains with a gap c falls as 1 / sigma^2; with a penalty sigma^2 the minimum of
    # c^2 / (2 sigma^2) + sigma^2 / 2 is at sigma = sqrt(c)
    prior = Brownian(Positive(0.5))
    process = WeightProcess(W0[:1], affine_posterior(prior, Cut.full(), 1, constant=0.49), prior, Cut.full())
    optimizer = torch.optim.Adam(prior.parameters(), lr=0.05)
    for _ in range(400):
        optimizer.zero_grad()
        (process.sample(2, generator=seeded()).kl.mean() + prior.sigma**2 / 2).backward()
        optimizer.step()
    assert prior.sigma.item() == pytest.approx(0.7, rel=1e-4)


def test_a_saved_state_holds_the_trained_and_random_coefficients():
    one, two = (random_process(OrnsteinUhlenbeck(LogNormal(1.0, s), 0.0, Positive(s))) for s in (0.3, 0.5))
    two.load_state_dict(one.state_dict())
    assert two.prior.sigma.item() == pytest.approx(0.3)
    assert two.prior.latents[0].log_std.item() == pytest.approx(math.log(0.3))
    assert two.prior.latents[0].prior_log_std.item() == pytest.approx(math.log(0.5))  # the hyper-prior is not trained


def test_coefficients_move_with_the_process():
    process = random_process(OrnsteinUhlenbeck(LogNormal(), 0.0, Positive(0.3))).float()
    assert {x.dtype for x in [*process.prior.parameters(), *process.prior.buffers()]} == {torch.float32}
    path = process.sample(4, 2, generator=seeded())
    assert path.w.dtype == path.kl.dtype == path.latents[0].dtype == torch.float32


def test_coefficients_in_another_precision_are_converted_to_that_of_the_weights(euler):
    numbers = [torch.tensor(0.5, dtype=dtype) for dtype in (torch.float32, torch.float64)]
    paths = []
    for x in numbers:
        prior = OrnsteinUhlenbeck(Positive(2 * x), 0.0, Positive(x))
        paths.append(random_process(prior).sample(4, 2, generator=seeded(), **euler).w)
    torch.testing.assert_close(*paths, rtol=1e-6, atol=1e-6)  # log and exp in float32
    assert paths[0].dtype == torch.float64


# --- random, one value per sample


@pytest.mark.parametrize("shape", [(), (3,)])
def test_the_kl_of_a_random_coefficient_is_that_of_two_log_normal_laws_and_is_added_once(euler, shape):
    latent = moved(LogNormal(torch.full(shape, 0.8), 0.5), 0.3, 0.25)
    prior = OrnsteinUhlenbeck(sigma=latent)
    path = affine_process(prior, Cut.ode_first(0.5)).sample(4, 3, generator=seeded(), **euler)  # f_q = f_p
    q, p = (distributions.LogNormal(*law) for law in ((torch.tensor(0.3), 0.25), (torch.tensor(0.8).log(), 0.5)))
    expected = latent.mean.numel() * distributions.kl_divergence(q, p).item()
    assert path.kl_start.item() == pytest.approx(expected, rel=1e-12)
    assert path.kl.tolist() == pytest.approx([expected] * 3, rel=1e-12)


def test_a_new_random_coefficient_has_the_law_of_its_hyper_prior_and_a_kl_of_zero():
    path = affine_process(OrnsteinUhlenbeck(LogNormal(0.7, 0.4)), Cut.full()).sample(4, 3, generator=seeded())
    assert path.kl.tolist() == [0, 0, 0]


def test_log_values_are_normal():
    n = 20_000  # 4 standard errors each: fails by chance once in 8,000
    prior = OrnsteinUhlenbeck(moved(LogNormal(), 0.3, 0.25))
    with torch.no_grad():
        path = affine_process(prior, Cut.none()).sample(1, n, generator=seeded())
    logs = path.latents[0].log()
    assert logs.mean().item() == pytest.approx(0.3, abs=4 * 0.25 / n**0.5)
    assert logs.std().item() == pytest.approx(0.25, rel=4 / (2 * n) ** 0.5)


CUTS = [Cut.none(), Cut.full(), Cut.vertical(0.2, 0.6), Cut.vertical(0.2, 0.6, "learned"), Cut.horizontal([0, 2]),
        Cut.both(0.2, 0.6, [0, 2], "fixed")]  # fmt: skip


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("name", ["random theta", "random sigma", "both random"])
def test_a_sample_is_the_path_of_a_prior_with_the_values_that_it_drew(euler, name, cut):
    process = random_process(PRIORS[name](), cut)
    steps = process.sample(10).phases
    sde = next((p for p in steps if p.kind == "sde"), None)
    noise = None if sde is None else draw(3, sde.steps, len(process.S), (sde.stop - sde.start) / sde.steps)
    path = process.sample(10, 3, noise=noise, generator=seeded(), **euler)
    for i in range(3):
        values = iter(x[i].squeeze() for x in path.latents)
        theta, sigma = (
            next(values) if of.latents else of.value for of in (process.prior._drift.theta, process.prior._diffusion)
        )
        prior = OrnsteinUhlenbeck(theta, 0.3, sigma)
        alone = WeightProcess(process.w0, PriorPlus(prior, process.drift.net), prior, cut)
        own = None if noise is None else noise._replace(dB=noise.dB[i : i + 1])
        expected = alone.sample(10, noise=own)
        torch.testing.assert_close(path.w[i], expected.w[0], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(path.kl[i] - path.kl_start, expected.kl[0], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("solver", ["heun", "midpoint", "milstein", "sra1", "torchsde:srk", "torchsde:euler"])
def test_every_scheme_takes_random_coefficients(solver):
    process = random_process(PRIORS["both random"](), Cut.vertical(0.2, 0.6))
    path = process.sample(10, 2, generator=seeded(), solver=solver)
    normals = process.sample(10, 2, generator=seeded()).latents[0]
    assert torch.equal(path.latents[0][0], normals[0])
    for i in range(2):
        prior = OrnsteinUhlenbeck(path.latents[0][i], 0.3, path.latents[1][i])
        alone = WeightProcess(process.w0, PriorPlus(prior, process.drift.net), prior, process.cut)
        generator = seeded()
        for _ in range(i):  # the numbers of the samples before
            torch.empty(4).normal_(generator=generator)
            alone.sample(10, generator=generator, solver=solver)
        torch.empty(4).normal_(generator=generator)
        expected = alone.sample(10, generator=generator, solver=solver)
        torch.testing.assert_close(path.w[i], expected.w[0], rtol=1e-12, atol=1e-12)


def test_the_mean_kl_over_theta_has_a_closed_form():
    # f_q = 0, f_p = -theta w: KL = 1/2 theta^2 sum w_k^2 dt / sigma^2, E w_k^2 = a^2 + sigma^2 t_k,
    # E theta^2 = exp(2 m + 2 s^2). 60,000 samples, 4.5 standard errors: fails by chance once in 150,000
    a, sigma, m, s, steps = 0.8, 0.5, 0.2, 0.15, 4
    prior = OrnsteinUhlenbeck(moved(LogNormal(1.0, 0.5), m, s), 0.0, sigma)
    process = WeightProcess(torch.tensor([a]), lambda t, w: 0 * w, prior, Cut.full())
    with torch.no_grad():
        path = process.sample(steps, 60_000, generator=seeded())
    along = path.kl - path.kl_start
    squares = sum((a**2 + sigma**2 * k / steps) / steps for k in range(steps))
    expected = 0.5 * math.exp(2 * m + 2 * s**2) * squares / sigma**2
    error = along.std().item() / len(along) ** 0.5
    assert along.mean().item() == pytest.approx(expected, abs=4.5 * error)
    assert 4.5 * error < 0.05 * expected


@pytest.mark.parametrize("name", ["random theta", "random sigma", "both random"])
def test_the_mean_of_the_inverse_density_ratio_is_one(euler, name):
    process = random_process(PRIORS[name]())
    with torch.no_grad():
        for p in process.drift.net.parameters():
            p.mul_(0.3)
        for latent in process.prior.latents:
            latent.log_std += math.log(0.7)  # narrower than the hyper-prior and shifted
            latent.mean += 0.1
        path = process.sample(5, 40_000, generator=seeded(), **euler)
        weights = (-path.log_ratio).exp()
    assert path.kl_start > 0.05
    # 4.5 standard errors: fails by chance once in 150,000
    assert abs(weights.mean() - 1) < 4.5 * weights.std() / math.sqrt(len(weights))
    error = path.log_ratio.std() / math.sqrt(len(weights))
    assert abs(path.log_ratio.mean() - path.kl.mean()) < 4.5 * error  # its mean is the KL


def test_the_mean_importance_weight_is_the_evidence_with_theta_integrated_out():
    # given theta, w(1) = q^n w0 + noise is normal; the integral over log theta is a sum
    n, sigma, w0, y, width, median, spread = 5, 0.6, 1.0, 0.4, 0.4, 0.8, 0.5
    prior = OrnsteinUhlenbeck(moved(LogNormal(median, spread), -0.1, 0.4), 0.0, sigma)
    drift = affine_posterior(prior, Cut.full(), 1, constant=0.2)
    process = WeightProcess(torch.tensor([w0]), drift, prior, Cut.full())
    with torch.no_grad():
        path = process.sample(n, 40_000, generator=seeded())
    likelihood = distributions.Normal(path.w[:, -1, 0], width).log_prob(torch.tensor(y))
    weights = (likelihood - path.log_ratio).exp()
    z = torch.linspace(-8, 8, 1001)
    theta = median * torch.exp(spread * z)
    q = 1 - theta / n
    variance = sigma**2 / n * sum(q ** (2 * k) for k in range(n)) + width**2
    density = distributions.Normal(q**n * w0, variance.sqrt()).log_prob(torch.tensor(y)).exp()
    evidence = torch.trapezoid(density * torch.exp(-z * z / 2), z) / math.sqrt(2 * math.pi)
    # 4.5 standard errors: fails by chance once in 150,000
    assert abs(weights.mean() - evidence) < 4.5 * weights.std() / math.sqrt(len(weights))


def test_sticking_the_landing_has_the_gradient_of_the_kl_in_the_mean(euler):
    # 20,000 samples in 20 groups; 6 standard errors of Student's t for each of 2 parameters: once in 50,000
    latent = moved(LogNormal(1.0, 0.5), 0.2, 0.3)
    process = affine_process(OrnsteinUhlenbeck(latent, 0.0, 0.5), Cut.full(), constant=GAP, matrix=-0.5)
    path = process.sample(4, 20_000, generator=seeded(), **euler)
    assert path.stl_term.abs().max() > 0.1
    parameters = (latent.mean, latent.log_std)
    terms = (path.stl_term[i::20].mean() for i in range(20))  # their gradients have mean 0
    for groups in zip(*(torch.autograd.grad(term, parameters, retain_graph=True) for term in terms), strict=True):
        gradients = torch.stack(groups)
        assert gradients.std() > 1e-3
        assert abs(gradients.mean()) < 6 * gradients.std() / 20**0.5


def test_samples_do_not_depend_on_how_many_follow(euler):
    process = random_process(PRIORS["both random"]())
    few, many = (process.sample(4, samples, generator=seeded(), **euler) for samples in (2, 5))
    torch.testing.assert_close(many.w[:2], few.w, rtol=0, atol=1e-14)  # products of other sizes, rounded differently
    assert all(torch.equal(a[:2], b) for a, b in zip(many.latents, few.latents, strict=True))
    assert torch.equal(many[1:2].latents[0], few.latents[0][1:])


def test_samples_agree_at_the_start_only():
    assert random_process(PRIORS["random theta"](), Cut.ode_first(0.5)).sample(4, 2).shared == 0
    assert random_process(PRIORS["sigma"](), Cut.ode_first(0.5)).sample(4, 2).shared == 2


def test_the_mean_path_takes_the_median(euler):
    process = random_process(PRIORS["random theta"](), Cut.vertical(0.2, 0.6))
    path = process.mean_path(10, **euler)
    prior = OrnsteinUhlenbeck(math.exp(-0.1), 0.3, 0.5)
    fixed = WeightProcess(process.w0, PriorPlus(prior, process.drift.net), prior, process.cut).mean_path(10, **euler)
    torch.testing.assert_close(path.w, fixed.w, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(path.kl, fixed.kl + path.kl_start, rtol=1e-12, atol=1e-12)


def test_the_drift_of_the_prior_itself_follows_the_drawn_values():
    prior = OrnsteinUhlenbeck(LogNormal(1.0, 0.5), 0.0, 0.3)
    path = WeightProcess(W0, prior.drift, prior, Cut.full()).sample(4, 3, generator=seeded())
    assert path.kl.tolist() == [0, 0, 0]


def test_any_prior_takes_a_random_diffusion():
    prior = Prior(lambda t, w: -w.sin(), LogNormal(0.5, 0.3))
    noise = draw(2, 4, 3, 0.25, generator=seeded())
    path = WeightProcess(W0, lambda t, w: 0 * w, prior, Cut.full()).sample(4, noise=noise, generator=seeded(1))
    torch.testing.assert_close(path.w[:, -1], W0 + path.latents[0] * noise.dB.sum(1))


def test_path_kl_and_path_action_refuse_random_coefficients():
    process = random_process(PRIORS["random theta"]())
    path = process.sample(4, 2, generator=seeded())
    for call in (lambda: path_kl(process.drift, process.prior, path, process.cut),
                 lambda: path_action(process.prior, path, process.cut)):  # fmt: skip
        with pytest.raises(ValueError, match="expected a prior without random coefficients, got one with LogNormal"):
            call()


def test_the_fused_scheme_refuses_random_coefficients_per_coordinate_of_the_drift():
    process = random_process(OrnsteinUhlenbeck(LogNormal(torch.ones(3), 0.2)))
    with pytest.raises(ValueError, match="theta and mu are numbers"):
        process.sample(4, 2, solver="fused-euler")


def test_descriptions_and_representations_name_the_coefficients():
    prior = OrnsteinUhlenbeck(LogNormal(0.8, 0.3), 0.0, Positive(0.25))
    assert repr(prior) == "OrnsteinUhlenbeck(theta=LogNormal(median=0.8, spread=0.3), mu=0, sigma=Positive(0.25))"
    text = "OrnsteinUhlenbeck(theta=LogNormal(median=0.8, spread=0.3), mu=0, sigma=<1 positive, trainable>)"
    assert prior.description == prior.float().description == text
    assert repr(Brownian(Positive(torch.ones(3)))) == "Brownian(sigma=Positive(<3 values>))"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Positive(0.0), "expected the value of Positive to be positive, got 0"),
        (lambda: Positive(-0.1), "to be positive, got -0.1"),
        (lambda: Positive(float("nan")), "to be finite, got nan"),
        (lambda: Positive(torch.tensor([0.1, math.inf])), "to be finite, got inf"),
        (lambda: Positive(torch.eye(2)), r"of shape \(\) or \(d,\), got \(2, 2\)"),
        (lambda: Positive("0.1"), "a number or a tensor of shape .*, got str"),
        (lambda: Positive(True), "got bool"),
        (lambda: LogNormal(0.0), "expected the median of LogNormal to be positive, got 0"),
        (lambda: LogNormal(1.0, -1), "expected the spread of LogNormal to be positive, got -1"),
        (lambda: random_process(OrnsteinUhlenbeck(LogNormal(torch.ones(5)))), "with 1 or 3 values, got 5"),
        (lambda: random_process(Brownian(Positive(torch.ones(2)))), "with 1 or 3 values, got 2"),
        (lambda: LogNormal(1.0, torch.ones(2)), r"expected a spread of shape \(\) or \(\), got \(2,\)"),
    ],
)
def test_bad_values_are_refused_in_one_line(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_raw_parameter_is_still_trained_as_it_is(euler):
    sigma = nn.Parameter(torch.tensor(0.5))
    path = affine_process(Brownian(sigma), Cut.full(), constant=GAP).sample(4, 2, generator=seeded(), **euler)
    (gradient,) = torch.autograd.grad(path.kl.mean(), sigma)
    assert gradient.item() == pytest.approx(-float((GAP**2).sum()) / 0.5**3, rel=1e-12)
