"""Accepted forms of predictions and labels, converted once where they enter.

probs    (N, C) rows of probabilities; (S, N, C) for S weight samples, which are averaged;
         (N,) probabilities of class 1 if there are two classes, which become the columns 1 - p and p
labels   (N,) column numbers; booleans if there are two classes; with `classes=`, the columns' names
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check

Names = Sequence[Any] | NDArray[Any]
"""One distinct name per column, such as ["cat", "dog"]."""


class Pairs(NamedTuple):
    """Predictions (N, C) with their labels (N,), and the number of weight samples that were averaged."""

    probs: NDArray[Any]
    labels: NDArray[np.int64]
    weight_samples: int


def table(probs: ArrayLike, name: str = "probs") -> NDArray[Any]:
    """(N, C) or (S, N, C); binary probabilities (N,) become (N, 2). Rows are checked only if they were (N,)."""
    a = _check.array(probs, name)
    if a.ndim == 3:
        return _check.shaped(a, name, "(S, N, C)")
    if a.ndim != 1:
        return _check.shaped(a, name, "(N, C)")
    p = _check.between_zero_and_one(_check.shaped(a, name, "(N,)"), name)
    return np.column_stack([1 - p, p])


def matrix(probs: ArrayLike, name: str = "probs") -> NDArray[Any]:
    """(N, C), averaged over weight samples if there are any. Rows of an input (N, C) are not checked yet."""
    a = table(probs, name)
    if a.ndim == 2:
        return a
    mean: NDArray[np.float64] = _check.sample_probabilities(a, name).mean(axis=0)
    return mean


def weight_samples(probs: ArrayLike) -> int:
    """Number of weight samples that are averaged: S for (S, N, C), otherwise 1."""
    shape = np.shape(probs)
    return int(shape[0]) if len(shape) == 3 else 1


def pairs(probs: ArrayLike, labels: ArrayLike, classes: Names | None = None) -> Pairs:
    """Predictions as an array (N, C), whose rows are not checked yet, and labels as column numbers."""
    p = matrix(probs)
    return Pairs(p, numbered(labels, p.shape, classes), weight_samples(probs))


def numbered(labels: ArrayLike, shape: tuple[int, ...], classes: Names | None = None) -> NDArray[np.int64]:
    """Labels of predictions of shape (N, C) as column numbers (N,); with `classes`, labels are looked up there."""
    n, columns = shape
    if classes is None:
        return _check.labels(labels, n, columns)
    places = {name: c for c, name in enumerate(names(classes, columns))}
    given = _check.values(labels, "labels")
    if given.shape != (n,):
        raise ValueError(f"expected labels of shape ({n},), got {given.shape}")
    found = [places.get(name, -1) for name in given.tolist()]
    if -1 in found:
        i = found.index(-1)
        raise ValueError(f"expected labels among the classes {shown(classes)}, got {given.tolist()[i]!r} at index {i}")
    return np.array(found, dtype=np.int64)


def names(classes: Names, columns: int) -> list[Any]:
    """The names of all columns as Python objects; raises ValueError if a name is missing or occurs twice."""
    listed: list[Any] = _check.values(classes, "classes").tolist()
    if len(listed) != columns or len(set(listed)) != columns:
        raise ValueError(f"expected {columns} different classes, one per column of probs, got {shown(classes)}")
    return listed


def shown(classes: Names) -> str:
    """The first names, for a message of one line."""
    first = [str(name) for name in list(classes)[:10]]
    return ", ".join(first) + (", ..." if len(classes) > 10 else "")
