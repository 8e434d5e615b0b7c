"""Predictive distribution of a Bayesian regressor:  p(y | x) = 1/S sum_s N(y; m_s, sigma_s^2),  a mixture of Gaussians.

`means` and `stds`, both (S, N), are the predictions of S weight samples for N targets. The law of total variance splits
the variance of the mixture into  total^2 = aleatoric^2 + epistemic^2  with

    aleatoric^2 = 1/S sum_s sigma_s^2            noise that all weight samples predict
    epistemic^2 = 1/S sum_s (m_s - mean m)^2     disagreement of their means
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from bnneval import _check

HALVINGS = 64  # the bracket of a quantile ends 2^64 times narrower, which is below rounding


class StdSplit(NamedTuple):
    """Standard deviation of N predictions and its two parts, each (N,): total^2 = aleatoric^2 + epistemic^2."""

    total: NDArray[np.float64]
    aleatoric: NDArray[np.float64]
    epistemic: NDArray[np.float64]


def mixture_mean(means: ArrayLike, stds: ArrayLike) -> NDArray[np.float64]:
    """Mean of each mixture, (S, N), (S, N) -> (N,).

    >>> mixture_mean([[1.0], [4.0]], [[1.0], [2.0]])
    array([2.5])
    """
    mean: NDArray[np.float64] = _check.mixture(means, stds)[0].mean(axis=0)
    return mean


def std_split(means: ArrayLike, stds: ArrayLike) -> StdSplit:
    """Total, aleatoric and epistemic standard deviation of each mixture, (S, N), (S, N) -> three arrays (N,).

    >>> [part.item() for part in std_split([[1.0], [9.0]], [[3.0], [3.0]])]   # 5^2 = 3^2 + 4^2
    [5.0, 3.0, 4.0]
    """
    m, sigma = _check.mixture(means, stds)
    aleatoric, epistemic = np.sqrt((sigma**2).mean(axis=0)), m.std(axis=0)
    return StdSplit(np.hypot(aleatoric, epistemic), aleatoric, epistemic)


def total_std(means: ArrayLike, stds: ArrayLike) -> NDArray[np.float64]:
    """Standard deviation of each mixture, (S, N), (S, N) -> (N,).

    >>> total_std([[1.0], [9.0]], [[3.0], [3.0]])
    array([5.])
    """
    return std_split(means, stds).total


def aleatoric_std(means: ArrayLike, stds: ArrayLike) -> NDArray[np.float64]:
    """Root of the mean variance, (S, N), (S, N) -> (N,): the noise that the weight samples predict.

    >>> aleatoric_std([[1.0], [9.0]], [[1.0], [7.0]])   # sqrt((1 + 49) / 2)
    array([5.])
    """
    return std_split(means, stds).aleatoric


def epistemic_std(means: ArrayLike, stds: ArrayLike) -> NDArray[np.float64]:
    """Standard deviation of the means, with S in the denominator, (S, N), (S, N) -> (N,); 0 if all samples agree.

    >>> epistemic_std([[1.0], [9.0]], [[3.0], [3.0]])
    array([4.])
    """
    return std_split(means, stds).epistemic


def standardised(x: NDArray[np.float64], mean: NDArray[np.float64], std: NDArray[np.float64]) -> NDArray[np.float64]:
    """z = (x - mean) / std; infinite, without a warning, if it exceeds the largest float."""
    with np.errstate(over="ignore"):
        z: NDArray[np.float64] = (x - mean) / std
    return z


def mixture_cdf(means: NDArray[np.float64], stds: NDArray[np.float64], x: NDArray[np.float64]) -> NDArray[np.float64]:
    """F(x) = 1/S sum_s Phi((x - m_s) / sigma_s) of each mixture at its own x, (S, N), (S, N), (N,) -> (N,)."""
    cdf: NDArray[np.float64] = ndtr(standardised(x, means, stds)).mean(axis=0)
    return cdf


def mixture_quantile(means: ArrayLike, stds: ArrayLike, p: float) -> NDArray[np.float64]:
    """The x with F(x) = p of each mixture, by bisection to rounding error, (S, N), (S, N) -> (N,).

    The p-quantile of a mixture lies between the smallest and the largest p-quantile of its components. If F is flat at
    p to rounding, as in the gap between two narrow components at p = 1/2, this is the left end of the flat part for
    p <= 1/2 and the right end otherwise.

    >>> mixture_quantile([[-1.0], [1.0]], [[1.0], [1.0]], 0.5).round(9) + 0.0   # the median of a symmetric density
    array([0.])
    """
    m, sigma = _check.mixture(means, stds)
    _check.fraction(p, "p")
    if p > 0.5:  # by symmetry: F is more accurate near 0 than near 1
        return -mixture_quantile(-m, sigma, 1 - p)
    ends = m + sigma * ndtri(p)
    low: NDArray[np.float64] = ends.min(axis=0)
    high: NDArray[np.float64] = ends.max(axis=0)
    for _ in range(HALVINGS):
        middle = low + (high - low) / 2
        below = mixture_cdf(m, sigma, middle) < p
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high
