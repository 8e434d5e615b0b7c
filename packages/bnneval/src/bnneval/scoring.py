"""Accuracy and the two proper scoring rules,  NLL = -mean log p_y  and  Brier = mean sum_c (p_c - 1[c = y])^2.

Predictions are (N, C), (S, N, C), which is averaged over the S weight samples, or (N,): probabilities of class 1 out of
two. Labels are column numbers, booleans (two classes) or, with `classes=`, the names of the columns.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check
from bnneval._forms import Names, numbered
from bnneval.predictive import averaged, top, true_class_probs


def accuracy(probs: ArrayLike, labels: ArrayLike, *, classes: Names | None = None) -> float:
    """Share of samples whose most probable class is the label; the first of tied classes counts.

    >>> accuracy([[0.9, 0.1], [0.3, 0.7]], [0, 0])
    0.5
    """
    return float(top(probs, labels, classes).correct.mean())


def nll_per_sample(probs: ArrayLike, labels: ArrayLike, classes: Names | None = None) -> NDArray[np.float64]:
    """-log p_y of each sample in nats, (N, C), (N,) -> (N,); infinite if the label has probability 0."""
    with np.errstate(divide="ignore"):
        loss: NDArray[np.float64] = -np.log(true_class_probs(probs, labels, classes))
    return loss + 0.0  # -log 1 is -0.0


def nll(probs: ArrayLike, labels: ArrayLike, *, classes: Names | None = None) -> float:
    """Mean negative log-likelihood per sample, in nats: -1/N sum_i log p_i[y_i].

    It is infinite if a label has probability 0. It is not clipped, since the result would depend on the threshold.

    >>> round(nll([[0.5, 0.5], [0.25, 0.75]], [0, 0]), 6)   # (ln 2 + ln 4) / 2
    1.039721
    """
    return float(nll_per_sample(probs, labels, classes).mean())


def accuracy_one_sample(sample_probs: ArrayLike, labels: ArrayLike, *, classes: Names | None = None) -> float:
    """Accuracy of a prediction with one weight sample, averaged over the S weight samples; (S, N, C), (N,).

    >>> accuracy_one_sample([[[0.9, 0.1]], [[0.4, 0.6]]], [0])   # 1 and 0; that of the averaged probabilities is 1
    0.5
    """
    return float(np.mean([accuracy(p, labels, classes=classes) for p in _check.sample_probabilities(sample_probs)]))


def nll_one_sample(sample_probs: ArrayLike, labels: ArrayLike, *, classes: Names | None = None) -> float:
    """NLL of a prediction with one weight sample, averaged over the S weight samples; (S, N, C), (N,).

    It is at least the NLL of the averaged probabilities, by Jensen's inequality, and infinite if that of a sample is.

    >>> round(nll_one_sample([[[0.5, 0.5]], [[0.25, 0.75]]], [0]), 6)   # (ln 2 + ln 4) / 2
    1.039721
    """
    return float(np.mean([nll(p, labels, classes=classes) for p in _check.sample_probabilities(sample_probs)]))


def brier_per_sample(probs: ArrayLike, labels: ArrayLike, classes: Names | None = None) -> NDArray[np.float64]:
    """sum_c (p_c - 1[c = y])^2 of each sample, (N, C), (N,) -> (N,), between 0 and 2."""
    p = averaged(probs)
    y = numbered(labels, p.shape, classes)
    truth = p[np.arange(len(p)), y]
    others: NDArray[np.float64] = np.maximum(np.einsum("nc,nc->n", p, p) - truth**2, 0)
    return others + (1 - truth) ** 2


def brier(probs: ArrayLike, labels: ArrayLike, *, classes: Names | None = None) -> float:
    """Multi-class Brier score, summed over classes: 0 if certain and right, 2 if certain and wrong.

    With two classes this is twice the binary score (p_1 - y)^2.

    >>> round(brier([[0.9, 0.1]], [0]), 6)   # (0.9 - 1)^2 + 0.1^2
    0.02
    """
    return float(brier_per_sample(probs, labels, classes).mean())
