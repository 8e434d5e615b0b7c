"""Tables: rows of numbers, each with a class or a number to predict.

A row is an image of one pixel whose channels are the columns, float32 (N, columns, 1, 1), so tables share networks,
training and run directories with images. The model standardises the columns, and the likelihood the target.

    gap               y = sin(3 x) + 0.1 e,             x in [-2, -0.7] or [0.7, 2]: no data between them
    cos               y = cos(3 x) + 0.1 e,             x in [-2, 2]
    heteroscedastic   y = x + 0.5 sin(3 x) + s(x) e,    s(x) = 0.05 + 0.2 (x + 2),     x in [-2, 2]
    bimodal           y = +5 or -5, whatever x is: the toy of the paper's appendix
    diabetes          442 patients, 10 columns, included in scikit-learn

e ~ N(0, 1), and the toys have 1,000 points from a fixed seed. Tables in files are read by `table_files`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from psdenets.data.images import Images
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput
from psdenets.seeds import generator

if TYPE_CHECKING:
    from torch import Tensor

POINTS = 1000
_LEAST = 1e-6  # a constant column is divided by this, relative to its size, and so becomes zero


class Table(NamedTuple):
    """Rows and the specification of their columns and target."""

    rows: Images
    spec: ImageSpec


def table_of(x: np.ndarray, y: np.ndarray, where: object, columns: Sequence[str] = (), regress: bool = True) -> Table:
    """A table from numbers x (N, columns) and y (N,): numbers, or class indices if `regress` is False.

    Raises:
        BadInput: if the shapes do not match, or a value is missing or infinite.
    """
    rows = rows_of(x, where, len(columns) or None)
    names = tuple(columns) or tuple(f"x{k}" for k in range(1, x.shape[1] + 1))
    mean, std = (tuple(v.tolist()) for v in _moments(x.astype(np.float64)))
    if not regress:
        raise_unless_one_each(len(rows), y, where)
        classes = tuple(str(k) for k in range(int(y.max()) + 1))
        spec = ImageSpec(len(names), 1, 1, classes, mean, std, columns=names)
        return Table(Images(rows, torch.from_numpy(y.astype(np.int64))), spec)
    target = targets_of(y, len(rows), where)
    centre, spread = _moments(target.double().numpy()[:, None])
    if not target.std() > 0:
        raise BadInput(f"expected targets that differ in {where}, got {float(target[0]):g} for all")
    spec = ImageSpec(len(names), 1, 1, (), mean, std, columns=names, target=(float(centre[0]), float(spread[0])))
    return Table(Images(rows, target), spec)


def rows_of(x: np.ndarray, where: object, columns: int | None = None) -> Tensor:
    """float32 (N, columns, 1, 1); raises BadInput unless x (N, columns) holds finite numbers."""
    if x.ndim != 2 or x.dtype.kind not in "fiub" or 0 in x.shape:
        raise BadInput(f"expected numbers (rows, columns) in {where}, got {x.dtype} {x.shape}")
    if columns is not None and x.shape[1] != columns:
        raise BadInput(f"expected {columns} columns in {where}, got {x.shape[1]}")
    bad = np.argwhere(~np.isfinite(x.astype(np.float64)))
    if len(bad):
        row, column = bad[0]
        raise BadInput(f"expected finite numbers in {where}, got {x[row, column]} in row {row}, column {column}")
    return torch.from_numpy(np.array(x, np.float32, order="C"))[:, :, None, None]


def targets_of(y: np.ndarray, rows: int, where: object) -> Tensor:
    """float32 (N,); raises BadInput unless y has one finite number per row."""
    raise_unless_one_each(rows, y, where)
    if y.dtype.kind not in "fiub":
        raise BadInput(f"expected numbers to predict in {where}, got {y.dtype}")
    found = torch.from_numpy(y.astype(np.float32))
    if not torch.isfinite(found).all():
        raise BadInput(f"expected finite targets in {where}, got {y[~np.isfinite(y.astype(np.float32))][0]}")
    return found


def raise_unless_one_each(rows: int, y: np.ndarray, where: object) -> None:
    """Raise BadInput unless y has one value per row."""
    if y.shape != (rows,):
        raise BadInput(f"expected {rows} targets in {where}, got shape {y.shape}")


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and std of each column; the std of a constant column is small but positive."""
    mean, std = values.mean(0), values.std(0)
    return mean, np.maximum(std, _LEAST * np.maximum(1.0, np.abs(mean)))


def _line(name: str, low: float, high: float, gap: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x in [low, high] but not in (-gap, gap), standard normals e, and random bits, of a toy data set."""
    g = generator(0, f"toy {name}")
    u, bit = torch.rand(2, POINTS, generator=g, dtype=torch.float64).numpy()
    x = low + u * (high - low - 2 * gap)
    e = torch.randn(POINTS, generator=g, dtype=torch.float64).numpy()
    return np.where(x > -gap, x + 2 * gap, x), e, bit < 0.5


def gap(root: Path) -> Table:  # noqa: ARG001 - computed
    """A sine with no data in the middle."""
    x, e, _ = _line("gap", -2, 2, 0.7)
    return table_of(x[:, None], np.sin(3 * x) + 0.1 * e, "gap", ["x"])


def cos(root: Path) -> Table:  # noqa: ARG001 - computed
    """A cosine with constant noise."""
    x, e, _ = _line("cos", -2, 2)
    return table_of(x[:, None], np.cos(3 * x) + 0.1 * e, "cos", ["x"])


def heteroscedastic(root: Path) -> Table:  # noqa: ARG001 - computed
    """Noise that grows from left to right."""
    x, e, _ = _line("heteroscedastic", -2, 2)
    return table_of(x[:, None], x + 0.5 * np.sin(3 * x) + (0.05 + 0.2 * (x + 2)) * e, "heteroscedastic", ["x"])


def bimodal(root: Path) -> Table:  # noqa: ARG001 - computed
    """Targets 5 and -5, independent of x."""
    x, _, bit = _line("bimodal", -2, 2)
    return table_of(x[:, None], np.where(bit, 5.0, -5.0), "bimodal", ["x"])


def diabetes(root: Path) -> Table:  # noqa: ARG001 - scikit-learn includes it
    """Progression of diabetes after one year, from ten measurements."""
    from sklearn.datasets import load_diabetes

    found = load_diabetes()
    return table_of(found.data, found.target, "diabetes", found.feature_names)
