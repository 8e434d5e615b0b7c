"""Expected calibration error,  ECE = sum_b n_b / N |acc_b - conf_b|  over bins b of confidence, and its relatives.

Bins are (lo, hi], the first closed at 0: every sample is in exactly one, confidence 0 and 1 included, and the
denominator is N. (Half-open bins [lo, hi) up to 1 lose the samples that a float32 softmax has saturated to 1: the most
confident ones.)
Equal-width edges are `linspace(0, 1, bins + 1)`, equal-mass edges are the quantiles of the confidences, so that tied
confidences share a bin and the order of the samples does not matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bnneval import _check
from bnneval.predictive import top

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

NORMS = ("l1", "l2", "max")
SCHEMES = ("width", "mass")

FEW_BINS = 32
MOST_BINS = 100_000
STRETCH = 65536  # confidences binned at a time: half a megabyte, which stays in cache


class Reliability(NamedTuple):
    """A reliability diagram as data: bin edges (B + 1,), samples a bin, mean confidence and accuracy, each (B,).

    Confidence and accuracy of an empty bin are NaN: there is no such number.
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]


def ece(probs: ArrayLike, labels: ArrayLike, bins: int = 15, norm: str = "l1", scheme: str = "width") -> float:
    """Calibration error of the predicted class, (N, C), (N,) -> a fraction in [0, 1].

    norm "l1": sum_b n_b/N |gap_b| (ECE);  "l2": sqrt(sum_b n_b/N gap_b^2) (RMSCE);  "max": max_b |gap_b| (MCE).
    scheme "width": equal-width bins;  "mass": equal-mass bins (adaptive ECE).

    >>> round(ece([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)   # one bin: confidence 0.9, accuracy 0.5
    0.4
    """
    _check.choice(norm, "norm", NORMS)
    return _distance(reliability(probs, labels, bins, scheme), norm)


def mce(probs: ArrayLike, labels: ArrayLike, bins: int = 15, scheme: str = "width") -> float:
    """Maximum calibration error: the largest |accuracy - confidence| of any bin that has samples.

    >>> round(mce([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1]), 6)   # gaps 0.4 and 0.4
    0.4
    """
    return ece(probs, labels, bins, "max", scheme)


def classwise_ece(
    probs: ArrayLike, labels: ArrayLike, bins: int = 15, norm: str = "l1", scheme: str = "width"
) -> float:
    """Calibration error of every class's probability, averaged over classes: 1/C sum_c ECE(p_c, 1[y = c]).

    Unlike `ece` it looks at all of the distribution, not at its largest entry.

    >>> round(classwise_ece([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)   # 0.9 against 1/2 and 0.1 against 1/2
    0.4
    """
    _check.choice(norm, "norm", NORMS)
    p = _check.probabilities(probs)
    y = _check.labels(labels, *p.shape)
    per_class = [_distance(binned(p[:, c].copy(), y == c, bins, scheme), norm) for c in range(p.shape[1])]
    return float(np.mean(per_class))


def reliability(probs: ArrayLike, labels: ArrayLike, bins: int = 15, scheme: str = "width") -> Reliability:
    """Samples, mean confidence and accuracy in each bin of confidence.

    >>> reliability([[0.9, 0.1], [0.9, 0.1]], [0, 1], bins=2).accuracy
    array([nan, 0.5])
    """
    return binned(*top(probs, labels), bins, scheme)


def binned(confidence: NDArray[np.float64], hit: NDArray[np.bool_], bins: int, scheme: str) -> Reliability:
    """Reliability of any event's predicted probabilities: confidence (N,) against what happened (N,)."""
    _check.whole(bins, "bins", 1, MOST_BINS)
    _check.choice(scheme, "scheme", SCHEMES)
    if scheme == "width":
        edges = np.linspace(0, 1, bins + 1)
    else:
        # A quantile that falls on a sample is decided by rounding; this is scikit-learn's expression, to round alike.
        edges = np.percentile(confidence, np.linspace(0, 1, bins + 1) * 100)

    def tally(rows: slice) -> NDArray[np.float64]:
        values = confidence[rows]
        index = _bin_index(values, edges[1:-1]) + bins * hit[rows]
        counts, sums = np.bincount(index, minlength=2 * bins), np.bincount(index, values, minlength=2 * bins)
        return np.stack([counts, sums]).astype(np.float64, copy=False).reshape(2, 2, bins)

    (missed, hits), sums = np.sum([tally(rows) for rows in _check.blocks(len(hit), STRETCH)], axis=0)
    counts = missed + hits
    with np.errstate(invalid="ignore"):
        return Reliability(edges, counts.astype(np.int64), sums.sum(axis=0) / counts, hits / counts)


def _bin_index(confidence: NDArray[np.float64], inner: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number of inner edges below each confidence; for few bins, comparing with all of them beats a search twice."""
    if len(inner) >= FEW_BINS:
        return np.searchsorted(inner, confidence)
    below = np.zeros(confidence.shape, dtype=np.uint8)
    for edge in inner:
        below += (confidence > edge).view(np.uint8)
    return below.astype(np.int64)


def _distance(diagram: Reliability, norm: str) -> float:
    filled = diagram.counts > 0
    gap = np.abs(diagram.accuracy[filled] - diagram.confidence[filled])
    weight = diagram.counts[filled] / diagram.counts.sum()
    if norm == "max":
        return float(gap.max())
    return float(weight @ gap) if norm == "l1" else float(np.sqrt(weight @ gap**2))
