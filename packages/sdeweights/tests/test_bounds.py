"""Bounds on the log evidence: the importance weights are right, and the bound rises with the number of paths."""

from __future__ import annotations

import math

import pytest
import torch

from sdeweights import Cut, OrnsteinUhlenbeck, PriorPlus, WeightProcess, bottleneck, importance_bound

SOLVERS = [("euler", "euler"), ("fused-euler", "fused-euler")]
CUTS = {"full": Cut.full(), "sde-first": Cut.sde_first(0.5), "ode-first": Cut.ode_first(0.5),
        "horizontal": Cut.horizontal(0.5)}  # fmt: skip
SIGMA, STEPS, NOISE, Y = 0.6, 5, 0.4, 0.8


def process_of(cut, scale=0.6, seed=0):
    g = torch.Generator().manual_seed(seed)
    prior = OrnsteinUhlenbeck(sigma=SIGMA)
    net = bottleneck(4, cut, "2-8-2", generator=g).double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=g, dtype=p.dtype))
    return WeightProcess(torch.zeros(4, dtype=torch.float64), PriorPlus(prior, net), prior, cut)


def draw(process, samples, seed=0, solvers=SOLVERS[0]):
    solver, ode = solvers
    g = torch.Generator().manual_seed(seed)
    return process.sample(STEPS, samples, generator=g, solver=solver, ode_solver=ode)


def log_likelihood(path):
    """log N(Y; first weight at depth 1, NOISE^2)."""
    return -((Y - path.w[:, -1, 0]) ** 2) / (2 * NOISE**2) - math.log(NOISE * math.sqrt(2 * math.pi))


def log_evidence():
    """The first weight at depth 1 is Gaussian under Euler-Maruyama: variance sigma^2 dt sum_k (1 - dt)^(2 k)."""
    dt = 1 / STEPS
    v = SIGMA**2 * dt * sum((1 - dt) ** (2 * k) for k in range(STEPS)) + NOISE**2
    return -(Y**2) / (2 * v) - math.log(math.sqrt(2 * math.pi * v))


@pytest.mark.parametrize("solvers", SOLVERS)
@pytest.mark.parametrize("cut", CUTS)
def test_the_mean_of_the_inverse_density_ratio_is_one(cut, solvers):
    path = draw(process_of(CUTS[cut]), 40_000, solvers=solvers)
    weights = (-path.log_ratio).exp()
    assert path.kl.mean() > 0.05  # the posterior differs from the prior
    assert abs(weights.mean() - 1) < 4.5 * weights.std() / math.sqrt(len(weights))


@pytest.mark.parametrize("solvers", SOLVERS)
def test_the_mean_importance_weight_is_the_evidence(solvers):
    path = draw(process_of(Cut.full()), 40_000, solvers=solvers)
    weights = (log_likelihood(path) - path.log_ratio).exp()
    assert abs(weights.mean() - math.exp(log_evidence())) < 4.5 * weights.std() / math.sqrt(len(weights))


def bounds_of(terms, k):
    """The bound of every k consecutive terms."""
    return torch.vmap(importance_bound, in_dims=(0, None))(terms.view(-1, k), torch.zeros(k, dtype=terms.dtype))


def test_the_bound_rises_with_the_number_of_paths_to_the_log_evidence():
    path = draw(process_of(Cut.full()), 65_536)
    terms = log_likelihood(path) - path.log_ratio
    elbo = (log_likelihood(path) - path.kl).mean().item()
    means, errors = [], []
    for k in (1, 2, 4, 16, 64, 1024):
        bounds = bounds_of(terms.detach(), k)
        means.append(float(bounds.mean()))
        errors.append(float(bounds.std() / math.sqrt(len(bounds))))
    assert means == sorted(means)
    assert means[1] - means[0] > 0.01
    assert abs(means[0] - elbo) < 5 * errors[0]  # one path: the ELBO, up to the martingale, whose mean is zero
    assert abs(means[-1] - log_evidence()) < 0.02


def test_no_mean_bound_exceeds_the_log_evidence():
    terms = log_likelihood(path := draw(process_of(Cut.full(), seed=3), 32_768, seed=5)) - path.log_ratio
    for k in (1, 8, 64):
        bounds = bounds_of(terms.detach(), k)
        assert bounds.mean() < log_evidence() + 4 * bounds.std() / math.sqrt(len(bounds))


def test_the_bound_of_one_path_is_its_log_weight_and_that_of_equal_paths_the_same():
    one = importance_bound(torch.tensor([-3.0]), torch.tensor([0.5]))
    assert float(one) == pytest.approx(-3.5)
    assert float(importance_bound(torch.full((7,), -3.0), torch.full((7,), 0.5))) == pytest.approx(-3.5)


def test_the_bound_does_not_underflow():
    bound = importance_bound(torch.tensor([-1e4, -1e4]), torch.zeros(2))
    assert float(bound) == pytest.approx(-1e4)


def test_its_gradient_is_that_of_finite_differences_with_the_same_noise():
    process = process_of(Cut.full())
    parameter = next(process.drift.net.parameters())

    def bound():
        path = draw(process, 5)
        return importance_bound(log_likelihood(path), path.log_ratio)

    (gradient,) = torch.autograd.grad(bound(), parameter)
    direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2), dtype=parameter.dtype)
    step = 1e-5
    with torch.no_grad():
        parameter += step * direction
        up = bound()
        parameter -= 2 * step * direction
        down = bound()
        parameter += step * direction
    assert float((gradient * direction).sum()) == pytest.approx(float((up - down) / (2 * step)), rel=1e-6)


def test_a_deterministic_process_has_a_ratio_of_zero():
    path = draw(process_of(Cut.none()), 3)
    assert torch.equal(path.log_ratio, torch.zeros(3, dtype=torch.float64))


def test_the_ratio_of_a_slice_is_the_slice_of_the_ratio():
    path = draw(process_of(Cut.full()), 6)
    torch.testing.assert_close(path[2:4].log_ratio, path.log_ratio[2:4])
    torch.testing.assert_close(path[1].log_ratio, path.log_ratio[1:2])


@pytest.mark.parametrize("shapes", [((3,), (2,)), ((), ()), ((2, 2), (2, 2)), ((0,), (0,))])
def test_other_shapes_are_refused(shapes):
    with pytest.raises(ValueError, match=r"expected log_likelihood and log_ratio of shape \(K,\)"):
        importance_bound(*(torch.zeros(shape) for shape in shapes))
