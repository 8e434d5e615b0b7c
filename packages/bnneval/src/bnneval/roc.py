"""Receiver operating characteristic of out-of-distribution (OOD) detection by a score.

OOD is the positive class, and a higher score (entropy, mutual information, one minus confidence) means more likely OOD:
TPR(c) = P(score_ood >= c), FPR(c) = P(score_id >= c). The area is the Mann-Whitney statistic,
AUC = P(score_ood > score_id) + 1/2 P(score_ood = score_id), computed from integer counts.

The arguments are two sets of scores. scikit-learn's order (y_true, y_score) raises a ValueError instead of giving
another number: it is recognised by as many labels as scores, all of them 0 or 1.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check


class Roc(NamedTuple):
    """One point per distinct score, from (0, 0) at threshold inf to (1, 1); `auc` is the area."""

    fpr: NDArray[np.float64]
    tpr: NDArray[np.float64]
    thresholds: NDArray[np.float64]
    auc: float


class _Counts(NamedTuple):
    thresholds: NDArray[np.float64]
    id_above: NDArray[np.int64]
    ood_above: NDArray[np.int64]


def checked(scores_id: ArrayLike, scores_ood: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Both sets of scores as finite numbers (N,) and (M,); raises ValueError for labels in the place of ID scores."""
    given = _check.array(scores_id, "scores_id")
    inside, outside = _check.scores(given, "scores_id"), _check.scores(scores_ood, "scores_ood")
    if _looks_like_labels(given, outside):
        right = "auroc(s[y == 0], s[y == 1]) for labels y, 1 if OOD, and scores s"
        floats = "; scores that are 0 or 1 can be given as floats" if given.dtype.kind in "iub" else ""
        raise ValueError(f"expected scores of ID samples first, got labels, only 0 and 1: write {right}{floats}")
    return inside, outside


def _looks_like_labels(given: NDArray[Any], outside: NDArray[np.float64]) -> bool:
    """Whether the arguments seem to be (y_true, y_score), scikit-learn's order: as many of each, y_true 0 or 1."""
    if len(given) != len(outside) or set(np.unique(given)) != {0, 1}:
        return False
    return given.dtype.kind in "iub" or not np.isin(outside, (0, 1)).all()


def _counted(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> _Counts:
    """Number of ID and of OOD scores that are >= each distinct score, from the highest score down."""
    inside, outside = np.sort(inside), np.sort(outside)
    thresholds = np.unique(np.concatenate([inside, outside]))[::-1]
    id_above = len(inside) - np.searchsorted(inside, thresholds, side="left")
    ood_above = len(outside) - np.searchsorted(outside, thresholds, side="left")
    return _Counts(thresholds, id_above, ood_above)


def _curve(counts: _Counts) -> Roc:
    thresholds, id_above, ood_above = counts
    inside, outside = np.concatenate([[0], id_above]), np.concatenate([[0], ood_above])
    # Twice the area, counted in pairs, is an integer, so a tie counts exactly one half.
    doubled = int(np.sum(np.diff(inside) * (outside[1:] + outside[:-1])))
    pairs = int(inside[-1]) * int(outside[-1])
    return Roc(
        inside / inside[-1], outside / outside[-1], np.concatenate([[np.inf], thresholds]), doubled / (2 * pairs)
    )


def _average_precision(counts: _Counts) -> float:
    precision = counts.ood_above / (counts.id_above + counts.ood_above)
    return float(np.diff(counts.ood_above, prepend=0) @ precision / counts.ood_above[-1])


def _fpr_where(counts: _Counts, tpr: float) -> float:
    first = int(np.argmax(counts.ood_above / counts.ood_above[-1] >= tpr))
    return float(counts.id_above[first] / counts.id_above[-1])


def roc(scores_id: ArrayLike, scores_ood: ArrayLike) -> Roc:
    """ROC curve with all thresholds, and its area; scores (N,) and (M,).

    >>> roc([0.1, 0.4], [0.4, 0.9]).auc   # 0.9 beats both, 0.4 beats one and ties with one: 3.5 of 4 pairs
    0.875
    """
    return _curve(_counted(*checked(scores_id, scores_ood)))


def auroc(scores_id: ArrayLike, scores_ood: ArrayLike) -> float:
    """Area under the ROC curve: the probability that an OOD score exceeds an ID score; ties count one half.

    >>> auroc([1, 2, 3], [4, 5])
    1.0
    """
    return roc(scores_id, scores_ood).auc


def auroc_of(inside: NDArray[np.float64], outside: NDArray[np.float64]) -> float:
    """`auroc` of scores that were checked before, such as resampled ones."""
    return _curve(_counted(inside, outside)).auc


def aupr(scores_id: ArrayLike, scores_ood: ArrayLike) -> float:
    """Average precision of OOD detection: sum_k (recall_k - recall_{k-1}) precision_k over decreasing thresholds.

    This is the step-wise sum; the trapezoidal rule overestimates it. It depends on the share of OOD samples, which is
    also its value for an uninformative score.

    >>> round(aupr([1, 3], [2, 4]), 6)   # 1/2 at precision 1, 1/2 at precision 2/3
    0.833333
    """
    return _average_precision(_counted(*checked(scores_id, scores_ood)))


def fpr_at_tpr(scores_id: ArrayLike, scores_ood: ArrayLike, tpr: float = 0.95) -> float:
    """Smallest share of ID samples flagged by a threshold that flags at least `tpr` of the OOD samples (FPR95).

    This is a point on the curve, not an interpolation between points.

    >>> fpr_at_tpr([1, 2, 3, 4], [3, 5, 6], tpr=0.95)   # all OOD scores are >= 3, and so are two of four ID scores
    0.5
    """
    if not 0 < tpr <= 1:
        raise ValueError(f"expected 0 < tpr <= 1, got {tpr!r}")
    return _fpr_where(_counted(*checked(scores_id, scores_ood)), tpr)


class Detection(NamedTuple):
    """Three metrics of OOD detection by a score."""

    auroc: float
    aupr: float
    fpr95: float


def detection(scores_id: ArrayLike, scores_ood: ArrayLike) -> Detection:
    """AUROC, AUPR and FPR95 together, sorting the scores only once.

    >>> detection([1, 2], [3, 4])
    Detection(auroc=1.0, aupr=1.0, fpr95=0.0)
    """
    counts = _counted(*checked(scores_id, scores_ood))
    return Detection(_curve(counts).auc, _average_precision(counts), _fpr_where(counts, 0.95))
