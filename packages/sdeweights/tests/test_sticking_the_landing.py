"""kl_stl: its gradient has the same mean as that of kl, and no variance once the posterior is exact.

The model has the prior dw = s dB from 0 and one observation y of w_1 with normal noise of variance r. The drift of the
exact posterior is s^2 (y - w) / (r + s^2 (1 - t)).
"""

import pytest
import torch
from torch import nn

from sdeweights import Brownian, Cut, PriorPlus, WeightProcess, bottleneck
from sdeweights.testing import observed_order, random_posterior, seeded

S2, R, Y = 0.8, 0.3, 1.0


class Guided(nn.Module):
    """alpha times the exact posterior drift, plus beta; each sample has its own copy of both, hence its own gradient."""

    def __init__(self, samples, alpha, beta):
        super().__init__()
        self.alpha = nn.Parameter(torch.full((samples, 1), alpha))
        self.beta = nn.Parameter(torch.full((samples, 1), beta))

    def forward(self, t, w):
        n = len(w)
        return self.alpha[:n] * S2 * (Y - w) / (R + S2 * (1 - t)) + self.beta[:n]


def gradients(alpha, beta, steps, stl, samples=4000, seed=0):
    drift = Guided(samples, alpha, beta)
    process = WeightProcess(torch.zeros(1), drift, Brownian(S2**0.5), Cut.full())
    path = process.sample(steps, samples, generator=seeded(seed))
    nll = 0.5 * (Y - path.w[:, -1, 0]) ** 2 / R
    loss = nll + (path.kl_stl if stl else path.kl)
    return torch.cat(torch.autograd.grad(loss.sum(), [drift.alpha, drift.beta]), 1)  # (samples, 2)


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 0.3), (1.0, 0.0), (0.2, -0.5)])
def test_both_gradients_have_the_same_mean(alpha, beta):
    plain, stl = (gradients(alpha, beta, 20, stl) for stl in (False, True))
    gap = stl - plain  # from the same noise; its mean is that of the score, zero
    standard_error = gap.std(0) / len(gap) ** 0.5
    assert (gap.mean(0).abs() < 4 * standard_error).all()  # fails by chance twice in 16,000
    assert (gap.std(0) > 0.1).all()  # the two estimators differ


def test_variance_vanishes_as_the_posterior_becomes_exact():
    steps = (8, 16, 32, 64, 128)
    stl = [gradients(1.0, 0.0, n, True).var(0).sum().item() for n in steps]
    plain = [gradients(1.0, 0.0, n, False).var(0).sum().item() for n in steps]
    # on a grid, the chain's exact posterior has slightly less noise than the prior, so a spread of order dt remains
    assert observed_order([1 / n for n in steps], stl) == pytest.approx(2.0, abs=0.35)
    assert stl[-1] < 0.02 * plain[-1]
    assert plain[-1] > 0.5 * plain[0]  # the ordinary gradient keeps its variance


def test_variance_falls_from_prior_to_posterior():
    variances = [gradients(alpha, 0.0, 64, True).var(0).sum().item() for alpha in (0.0, 0.5, 0.8, 1.0)]
    assert variances == sorted(variances, reverse=True)
    assert variances[-1] < 0.05 * variances[0]


def guided():
    return WeightProcess(torch.zeros(1), Guided(3, 0.7, 0.2), Brownian(S2**0.5), Cut.full())


def through_a_net():
    prior = Brownian(S2**0.5)
    return WeightProcess(torch.zeros(1), random_posterior(prior, Cut.full(), 1), prior, Cut.full())


@pytest.mark.parametrize(
    ("make", "solver"), [(guided, "euler"), (through_a_net, "euler"), (through_a_net, "fused-euler")]
)
def test_value_is_the_log_likelihood_ratio_of_the_two_chains(make, solver):
    """kl_stl = log q(path) / p(path), term by term from the normal densities of the Euler steps."""
    steps, process = 10, make()
    path = process.sample(steps, 3, generator=seeded(), solver=solver)
    scale = torch.tensor((S2 / steps) ** 0.5)
    ratio = torch.zeros(3)
    for k in range(steps):
        w, w1 = path.w[:, k, 0], path.w[:, k + 1, 0]
        q = torch.distributions.Normal(w + process.drift(path.ts[k], path.w[:, k])[:, 0] / steps, scale)
        p = torch.distributions.Normal(w, scale)
        ratio = ratio + q.log_prob(w1) - p.log_prob(w1)
    assert torch.allclose(path.kl_stl, ratio, rtol=1e-10)


@pytest.mark.parametrize(
    "cut", [Cut.vertical(0.3, 0.6, "learned"), Cut.both(0.2, 0.7, [0, 2]), Cut.none(), Cut.ode_first(0.2)]
)
def test_stl_works_with_every_kind_of_cut(euler, cut):
    prior = Brownian(0.5)
    net = bottleneck(3, cut, "2-4-2", generator=seeded())
    for p in net.parameters():
        p.data += 0.1
    process = WeightProcess(torch.ones(3), PriorPlus(prior, net), prior, cut)
    path = process.sample(10, 2000, generator=seeded(), **euler)
    extra = (path.kl_stl - path.kl).detach()
    if cut.deterministic:
        assert (extra == 0).all()
    else:
        assert extra.mean().abs() < 4 * extra.std() / 2000**0.5
        assert extra.std() > 0


def test_a_drift_that_hides_its_parameters_is_rejected():
    hidden = torch.tensor(0.5, requires_grad=True)
    process = WeightProcess(torch.ones(1), lambda t, w: hidden * w, Brownian(), Cut.full())
    with pytest.raises(ValueError, match="expected a drift whose parameters belong to an nn.Module for kl_stl"):
        process.sample(4, generator=seeded()).kl_stl  # noqa: B018
