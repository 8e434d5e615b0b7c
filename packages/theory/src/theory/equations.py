"""Weight equations that every Euler solver supports, so each claim can be checked for all of them.

    f_q = f_p + net,   f_p = theta (mu - w) or 0,   net a `BottleneckDrift`, or one for S and one for D

An affine net, c + s t + A w, has closed forms. A random net has no closed form, but it mixes coordinates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from sdeweights import BottleneckDrift, Cut, Prior, PriorPlus, SplitDrift, WeightPath, WeightProcess
from sdeweights.testing import affine_posterior, seeded

SOLVERS = ("euler", "fused-euler")  # values of both `solver` and `ode_solver`


def affine_process(
    cut: Cut, prior: Prior, w0: Tensor, *, constant: float = 0.0, slope: float = 0.0, matrix: float = 0.0
) -> WeightProcess:
    """The process dw = (f_p + constant + slope t + matrix w) dt + noise, where `matrix` is a number times I."""
    return WeightProcess(w0, affine_posterior(prior, cut, len(w0), constant, slope, matrix), prior, cut)


def random_process(cut: Cut, prior: Prior, w0: Tensor, seed: int, hidden: str = "3-4-3") -> WeightProcess:
    """The process dw = (f_p + random net) dt + noise."""
    d = len(w0)
    net: BottleneckDrift | SplitDrift = random_net(d, seed, hidden)
    if cut.splits(d):
        S = cut.indices(d)
        net = SplitDrift(random_net(len(S), seed, hidden), random_net(d - len(S), seed + 1, hidden), S, d)
    return WeightProcess(w0, PriorPlus(prior, net), prior, cut)


def random_net(d: int, seed: int, hidden: str = "3-4-3") -> BottleneckDrift:
    """A bounded tanh net whose last layer is not zero; it mixes all d coordinates."""
    generator = seeded(seed)
    net = BottleneckDrift(d, hidden, activation=torch.tanh).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return net


def sample(process: WeightProcess, steps: int, samples: int, solver: str, seed: int) -> WeightPath:
    """Sample paths with the same solver in every phase, without gradients."""
    with torch.no_grad():
        return process.sample(steps, samples, generator=seeded(seed), solver=solver, ode_solver=solver)
