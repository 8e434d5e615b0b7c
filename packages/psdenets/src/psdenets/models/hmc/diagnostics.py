"""Whether chains of MCMC can be believed, and what they cost.

    R-hat = sqrt(var_total / var_within)  over half chains,     ESS = n / (1 + 2 sum_k rho_k)

R-hat near 1 says that chains begun apart agree by now. Weights of a network need not: to permute hidden units, or to
turn the signs of one unit's weights, leaves the posterior as it is, so that chains may stay in different ones of many
equal copies. It is function space that must mix: the log posterior, and the probabilities of held-out images.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from psdenets.errors import BadInput

if TYPE_CHECKING:
    from psdenets.options.baselines import HmcOptions

_TWO_HOURS = 7200.0
_NUMBERS_AT_ONCE = 2**22  # 32 MB: pyro's effective sample size holds (draws / 2)^2 numbers a quantity
_TIME_UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


class Mixing(NamedTuple):
    """R-hat and effective sample size of many quantities: the worst and the median."""

    max_rhat: float
    median_rhat: float
    min_ess: float
    median_ess: float


def pyro_module(name: str) -> Any:
    """A module of pyro, e.g. ``pyro_module("ops.stats")``. Only here is pyro imported: everything else goes without."""
    try:
        importlib.import_module("pyro")
        return importlib.import_module(f"pyro.{name}")
    except ImportError:
        raise BadInput(
            "expected pyro for --model hmc, got none; install it with: pip install 'psdenets[hmc]'"
        ) from None


def split_rhat(values: Tensor) -> Tensor:
    """R-hat of half chains, (chains, draws, k) -> (k,). Each chain is cut in two, so that one chain alone will do."""
    _check(values)
    rhat: Tensor = pyro_module("ops.stats").split_gelman_rubin(values)
    return rhat


def effective_sample_size(values: Tensor) -> Tensor:
    """How many independent draws would say as much of the mean, (chains, draws, k) -> (k,).

    Draws that alternate around the mean say more than independent ones. As in Stan, n log10 n is the most that is
    believed of n draws: the estimate has its pole, 1 + 2 sum rho = 0, not far from there.
    """
    _check(values)
    chains, draws, _ = values.shape
    stats = pyro_module("ops.stats")
    at_once = max(1, _NUMBERS_AT_ONCE // (draws // 2) ** 2)
    n = chains * draws
    tau = torch.cat([n / stats.effective_sample_size(part) for part in torch.split(values, at_once, dim=2)])
    return n / tau.clamp(min=1 / math.log10(n))


def mixing(values: Tensor) -> Mixing:
    """Worst and median R-hat and effective sample size of the k quantities of (chains, draws, k)."""
    rhat, ess = split_rhat(values), effective_sample_size(values)
    return Mixing(rhat.max().item(), rhat.quantile(0.5).item(), ess.min().item(), ess.quantile(0.5).item())


def _check(values: Tensor) -> None:
    if values.ndim != 3 or values.shape[0] < 1 or values.shape[1] < 4 or values.shape[2] < 1:
        raise BadInput(f"expected (chains, draws, k) with 4 draws or more, got shape {tuple(values.shape)}")
    if not torch.isfinite(values).all():
        raise BadInput("expected finite draws, got infinity or NaN among them")
    stuck = int((values == values[:1, :1]).all(1).all(0).sum())
    if stuck:
        raise BadInput(f"expected draws that vary, got {stuck} of {values.shape[2]} quantities that never do")


@dataclass(frozen=True)
class Cost:
    """So many gradients of a log density over so many images, and the seconds that one image adds to each."""

    images: int
    gradients: int
    seconds_per_image: float

    @property
    def seconds(self) -> float:
        """images x gradients x seconds an image."""
        return self.images * self.gradients * self.seconds_per_image

    def __str__(self) -> str:
        return f"{self.images:,} images x {self.gradients:,} gradients is about {duration(self.seconds)} here"


def cost_of(hmc: HmcOptions, images: int, seconds_per_image: float) -> Cost:
    """chains x (warmup + draws) x leapfrog gradients; the search for a first step size adds a few dozen per chain."""
    return Cost(images, hmc.chains * (hmc.warmup + hmc.draws) * hmc.leapfrog, seconds_per_image)


def full_size_cost(seconds_per_image: float) -> Cost:
    """Cost of HMC over a ResNet-20-FRN on CIFAR-10 as Izmailov et al. (2021) ran it on 512 TPU cores, run here.

    Their Table 3: 3 chains of 50 + 240 trajectories of length pi sqrt(1/5) / 2 in steps of 1e-5, 70,248 gradients each,
    over 40,960 images. With 10 ms an image, a forward and backward pass, that is 793 years.
    """
    leapfrog = round(math.pi * math.sqrt(1 / 5) / 2 / 1e-5)
    return Cost(40_960, 3 * (50 + 240) * leapfrog, seconds_per_image)


def seconds_per_gradient(log_density: Callable[[Tensor], Tensor], w: Tensor, repeats: int = 100) -> float:
    """Mean wall time of so many gradients of a log density at w, after one that is not counted.

    The mean of many, not the median of a few: on a machine that others use, some are timed alone and some are not.
    """
    at = w.detach().clone().requires_grad_()
    torch.autograd.grad(log_density(at), at)
    started = time.perf_counter()
    for _ in range(repeats):
        torch.autograd.grad(log_density(at), at)
    return (time.perf_counter() - started) / repeats


def refusal(dataset: str, cost: Cost, limit: float = _TWO_HOURS) -> None:
    """Raise a `BadInput` that holds the estimate where a run would take longer than ``limit`` seconds."""
    if cost.seconds > limit:
        raise BadInput(f"expected a data set that HMC can sweep in {duration(limit)}, got {dataset}: {cost}")


def duration(seconds: float) -> str:
    """Seconds in a unit that fits: 41 h, 3.2 days, 790 years."""
    unit, length = next((u for u in _TIME_UNITS if seconds >= 2 * u[1]), _TIME_UNITS[-1])
    value = seconds / length
    return f"{value:,.0f} {unit}" if value >= 10 or value == round(value) else f"{value:.1f} {unit}"
