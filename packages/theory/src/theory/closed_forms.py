"""Linear equations whose Euler chain w_{k+1} = w_k + f_q dt + sigma dB_k has a closed form for every path.

dw = c dt + sigma dB                w_1 = w_0 + c + sigma B
dw = theta (mu - w) dt + sigma dB   w_1 = mu + (w_0 - mu) prod (1 - theta dt_j) + sigma sum_k dB_k prod_{j > k} (...)
"""

import itertools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from sdeweights import Brownian, Cut, Grid, Increments, OrnsteinUhlenbeck, WeightPath, WeightProcess
from sdeweights.testing import seeded
from theory.equations import affine_process

D = 4  # number of weights
SIGMA, THETA, MU = 0.5, 2.0, 0.75
SIGMAS = torch.tensor([0.3, 0.5, 0.8, 1.2], dtype=torch.float64)  # one noise per coordinate


class Driven(NamedTuple):
    """Two sample paths, their process, and the increments that drove them, (2, steps of the window, |S|)."""

    process: WeightProcess
    path: WeightPath
    dB: Tensor

    @property
    def S(self) -> Tensor:
        """The noisy coordinates; empty for a deterministic cut."""
        return self.process.S[: self.dB.shape[2]]

    @property
    def sigma(self) -> Tensor:
        """The noise of each noisy coordinate, (|S|,)."""
        w0 = self.process.w0.detach()
        return self.process.prior.diffusion(w0.new_zeros(()), w0).expand(D)[self.S]


def drive(process: WeightProcess, steps: int, solver: str, seed: int) -> Driven:
    """Sample two paths with gradients, and keep the increments."""
    grid = Grid.of(process.cut, steps)
    if grid.sde is None:
        return Driven(process, process.sample(grid, 2, solver=solver, ode_solver=solver), torch.zeros(2, 0, 0))
    dt = (grid.sde.stop - grid.sde.start) / grid.sde.steps
    normals = torch.randn(2, grid.sde.steps, len(process.S), generator=seeded(seed), dtype=torch.float64)
    noise = Increments(dt, math.sqrt(dt) * normals)
    return Driven(process, process.sample(grid, noise=noise, solver=solver, ode_solver=solver), noise.dB)


def constant_drift(
    cut: Cut, steps: int, solver: str = "euler", *, sigma: float | Tensor = SIGMA, drift: float = 1.0, seed: int = 0
) -> Driven:
    """Two paths of dw = drift dt + sigma dB from w0 = 0, against a Brownian prior."""
    zero = torch.zeros(D, dtype=torch.float64)
    return drive(affine_process(cut, Brownian(sigma), zero, constant=drift), steps, solver, seed)


def mean_reversion(cut: Cut, steps: int, solver: str = "euler", seed: int = 0) -> Driven:
    """Two paths of dw = theta (mu - w) dt + sigma dB from w0 = (1, 2, 3, 4); f_q = f_p, so the KL is 0."""
    w0 = torch.arange(1.0, D + 1, dtype=torch.float64)
    return drive(affine_process(cut, OrnsteinUhlenbeck(THETA, MU, SIGMA), w0), steps, solver, seed)


def end_of_constant_drift(driven: Driven, drift: float = 1.0) -> Tensor:
    """drift + sigma B: (2, D)."""
    end = torch.full((2, D), drift, dtype=torch.float64)
    end[:, driven.S] += driven.sigma * driven.dB.sum(1)
    return end


def decay(path: WeightPath) -> list[float]:
    """prod_{j >= k} (1 - theta dt_j) for every step k: Euler's derivative of w_1 by w at the start of step k."""
    factors = [1 - THETA * (b - a) for a, b in itertools.pairwise(path.times)]
    return [math.prod(factors[k:]) for k in range(path.steps)]


def end_of_mean_reversion(driven: Driven) -> Tensor:
    """mu + (w0 - mu) prod (1 - theta dt) + sigma sum_k dB_k prod_{j > k} (1 - theta dt_j): (2, D)."""
    path, left = driven.path, [*decay(driven.path), 1.0]
    end = (MU + (driven.process.w0.detach() - MU) * left[0]).expand(2, -1).clone()
    if driven.dB.numel():
        first = next(phase.first for phase in path.phases if phase.kind == "sde")
        after = torch.tensor(left[first + 1 : first + 1 + driven.dB.shape[1]], dtype=torch.float64)
        end[:, driven.S] += driven.sigma * (after[:, None] * driven.dB).sum(1)
    return end


def slope_of_kl(driven: Driven) -> float:
    """d KL / d drift of `constant_drift`, averaged over the two samples; 0 for a cut without noise."""
    if not driven.dB.numel():
        return 0.0
    biases = [p for name, p in driven.process.named_parameters() if name.endswith("layers.1.bias")]
    slopes = torch.autograd.grad(driven.path.kl.mean(), biases, allow_unused=True)
    return sum(2 * float(slope.sum()) for slope in slopes if slope is not None)  # the bias is twice the drift
