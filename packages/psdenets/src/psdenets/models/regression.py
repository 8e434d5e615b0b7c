"""Likelihoods of numbers: a location m and a scale s, predicted by the network in units of the target's std.

    p(y | m, s) = p_0(z) / s,     z = (y - m) / s,     NLL = log s - log p_0(z),  in nats and the unit of y

    gaussian    log p_0(z) = -z^2 / 2 - log(2 pi) / 2
    laplace     log p_0(z) = -|z| - log 2
    student-t   log p_0(z) = -5/2 log(1 + z^2 / 4) + log(3/8)             four degrees of freedom
    cauchy      log p_0(z) = -log(1 + z^2) - log pi

The predictive distribution is the mixture over weight samples. Its metrics are exact, except the CRPS of other families
than the Gaussian, which is that of 64 quantiles per weight sample.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
import torch
from scipy import stats
from scipy.special import logsumexp
from torch import Tensor, nn
from torch.nn import functional as F

from bnneval import crps_mixture, crps_samples, mae, rmse
from sdeweights import NonFiniteState

if TYPE_CHECKING:
    from numpy.typing import NDArray

_AT_ZERO = math.log(math.e - 1)  # softplus of this is 1: an output of 0 is a scale of one std of the target
_LEAST = 1e-4  # in units of the target's std; a scale of 0 would have an infinite density
_QUANTILES = 64  # per weight sample, for the CRPS
LEVEL = 0.9  # of the interval whose coverage is reported


@dataclass(frozen=True)
class Family:
    """A distribution of numbers with location 0 and scale 1: its log density, and the same distribution in scipy."""

    name: str
    log_p0: Callable[[Tensor], Tensor]
    law: Any


@final
class LocationScale(nn.Module):
    """A likelihood of numbers.

    Args:
        family: the distribution.
        target: mean and std of the target in the training set.
        predicted: whether the scale is an output for every row; otherwise it is one trained parameter.
    """

    def __init__(self, family: Family, target: tuple[float, float] = (0.0, 1.0), predicted: bool = False) -> None:
        super().__init__()
        self.family, self.target, self.predicted = family, target, predicted
        if not predicted:
            self.raw_scale = nn.Parameter(torch.zeros(()))

    @property
    def name(self) -> str:
        """The value of `--likelihood`."""
        return self.family.name

    @property
    def law(self) -> Any:
        """The distribution with location 0 and scale 1 in scipy."""
        return self.family.law

    def outputs(self, targets: int) -> int:
        """The location and, if it is predicted, the scale."""
        return (2 if self.predicted else 1) * targets

    def extra_repr(self) -> str:
        """Family, target and kind of scale."""
        return f"{self.name}, target={self.target}, scale {'predicted' if self.predicted else 'learned'}"

    def located(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Location and scale in the unit of y, (S, N) each, from outputs (S, N, 1 or 2)."""
        mean, std = self.target
        location = outputs[..., 0]
        raw = outputs[..., 1] if self.predicted else self.raw_scale.to(outputs).expand_as(location)
        return mean + std * location, std * (F.softplus(raw + _AT_ZERO) + _LEAST)

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """NLL of every weight sample and row, (S, N), in nats."""
        location, scale = self.located(outputs)
        return scale.log() - self.family.log_p0((targets - location) / scale)

    @torch.no_grad()
    def predictive(self, outputs: Tensor) -> Tensor:
        """Location and scale of each weight sample, (S, N, 2), float64 on the CPU."""
        found = torch.stack(self.located(outputs.detach().cpu().to(torch.float64)), dim=-1)
        if not torch.isfinite(found).all():
            raise NonFiniteState("expected finite predictions, got NaN or infinity")
        return found

    def metrics(self, predictive: NDArray[np.float64], targets: NDArray[np.float64]) -> dict[str, float]:
        """RMSE and MAE of the mean location, NLL in nats, CRPS (not of a Cauchy), coverage of the 90 % interval."""
        location, scale = predictive[..., 0], predictive[..., 1]
        found = {
            "rmse": rmse(location.mean(0), targets),
            "mae": mae(location.mean(0), targets),
            "nll": float(self.nll_per_row(predictive, targets).mean()),
            f"coverage_{100 * LEVEL:.0f}": self.coverage(predictive, targets),
        }
        if self.law is stats.norm:
            found["crps"] = crps_mixture(location, scale, targets)
        elif np.isfinite(self.law.mean()):
            at = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
            draws = location[:, None] + scale[:, None] * self.law.ppf(at)[:, None]
            found["crps"] = crps_samples(draws.reshape(-1, location.shape[1]), targets)
        return found

    def nll_per_row(self, predictive: NDArray[np.float64], targets: NDArray[np.float64]) -> NDArray[np.float64]:
        """-log 1/S sum_s p(y | m_s, s_s) of each row, (N,)."""
        location, scale = predictive[..., 0], predictive[..., 1]
        logs = self.law.logpdf((targets - location) / scale) - np.log(scale)
        nll: NDArray[np.float64] = np.log(len(logs)) - logsumexp(logs, axis=0)
        return nll

    def cdf(self, predictive: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """F(y) of each row's mixture, (N,): uniform if the predictive distribution is right."""
        found: NDArray[np.float64] = self.law.cdf((y - predictive[..., 0]) / predictive[..., 1]).mean(0)
        return found

    def coverage(self, predictive: NDArray[np.float64], y: NDArray[np.float64], level: float = LEVEL) -> float:
        """Share of targets inside the central interval of this level."""
        return float((np.abs(self.cdf(predictive, y) - 0.5) <= level / 2).mean())

    def interval(self, predictive: NDArray[np.float64], level: float = LEVEL) -> NDArray[np.float64]:
        """Ends of the central interval of each row, (2, N), by bisection."""
        location, scale = predictive[..., 0], predictive[..., 1]
        ends = []
        for p in ((1 - level) / 2, (1 + level) / 2):
            each = location + scale * self.law.ppf(p)
            low, high = each.min(0), each.max(0)
            for _ in range(60):
                middle = (low + high) / 2
                below = self.cdf(predictive, middle) < p
                low, high = np.where(below, middle, low), np.where(below, high, middle)
            ends.append(high)
        return np.stack(ends)


def _gaussian(z: Tensor) -> Tensor:
    return -(z**2) / 2 - math.log(2 * math.pi) / 2


def _laplace(z: Tensor) -> Tensor:
    return -z.abs() - math.log(2)


def _student_t(z: Tensor) -> Tensor:
    return -2.5 * torch.log1p(z**2 / 4) + math.log(3 / 8)


def _cauchy(z: Tensor) -> Tensor:
    return -torch.log1p(z**2) - math.log(math.pi)


gaussian = partial(LocationScale, Family("gaussian", _gaussian, stats.norm))
laplace = partial(LocationScale, Family("laplace", _laplace, stats.laplace))
student_t = partial(LocationScale, Family("student-t", _student_t, stats.t(4)))
cauchy = partial(LocationScale, Family("cauchy", _cauchy, stats.cauchy))
