"""Scores of predicted numbers: RMSE and MAE of a point prediction, and two proper scores of a distribution F,

    NLL  = -mean log p(y)                                  in nats
    CRPS =  mean of  E|X - y| - 1/2 E|X - X'|              in the unit of y;  X and X' independent draws from F

CRPS, the continuous ranked probability score, equals  integral (F(x) - 1[x >= y])^2 dx  (Gneiting and Raftery, 2007). A
certain prediction x has CRPS |x - y|, so CRPS is comparable with MAE.

A prediction is given in one of three forms, which the last part of a function's name says:

    _samples     samples (S, N): S draws from the predictive distribution of each of N targets
    _gaussian    mean (N,) and std (N,)
    _mixture     means (S, N) and stds (S, N): with equal weights, one Gaussian per weight sample
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp, ndtr

from bnneval import _check
from bnneval.mixture import standardised

ROOT_PI = np.sqrt(np.pi)
ROOT_TWO_PI = np.sqrt(2 * np.pi)


def rmse(mean: ArrayLike, y: ArrayLike) -> float:
    """Root mean squared error of point predictions, (N,), (N,).

    >>> rmse([1.0, 2.0], [2.0, 9.0])   # sqrt((1 + 49) / 2)
    5.0
    """
    return float(np.sqrt((_errors(mean, y) ** 2).mean()))


def mae(mean: ArrayLike, y: ArrayLike) -> float:
    """Mean absolute error of point predictions, (N,), (N,).

    >>> mae([1.0, 2.0], [2.0, 9.0])
    4.0
    """
    return float(np.abs(_errors(mean, y)).mean())


def _errors(mean: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    m = _check.scores(mean, "mean")
    return m - _check.targets(y, len(m))


def nll_gaussian(mean: ArrayLike, std: ArrayLike, y: ArrayLike) -> float:
    """Mean negative log-density of Gaussians in nats, (N,), (N,), (N,): 1/2 z^2 + log std + 1/2 log 2 pi.

    >>> round(nll_gaussian([0.0], [1.0], [1.0]), 6)   # 1/2 + 1/2 ln(2 pi)
    1.418939
    """
    m, sigma = _check.gaussians(mean, std)
    return float(_nll(m[None], sigma[None], _check.targets(y, len(m))).mean())


def nll_mixture(means: ArrayLike, stds: ArrayLike, y: ArrayLike) -> float:
    """Mean negative log-density of Gaussian mixtures in nats, (S, N), (S, N), (N,).

    >>> round(nll_mixture([[-1.0], [1.0]], [[1.0], [1.0]], [0.0]), 6)   # both components have z^2 = 1
    1.418939
    """
    return float(nll_mixture_per_target(means, stds, y).mean())


def nll_mixture_per_target(means: ArrayLike, stds: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """-log 1/S sum_s N(y; m_s, sigma_s^2) of each target in nats, (S, N), (S, N), (N,) -> (N,).

    Densities are added as logarithms: a target 50 standard deviations away has a finite NLL.
    """
    m, sigma = _check.mixture(means, stds)
    return _nll(m, sigma, _check.targets(y, m.shape[1]))


def _nll(means: NDArray[np.float64], stds: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(over="ignore"):  # z^2 may exceed the largest float; then so does the NLL
        logs = -(standardised(y, means, stds) ** 2) / 2 - np.log(stds) - np.log(ROOT_TWO_PI)
    nll: NDArray[np.float64] = np.log(len(means)) - logsumexp(logs, axis=0)
    return nll


def crps_gaussian(mean: ArrayLike, std: ArrayLike, y: ArrayLike) -> float:
    """Mean CRPS of Gaussians, (N,), (N,), (N,), in closed form.

    >>> round(crps_gaussian([0.0], [1.0], [0.0]), 6)   # 2 phi(0) - 1 / sqrt(pi)
    0.233695
    """
    return float(crps_gaussian_per_target(mean, std, y).mean())


def crps_gaussian_per_target(mean: ArrayLike, std: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """CRPS of each Gaussian, (N,), (N,), (N,) -> (N,)."""
    m, sigma = _check.gaussians(mean, std)
    return _crps(_mean_distance(_check.targets(y, len(m)) - m, sigma), 2 * sigma / ROOT_PI)


def crps_samples(samples: ArrayLike, y: ArrayLike, *, fair: bool = False) -> float:
    """Mean CRPS of the empirical distributions of samples, (S, N), (N,), in O(S log S) per target.

    On average, S samples score worse than the distribution they come from, by E|X - X'| / (2 S). `fair=True` averages
    |x_s - x_t| over the pairs with s != t only, which removes this bias and needs S >= 2.

    >>> crps_samples([[0.0], [2.0]], [1.0])   # 1 - 1/2 * (2 + 2) / 4
    0.5
    >>> crps_samples([[0.0], [2.0]], [1.0], fair=True)   # 1 - 1/2 * (2 + 2) / 2
    0.0
    """
    return float(crps_samples_per_target(samples, y, fair=fair).mean())


def crps_samples_per_target(samples: ArrayLike, y: ArrayLike, *, fair: bool = False) -> NDArray[np.float64]:
    """CRPS of the samples of each target, (S, N), (N,) -> (N,)."""
    x = _check.finite(samples, "samples", "(S, N)")
    target = _check.targets(y, x.shape[1])
    s = len(x)
    if fair and s < 2:
        raise ValueError("expected at least two samples per target for fair=True, got 1")
    # Of the s (s - 1) / 2 pairs, i (s - i) have the gap between the i-th smallest sample and the next one between them.
    i = np.arange(1, s)
    pairs = (i * (s - i)) @ np.diff(np.sort(x, axis=0), axis=0)
    return _crps(np.abs(x - target).mean(axis=0), 2 * pairs / (s * (s - 1) if fair else s**2))


def crps_mixture(means: ArrayLike, stds: ArrayLike, y: ArrayLike) -> float:
    """Mean CRPS of Gaussian mixtures, (S, N), (S, N), (N,), in closed form (Grimit et al., 2006), O(S^2) per target.

    >>> round(crps_mixture([[0.0], [0.0]], [[1.0], [1.0]], [0.0]), 6)   # two equal components: that of the Gaussian
    0.233695
    """
    return float(crps_mixture_per_target(means, stds, y).mean())


def crps_mixture_per_target(means: ArrayLike, stds: ArrayLike, y: ArrayLike) -> NDArray[np.float64]:
    """CRPS of each Gaussian mixture, (S, N), (S, N), (N,) -> (N,)."""
    m, sigma = _check.mixture(means, stds)
    to_target = _mean_distance(_check.targets(y, m.shape[1]) - m, sigma).mean(axis=0)
    pairs = (sigma / ROOT_PI).sum(axis=0)  # a pair within one component counts once, half of 2 sigma / sqrt(pi)
    for s in range(len(m) - 1):
        pairs += _mean_distance(m[s + 1 :] - m[s], np.hypot(sigma[s + 1 :], sigma[s])).sum(axis=0)
    return _crps(to_target, 2 * pairs / len(m) ** 2)


def _crps(to_target: NDArray[np.float64], between: NDArray[np.float64]) -> NDArray[np.float64]:
    """E|X - y| - 1/2 E|X - X'| from the two means; the only place with this 1/2."""
    return np.maximum(to_target - between / 2, 0)  # CRPS is >= 0 up to rounding, the fair version too


def _mean_distance(mu: NDArray[np.float64], sigma: NDArray[np.float64]) -> NDArray[np.float64]:
    """E|X| of X ~ N(mu, sigma^2):  mu (2 Phi(mu / sigma) - 1) + 2 sigma phi(mu / sigma)."""
    with np.errstate(over="ignore"):  # mu / sigma may exceed the largest float; then E|X| = |mu|
        density = np.exp(-((mu / sigma) ** 2) / 2) / ROOT_TWO_PI
        distance: NDArray[np.float64] = mu * (2 * ndtr(mu / sigma) - 1) + 2 * sigma * density
    return distance
