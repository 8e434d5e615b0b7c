"""Paired bootstrap: does a metric that is no mean over samples, ECE or AUROC, differ between two models?

A resample gives sample i the count n_i, the same for both models, and every metric is a function of these counts:

    ECE     sum_b |sum_{i in b} n_i (correct_i - confidence_i)| / N                       (norm l1, equal-width bins)
    AUROC   sum_j m_j (n(score < s_j) + n(score <= s_j)) / 2 / (N M)      over OOD samples j with counts m_j

The test is the one that belongs to the basic interval: with the observed difference d and resampled differences d*,
p = 2 min(P(d* - d >= d), P(d* - d <= d)), which is below 1 - level if 0 is outside the interval at that level.
Intervals and p-values are over samples: they say whether two trained models differ, not whether two seeds would.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check
from bnneval._forms import Names
from bnneval.calibration import equal_width
from bnneval.predictive import top
from bnneval.roc import checked
from bnneval.statistics import basic_interval, resampled

Counts = NDArray[np.int64]
Statistic = Callable[..., float]
"""A metric as a function of the counts of each set of samples."""


class PairedBootstrap(NamedTuple):
    """A metric of two models, the difference a - b with its interval, and the p-value under no difference."""

    a: float
    b: float
    difference: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(
    a: Statistic, b: Statistic, *sizes: int, resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> PairedBootstrap:
    """Compare two statistics of counts, such as `lambda n: n @ loss / len(n)`; each set is resampled to its own size.

    >>> x, y = np.array([1.0, 2.0, 6.0]), np.array([0.0, 1.0, 5.0])
    >>> paired_bootstrap(lambda n: n @ x / 3, lambda n: n @ y / 3, 3).difference
    1.0
    """

    def difference(rng: np.random.Generator) -> float:
        counts = [np.bincount(rng.integers(n, size=n), minlength=n) for n in sizes]
        return float(a(*counts) - b(*counts))

    once = [np.ones(_check.whole(n, "size", 1), dtype=np.int64) for n in sizes]
    both = float(a(*once)), float(b(*once))
    value = both[0] - both[1]
    if not np.isfinite(value):
        raise ValueError(f"expected finite values of both models, got {both[0]} and {both[1]}")
    values = resampled(difference, resamples, seed)
    _, low, high = basic_interval(value, values, level)
    return PairedBootstrap(*both, value, low, high, _p_value(value, values))


def _p_value(value: float, values: NDArray[np.float64]) -> float:
    """Two-sided p-value; the observed value counts as one more resample, so it is never 0."""
    shifted = values - value
    tail = min(np.sum(shifted >= value), np.sum(shifted <= value))
    return float(min(2 * (tail + 1) / (len(values) + 1), 1))


def paired_ece(
    probs_a: ArrayLike,
    probs_b: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    classes: Names | None = None,
    n_bins: int | None = None,
) -> PairedBootstrap:
    """Compare the ECE of two models on the same samples: probs (N, C) or (S, N, C) each, with labels (N,).

    >>> paired_ece([[0.9, 0.1]] * 4, [[0.6, 0.4]] * 4, [0, 0, 1, 1], resamples=10).difference   # 0.4 - 0.1
    0.30000000000000004
    """
    edges = equal_width(_check.bins(bins, n_bins))
    tops = [top(probs, labels, classes) for probs in (probs_a, probs_b)]
    a, b = (_ece_of(*one, edges) for one in tops)
    return paired_bootstrap(a, b, len(tops[0].correct), resamples=resamples, level=level, seed=seed)


def _ece_of(confidence: NDArray[np.float64], correct: NDArray[np.bool_], edges: NDArray[np.float64]) -> Statistic:
    """ECE as a function of the counts of the samples."""
    index, gap = np.searchsorted(edges[1:-1], confidence), correct - confidence
    return lambda n: float(np.abs(np.bincount(index, n * gap)).sum() / len(n))


def paired_auroc(
    scores_id_a: ArrayLike,
    scores_ood_a: ArrayLike,
    scores_id_b: ArrayLike,
    scores_ood_b: ArrayLike,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> PairedBootstrap:
    """Compare the AUROC of two scores, each given for the same N ID and the same M OOD samples.

    >>> paired_auroc([1, 2], [3, 4], [1, 4], [2, 3], resamples=10).difference   # 1 - 1/2
    0.5
    """
    (id_a, ood_a), (id_b, ood_b) = checked(scores_id_a, scores_ood_a), checked(scores_id_b, scores_ood_b)
    if (len(id_a), len(ood_a)) != (len(id_b), len(ood_b)):
        sizes = f"{len(id_a)} and {len(ood_a)} of a, {len(id_b)} and {len(ood_b)} of b"
        raise ValueError(f"expected as many ID and OOD scores of both models, got {sizes}")
    a, b = _auroc_of(id_a, ood_a), _auroc_of(id_b, ood_b)
    return paired_bootstrap(a, b, len(id_a), len(ood_a), resamples=resamples, level=level, seed=seed)


def _auroc_of(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> Statistic:
    """AUROC as a function of the counts of the ID and of the OOD samples; scores are sorted once."""
    order = np.argsort(inside)
    below, upto = (np.searchsorted(inside[order], outside, side) for side in ("left", "right"))

    def area(n: Counts, m: Counts) -> float:
        up_to_rank = np.concatenate([[0], np.cumsum(n[order])])
        return float(m @ (up_to_rank[below] + up_to_rank[upto]) / (2 * len(n) * len(m)))

    return area
