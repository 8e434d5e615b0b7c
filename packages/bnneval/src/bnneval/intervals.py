"""Central prediction intervals, their coverage and their score, for a level such as 0.9 and alpha = 1 - level:

    lower, upper = quantiles of the prediction at alpha / 2 and at 1 - alpha / 2
    coverage     = share of targets with lower <= y <= upper
    score        = mean of  upper - lower + 2/alpha (lower - y)^+ + 2/alpha (y - upper)^+   (Gneiting and Raftery, 2007)

The score is in the unit of y. It is proper: on average, the interval between the true quantiles has the lowest score.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from bnneval import _check
from bnneval.mixture import mixture_quantile


class Bounds(NamedTuple):
    """Lower and upper end of the prediction interval of each of N targets, each (N,)."""

    lower: NDArray[np.float64]
    upper: NDArray[np.float64]


def central_interval_samples(samples: ArrayLike, level: float = 0.95) -> Bounds:
    """Interval between two quantiles of the samples of each target, (S, N) -> two arrays (N,).

    The p-quantile is the p (S + 1)-th smallest sample, with linear interpolation, because a further draw from the same
    distribution is below the r-th smallest of S samples with probability r / (S + 1). The interval ends at the smallest
    and largest sample at most, so it is too narrow if level > (S - 1) / (S + 1).

    >>> central_interval_samples(np.arange(1.0, 20.0)[:, None], 0.8)   # 1 to 19: the second and the last but one
    Bounds(lower=array([2.]), upper=array([18.]))
    """
    x = _check.finite(samples, "samples", "(S, N)")
    tail = (1 - _check.fraction(level, "level")) / 2
    lower, upper = np.quantile(x, [tail, 1 - tail], axis=0, method="weibull")
    return Bounds(lower, upper)


def central_interval_gaussian(mean: ArrayLike, std: ArrayLike, level: float = 0.95) -> Bounds:
    """Interval mean +- z std with Phi(z) = (1 + level) / 2, (N,), (N,) -> two arrays (N,).

    >>> [end.round(6).item() for end in central_interval_gaussian([1.0], [2.0])]   # 1 +- 2 * 1.959964
    [-2.919928, 4.919928]
    """
    m, sigma = _check.gaussians(mean, std)
    z = -ndtri((1 - _check.fraction(level, "level")) / 2)
    return Bounds(m - z * sigma, m + z * sigma)


def central_interval_mixture(means: ArrayLike, stds: ArrayLike, level: float = 0.95) -> Bounds:
    """Interval between two quantiles of each Gaussian mixture, (S, N), (S, N) -> two arrays (N,).

    >>> [end.round(6).item() for end in central_interval_mixture([[1.0], [1.0]], [[2.0], [2.0]])]
    [-2.919928, 4.919928]
    """
    m, sigma = _check.mixture(means, stds)
    tail = (1 - _check.fraction(level, "level")) / 2
    return Bounds(mixture_quantile(m, sigma, tail), -mixture_quantile(-m, sigma, tail))


def coverage(lower: ArrayLike, upper: ArrayLike, y: ArrayLike) -> float:
    """Share of targets in their closed intervals, (N,), (N,), (N,); calibrated intervals have coverage = level.

    >>> coverage([0.0, 0.0], [1.0, 1.0], [1.0, 2.0])
    0.5
    """
    low, high = _check.bounds(lower, upper)
    target = _check.targets(y, len(low))
    return float(((low <= target) & (target <= high)).mean())


def interval_score(lower: ArrayLike, upper: ArrayLike, y: ArrayLike, level: float) -> float:
    """Mean width plus 2 / (1 - level) times the mean distance of y from its interval; lower is better.

    >>> round(interval_score([0.0], [1.0], [1.5], level=0.9), 6)   # width 1, and 2 / 0.1 * 0.5
    11.0
    """
    return float(interval_score_per_target(lower, upper, y, level).mean())


def interval_score_per_target(lower: ArrayLike, upper: ArrayLike, y: ArrayLike, level: float) -> NDArray[np.float64]:
    """Interval score of each target, (N,), (N,), (N,) -> (N,)."""
    low, high = _check.bounds(lower, upper)
    target = _check.targets(y, len(low))
    alpha = 1 - _check.fraction(level, "level")
    outside = np.maximum(low - target, 0) + np.maximum(target - high, 0)
    score: NDArray[np.float64] = high - low + 2 / alpha * outside
    return score
