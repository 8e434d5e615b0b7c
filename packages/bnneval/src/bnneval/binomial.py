"""Exact (Clopper-Pearson) confidence bounds for a probability, from k successes in n independent trials.

    lower = B^{-1}(a; k, n - k + 1),  upper = B^{-1}(1 - a; k + 1, n - k)      B: the distribution function of Beta

Each bound is wrong with a probability of at most a, for every n and every true probability.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from bnneval import _check


class Bounds(NamedTuple):
    """Lower and upper confidence bounds, each with the shape of the counts."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]


def clopper_pearson(successes: ArrayLike, trials: ArrayLike, level: float = 0.95) -> Bounds:
    """Two-sided interval at `level`: each bound is wrong with a probability of at most (1 - level) / 2.

    >>> round(float(clopper_pearson(0, 10).high), 6)   # 1 - 0.025^(1/10)
    0.308497
    """
    k, n = _counts(successes, trials)
    tail = (1 - _check.fraction(level, "level")) / 2
    with np.errstate(invalid="ignore"):
        low = np.where(k == 0, 0.0, betaincinv(np.maximum(k, 1), n - k + 1, tail))
    return Bounds(low[()], upper_bound(k, n, 1 - tail))


def upper_bound(successes: ArrayLike, trials: ArrayLike, level: float = 0.95) -> NDArray[np.float64]:
    """One-sided bound: the true probability is at most this, with confidence `level`; 1 for no trials.

    >>> round(float(upper_bound(0, 59)), 6)   # 59 trials without an error: below 5 % with 95 % confidence
    0.049508
    """
    k, n = _counts(successes, trials)
    high: NDArray[np.float64] = np.where(
        k == n, 1.0, betaincinv(k + 1, np.maximum(n - k, 1), _check.fraction(level, "level"))
    )
    return high[()]


def _counts(successes: ArrayLike, trials: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    k, n = _check.array(successes, "successes"), _check.array(trials, "trials")
    if k.dtype.kind not in "iu" or n.dtype.kind not in "iu" or np.any(k < 0) or np.any(k > n):
        raise ValueError(f"expected integers 0 <= successes <= trials, got {successes!r} and {trials!r}")
    return k.astype(np.int64, copy=False), n.astype(np.int64, copy=False)
