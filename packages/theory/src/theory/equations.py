"""Weight equations that every Euler solver supports, so each claim can be checked for all of them.

    f_q = f_p + net,   f_p = theta (mu - w) or 0,   net a `BottleneckDrift`, or one for S and one for D

An affine net, c + s t + A w, has closed forms. A random net has no closed form, but it mixes coordinates.
"""

import torch
from torch import Tensor

from sdeweights import Cut, Prior, WeightPath, WeightProcess
from sdeweights.testing import affine_posterior, random_posterior, seeded

SOLVERS = ("euler", "fused-euler")  # values of both `solver` and `ode_solver`


def affine_process(
    cut: Cut, prior: Prior, w0: Tensor, *, constant: float = 0.0, slope: float = 0.0, matrix: float = 0.0
) -> WeightProcess:
    """The process dw = (f_p + constant + slope t + matrix w) dt + noise, where `matrix` is a number times I."""
    return WeightProcess(w0, affine_posterior(prior, cut, len(w0), constant, slope, matrix), prior, cut)


def random_process(cut: Cut, prior: Prior, w0: Tensor, seed: int, hidden: str = "3-4-3") -> WeightProcess:
    """The process dw = (f_p + random net) dt + noise; the net is bounded, and mixes all coordinates of S and of D."""
    drift = random_posterior(prior, cut, len(w0), seed, hidden, activation=torch.tanh)
    return WeightProcess(w0, drift, prior, cut)


def sample(process: WeightProcess, steps: int, samples: int, solver: str, seed: int) -> WeightPath:
    """Sample paths with the same solver in every phase, without gradients."""
    with torch.no_grad():
        return process.sample(steps, samples, generator=seeded(seed), solver=solver, ode_solver=solver)
