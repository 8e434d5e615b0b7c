"""Predictive distribution of a Bayesian classifier:  p(y | x) = 1/S sum_s p(y | x, w_s).

Probabilities are averaged. Averaging logits or log-probabilities is wrong: exp of the mean of log p does not sum to 1.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check, _forms


class Top(NamedTuple):
    """The predicted class of each of N samples: its probability, and whether it is the label."""

    confidence: NDArray[np.float64]
    correct: NDArray[np.bool_]


def mean_probs(sample_probs: ArrayLike) -> NDArray[np.float64]:
    """Probabilities averaged over weight samples, (S, N, C) -> (N, C).

    >>> mean_probs([[[1.0, 0.0]], [[0.5, 0.5]]])
    array([[0.75, 0.25]])
    """
    mean: NDArray[np.float64] = _check.sample_probabilities(sample_probs).mean(axis=0)
    return mean


def averaged(probs: ArrayLike, name: str = "probs") -> NDArray[np.float64]:
    """Probabilities (N, C): the input itself, (S, N, C) averaged over weight samples, or (N,) of class 1 out of two."""
    return _check.probabilities(_forms.matrix(probs, name), name)


def top(probs: ArrayLike, labels: ArrayLike, classes: _forms.Names | None = None) -> Top:
    """Confidence max_c p_c and correctness argmax_c p_c == y of each row; the first of tied classes is predicted.

    >>> top([[0.5, 0.5], [0.2, 0.8]], [1, 1])
    Top(confidence=array([0.5, 0.8]), correct=array([False,  True]))
    """
    a, y, _ = _forms.pairs(probs, labels, classes)
    confidence, correct = np.empty(len(a)), np.empty(len(a), dtype=bool)
    size = max(_check.LEAST_ROWS, _check.BLOCK // a.shape[1])
    room = np.empty((a.shape[1], min(size, len(a))))
    for rows in _check.blocks(len(a), size):
        p = _check.columns(a, rows, room)
        best = p.max(axis=0, out=confidence[rows])
        correct[rows] = _first_best(p, best, y[rows])
    return Top(confidence, correct)


def _first_best(p: NDArray[np.float64], best: NDArray[np.float64], y: NDArray[np.int64]) -> NDArray[np.bool_]:
    """argmax_c p[c, i] == y[i] for columns p (C, n) with maxima `best`, several times faster than an argmax."""
    at_best = p == best
    if np.count_nonzero(at_best) > best.size:
        seen = np.zeros(best.size, dtype=bool)
        for row in at_best:  # among tied classes keep the first: this one, unless an earlier class attains the maximum
            np.greater(row, seen, out=row)
            seen |= row
    hit: NDArray[np.bool_] = at_best.ravel().take(y * best.size + np.arange(best.size))
    return hit


def true_class_probs(probs: ArrayLike, labels: ArrayLike, classes: _forms.Names | None = None) -> NDArray[np.float64]:
    """Probability that each row assigns to its label, (N, C), (N,) -> (N,).

    >>> true_class_probs([[0.9, 0.1], [0.3, 0.7]], [0, 0])
    array([0.9, 0.3])
    """
    p = averaged(probs)
    y = _forms.numbered(labels, p.shape, classes)
    return p[np.arange(len(p)), y]
