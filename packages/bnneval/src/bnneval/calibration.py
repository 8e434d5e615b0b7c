"""Expected calibration error,  ECE = sum_b n_b / N |acc_b - conf_b|  over bins b of confidence, and its variants.

Bins are (lo, hi], with the first closed at 0, so every sample, including those with confidence 0 or 1, is in exactly
one bin, and the denominator is N. (Half-open bins [lo, hi) up to 1 would lose the most confident samples, those where
a float32 softmax saturates at 1.)
Equal-width edges are `linspace(0, 1, bins + 1)`; equal-mass edges are quantiles of the confidences, so tied
confidences share a bin and the order of the samples does not matter.

`n_bins` is another name for `bins`. Predictions and labels take the forms of `bnneval.scoring`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check, _forms
from bnneval._forms import Names
from bnneval.predictive import averaged, top

NORMS = ("l1", "l2", "max")
SCHEMES = ("width", "mass")

FEW_BINS = 32
MOST_BINS = 100_000
STRETCH = 65536  # confidences binned at a time: half a megabyte, which fits in the cache


class Reliability(NamedTuple):
    """Bin edges (B + 1,), and samples, mean confidence and accuracy per bin, (B,); both are NaN for an empty bin.

    `weight_samples` is the number of weight samples whose probabilities were averaged.
    """

    edges: NDArray[np.float64]
    counts: NDArray[np.int64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    weight_samples: int = 1


class Tally(NamedTuple):
    """Number of samples, number of hits and sum of the confidences per bin, (B,) each; tallies of two sets add up."""

    counts: NDArray[np.int64]
    hits: NDArray[np.int64]
    confidence: NDArray[np.float64]

    def means(self, edges: NDArray[np.float64], weight_samples: int = 1) -> Reliability:
        """Mean confidence and accuracy per bin."""
        with np.errstate(invalid="ignore"):
            return Reliability(
                edges, self.counts, self.confidence / self.counts, self.hits / self.counts, weight_samples
            )


def ece(
    probs: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    norm: str = "l1",
    scheme: str = "width",
    *,
    classes: Names | None = None,
    n_bins: int | None = None,
) -> float:
    """Calibration error of the predicted class, (N, C), (N,) -> a fraction in [0, 1].

    The norm is "l1" for sum_b n_b/N |gap_b| (ECE), "l2" for sqrt(sum_b n_b/N gap_b^2) (RMSCE), "max" for max_b |gap_b|
    (MCE); the scheme is "width" for equal-width bins or "mass" for equal-mass bins (adaptive ECE).

    >>> round(ece([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)   # one bin: confidence 0.9, accuracy 0.5
    0.4
    """
    _check.choice(norm, "norm", NORMS)
    return distance(reliability(probs, labels, bins, scheme, classes=classes, n_bins=n_bins), norm)


def mce(
    probs: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: str = "width",
    *,
    classes: Names | None = None,
    n_bins: int | None = None,
) -> float:
    """Maximum calibration error: the largest |accuracy - confidence| over non-empty bins.

    >>> round(mce([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6]], [0, 1, 1]), 6)   # gaps 0.4 and 0.4
    0.4
    """
    return ece(probs, labels, bins, "max", scheme, classes=classes, n_bins=n_bins)


def classwise_ece(
    probs: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    norm: str = "l1",
    scheme: str = "width",
    *,
    classes: Names | None = None,
    n_bins: int | None = None,
) -> float:
    """Calibration error of each class's probability, averaged over classes: 1/C sum_c ECE(p_c, 1[y = c]).

    Unlike `ece`, it takes the whole distribution into account, not just its largest entry.

    >>> round(classwise_ece([[0.9, 0.1], [0.9, 0.1]], [0, 1]), 6)   # 0.9 against 1/2 and 0.1 against 1/2
    0.4
    """
    _check.choice(norm, "norm", NORMS)
    p, bins = averaged(probs), _check.bins(bins, n_bins)
    y = _forms.numbered(labels, p.shape, classes)
    per_class = [distance(binned(p[:, c].copy(), y == c, bins, scheme), norm) for c in range(p.shape[1])]
    return float(np.mean(per_class))


def reliability(
    probs: ArrayLike,
    labels: ArrayLike,
    bins: int = 15,
    scheme: str = "width",
    *,
    classes: Names | None = None,
    n_bins: int | None = None,
) -> Reliability:
    """Number of samples, mean confidence and accuracy in each bin of confidence.

    >>> reliability([[0.9, 0.1], [0.9, 0.1]], [0, 1], bins=2).accuracy
    array([nan, 0.5])
    """
    diagram = binned(*top(probs, labels, classes), _check.bins(bins, n_bins), scheme)
    return diagram._replace(weight_samples=_forms.weight_samples(probs))


def binned(confidence: NDArray[np.float64], hit: NDArray[np.bool_], bins: int, scheme: str) -> Reliability:
    """Reliability of predicted probabilities of an event: confidence (N,) against whether it happened, `hit` (N,)."""
    _check.choice(scheme, "scheme", SCHEMES)
    if scheme == "width":
        edges = equal_width(bins)
    else:
        _check.whole(bins, "bins", 1, MOST_BINS)
        # The bin of a sample that lies on a quantile depends on rounding; this expression rounds like scikit-learn's.
        edges = np.percentile(confidence, np.linspace(0, 1, bins + 1) * 100)
    return tally(confidence, hit, edges).means(edges)


def equal_width(bins: int) -> NDArray[np.float64]:
    """Edges (bins + 1,) of equal-width bins of [0, 1]."""
    return np.linspace(0, 1, _check.whole(bins, "bins", 1, MOST_BINS) + 1)


def tally(confidence: NDArray[np.float64], hit: NDArray[np.bool_], edges: NDArray[np.float64]) -> Tally:
    """Count samples and hits, and add up confidences, in the bins between `edges`."""
    bins = len(edges) - 1

    def of_stretch(rows: slice) -> NDArray[np.float64]:
        values = confidence[rows]
        index = _bin_index(values, edges[1:-1]) + bins * hit[rows]
        counts, sums = np.bincount(index, minlength=2 * bins), np.bincount(index, values, minlength=2 * bins)
        return np.stack([counts, sums]).astype(np.float64, copy=False).reshape(2, 2, bins)

    (missed, hits), sums = np.sum([of_stretch(rows) for rows in _check.blocks(len(hit), STRETCH)], axis=0)
    return Tally((missed + hits).astype(np.int64), hits.astype(np.int64), sums.sum(axis=0))


def _bin_index(confidence: NDArray[np.float64], inner: NDArray[np.float64]) -> NDArray[np.int64]:
    """Number of inner edges below each confidence; for few bins, comparing with every edge is twice as fast."""
    if len(inner) >= FEW_BINS:
        return np.searchsorted(inner, confidence)
    below = np.zeros(confidence.shape, dtype=np.uint8)
    for edge in inner:
        below += (confidence > edge).view(np.uint8)
    return below.astype(np.int64)


def distance(diagram: Reliability, norm: str) -> float:
    """The calibration error of a diagram in one of `NORMS`."""
    filled = diagram.counts > 0
    gap = np.abs(diagram.accuracy[filled] - diagram.confidence[filled])
    weight = diagram.counts[filled] / diagram.counts.sum()
    if norm == "max":
        return float(gap.max())
    return float(weight @ gap) if norm == "l1" else float(np.sqrt(weight @ gap**2))
