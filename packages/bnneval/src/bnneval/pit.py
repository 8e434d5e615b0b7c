"""Probability integral transform,  PIT = F(y),  uniform on [0, 1] if the predictive distributions F are calibrated.

A histogram with a hump in the middle means that predictions are too wide, one with peaks at both ends that they are too
narrow. PIT <= p means that y is at most the predicted p-quantile, so calibration of quantiles,

    observed(p) = share of targets with PIT <= p,        error = mean over levels p of |observed(p) - p|,

is computed from PIT values too, whatever form the predictions had.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check
from bnneval.calibration import MOST_BINS
from bnneval.mixture import mixture_cdf

LEVELS = tuple(k / 20 for k in range(1, 20))  # 5 %, 10 %, ..., 95 %


class PitHistogram(NamedTuple):
    """Bin edges (B + 1,), and the number of PIT values in each bin, (B,)."""

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]


class QuantileCalibration(NamedTuple):
    """Predicted levels (L,), the share of targets below the quantile of each level (L,), and their mean distance."""

    levels: NDArray[np.float64]
    observed: NDArray[np.float64]
    error: float


def pit_samples(samples: ArrayLike, y: ArrayLike, rng: np.random.Generator | None = None) -> NDArray[np.float64]:
    """Rank of each target among its samples, as a number between 0 and 1, (S, N), (N,) -> (N,).

    With b samples below y and t samples equal to y, the rank of y among all S + 1 numbers can be any of b, ..., b + t,
    so PIT is between b / (S + 1) and (b + t + 1) / (S + 1). The result is the middle of this range (the mid-rank) or,
    given a generator, a random number in it. With a generator, the values are exactly uniform if y comes from the same
    distribution as its samples; mid-ranks take only S + 1 values if there are no ties.

    >>> pit_samples([[1.0, 2.0], [3.0, 2.0], [4.0, 5.0]], [2.0, 2.0])   # b = 1, t = 0 and b = 0, t = 2: 1.5 / 4 each
    array([0.375, 0.375])
    """
    x = _check.finite(samples, "samples", "(S, N)")
    target = _check.targets(y, x.shape[1])
    below, ties = (x < target).sum(axis=0), (x == target).sum(axis=0)
    place = 0.5 if rng is None else rng.random(len(target))
    pit: NDArray[np.float64] = (below + place * (ties + 1)) / (len(x) + 1)
    return pit


def pit_gaussian(mean: ArrayLike, std: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """Phi((y - mean) / std) of each target, (N,), (N,), (N,) -> (N,).

    >>> pit_gaussian([0.0, 0.0], [1.0, 1.0], [0.0, 1.959964]).round(6)
    array([0.5  , 0.975])
    """
    m, sigma = _check.gaussians(mean, std)
    return mixture_cdf(m[None], sigma[None], _check.targets(y, len(m)))


def pit_mixture(means: ArrayLike, stds: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """1/S sum_s Phi((y - m_s) / sigma_s) of each target, (S, N), (S, N), (N,) -> (N,).

    >>> pit_mixture([[0.0], [100.0]], [[1.0], [1.0]], [0.0])   # (1/2 + 0) / 2
    array([0.25])
    """
    m, sigma = _check.mixture(means, stds)
    return mixture_cdf(m, sigma, _check.targets(y, m.shape[1]))


def pit_histogram(values: ArrayLike, bins: int = 10) -> PitHistogram:
    """Number of PIT values (N,) in each of `bins` bins of equal width; bins are (lo, hi], the first closed at 0.

    >>> pit_histogram([0.0, 0.1, 0.5, 0.9], bins=2).counts
    array([3, 1])
    """
    pit = _check.between_zero_and_one(values, "values")
    edges = np.linspace(0, 1, _check.whole(bins, "bins", 1, MOST_BINS) + 1)
    return PitHistogram(edges, np.bincount(np.searchsorted(edges[1:-1], pit), minlength=bins))


def quantile_calibration(values: ArrayLike, levels: ArrayLike = LEVELS) -> QuantileCalibration:
    """Share of PIT values (N,) that are at most each level (L,), and the mean of |share - level|.

    >>> quantile_calibration([0.1, 0.2, 0.3, 0.4], levels=[0.25, 0.5])
    QuantileCalibration(levels=array([0.25, 0.5 ]), observed=array([0.5, 1. ]), error=0.375)
    """
    pit = np.sort(_check.between_zero_and_one(values, "values"))
    p = _check.between_zero_and_one(levels, "levels")
    observed = np.searchsorted(pit, p, side="right") / len(pit)
    return QuantileCalibration(p, observed, float(np.abs(observed - p).mean()))
