"""Convergence diagnostics of MCMC chains, and the cost of running them.

    R-hat = sqrt(var_total / var_within)  over half chains,     ESS = n / (1 + 2 sum_k rho_k)

An R-hat near 1 means that chains with different starting points agree. The weights of a network need not mix: permuting
hidden units, or flipping the signs of one unit's weights, does not change the posterior, so chains may stay in
different copies of the same mode. What matters is mixing in function space: of the log posterior, and of the
probabilities of held-out images.
"""

import importlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from psdenets.errors import BadInput
from psdenets.options.baselines import HmcOptions

_TWO_HOURS = 7200.0
_NUMBERS_AT_ONCE = 2**22  # 32 MB: pyro's effective sample size stores (draws / 2)^2 numbers per quantity
_TIME_UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


class Mixing(NamedTuple):
    """Worst and median R-hat and effective sample size over many quantities."""

    max_rhat: float
    median_rhat: float
    min_ess: float
    median_ess: float


def pyro_module(name: str) -> Any:
    """Import a module of pyro, e.g. `pyro_module("ops.stats")`. This is the only place that imports pyro."""
    try:
        importlib.import_module("pyro")
        return importlib.import_module(f"pyro.{name}")
    except ImportError:
        raise BadInput("expected pyro for --model hmc, but it is not installed: pip install 'psdenets[hmc]'") from None


def split_rhat(values: Tensor) -> Tensor:
    """R-hat of half chains, (chains, draws, k) -> (k,). Each chain is split in two, so one chain is enough."""
    _check(values)
    rhat: Tensor = pyro_module("ops.stats").split_gelman_rubin(values)
    return rhat


def effective_sample_size(values: Tensor) -> Tensor:
    """Number of independent draws that would estimate the mean equally well, (chains, draws, k) -> (k,).

    Draws that alternate around the mean estimate it better than independent ones. As in Stan, the result for n draws
    is at most n log10 n, because the estimator has a pole nearby, at 1 + 2 sum rho = 0.
    """
    _check(values)
    chains, draws, _ = values.shape
    stats = pyro_module("ops.stats")
    at_once = max(1, _NUMBERS_AT_ONCE // (draws // 2) ** 2)
    n = chains * draws
    tau = torch.cat([n / stats.effective_sample_size(part) for part in torch.split(values, at_once, dim=2)])
    return n / tau.clamp(min=1 / math.log10(n))


def mixing(values: Tensor) -> Mixing:
    """Worst and median R-hat and effective sample size of k quantities, given as (chains, draws, k)."""
    rhat, ess = split_rhat(values), effective_sample_size(values)
    return Mixing(rhat.max().item(), rhat.quantile(0.5).item(), ess.min().item(), ess.quantile(0.5).item())


def _check(values: Tensor) -> None:
    if values.ndim != 3 or values.shape[0] < 1 or values.shape[1] < 4 or values.shape[2] < 1:
        raise BadInput(f"expected (chains, draws, k) with at least 4 draws, got shape {tuple(values.shape)}")
    if not torch.isfinite(values).all():
        raise BadInput("expected finite draws, got NaN or infinity")
    stuck = int((values == values[:1, :1]).all(1).all(0).sum())
    if stuck:
        raise BadInput(f"expected draws that vary, got {stuck} of {values.shape[2]} constant quantities")


@dataclass(frozen=True)
class Cost:
    """The cost of a run: number of images, number of full-batch gradients, and seconds per image and gradient."""

    images: int
    gradients: int
    seconds_per_image: float

    @property
    def seconds(self) -> float:
        """Total time: images x gradients x seconds per image."""
        return self.images * self.gradients * self.seconds_per_image

    def __str__(self) -> str:
        return f"{self.images:,} images x {self.gradients:,} gradients is about {duration(self.seconds)} here"


def cost_of(hmc: HmcOptions, images: int, seconds_per_image: float) -> Cost:
    """The cost of chains x (warmup + draws) x leapfrog gradients; finding a step size adds a few dozen per chain."""
    return Cost(images, hmc.chains * (hmc.warmup + hmc.draws) * hmc.leapfrog, seconds_per_image)


def full_size_cost(seconds_per_image: float) -> Cost:
    """What the HMC run of Izmailov et al. (2021), a ResNet-20-FRN on CIFAR-10 on 512 TPU cores, would cost here.

    Their Table 3: 3 chains of 50 + 240 trajectories of length pi sqrt(1/5) / 2 in steps of 1e-5, 70,248 gradients each,
    over 40,960 images. At 10 ms per image for a forward and backward pass, that takes 793 years.
    """
    leapfrog = round(math.pi * math.sqrt(1 / 5) / 2 / 1e-5)
    return Cost(40_960, 3 * (50 + 240) * leapfrog, seconds_per_image)


def seconds_per_gradient(log_density: Callable[[Tensor], Tensor], w: Tensor, repeats: int = 100) -> float:
    """Mean wall time of a gradient of a log density at w over `repeats` gradients, after one warm-up.

    It uses a mean of many rather than a median of a few, because other programs slow down some of them on a shared
    machine.
    """
    at = w.detach().clone().requires_grad_()
    torch.autograd.grad(log_density(at), at)
    started = time.perf_counter()
    for _ in range(repeats):
        torch.autograd.grad(log_density(at), at)
    return (time.perf_counter() - started) / repeats


def refusal(dataset: str, cost: Cost, limit: float = _TWO_HOURS) -> None:
    """Raise BadInput with the estimated cost if a run would take longer than `limit` seconds."""
    if cost.seconds > limit:
        raise BadInput(f"expected a data set on which HMC takes at most {duration(limit)}, got {dataset}: {cost}")


def duration(seconds: float) -> str:
    """Format seconds in a readable unit: 41 h, 3.2 days, 790 years."""
    unit, length = next((u for u in _TIME_UNITS if seconds >= 2 * u[1]), _TIME_UNITS[-1])
    value = seconds / length
    return f"{value:,.0f} {unit}" if value >= 10 or value == round(value) else f"{value:.1f} {unit}"
