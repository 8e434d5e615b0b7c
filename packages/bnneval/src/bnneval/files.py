"""Predictions as npz files, CSV files and pandas DataFrames.

    npz    probs (N, C), (S, N, C) or (N,) with labels (N,); nothing is unpickled
    table  one row per sample: a column `prob_CLASS` for each class, and `label` with the name of a class. Weight
           samples have rows of their own: `sample` and `image` number them from 0. Binary predictions may have one
           column `prob`, the probability of class 1, and labels 0 and 1 or False and True. Other columns are ignored.

pandas is imported only by `to_frame`.
"""

import csv
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check, _forms

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "prob_"
BINARY = {"0": 0, "1": 1, "false": 0, "true": 1}


class Predictions(NamedTuple):
    """Probabilities (N, C), (S, N, C) or (N,), labels (N,), and the names of the columns, if the file has them."""

    probs: NDArray[Any]
    labels: NDArray[Any]
    classes: tuple[str, ...] | None


class Probs(NamedTuple):
    """Probabilities without labels, and the names of the columns, if the file has them."""

    probs: NDArray[Any]
    classes: tuple[str, ...] | None


def read_predictions(source: "str | Path | pd.DataFrame") -> Predictions:
    """Predictions with labels in a file .csv or .npz, or in a DataFrame; labels in tables become column numbers.

    Raises:
        ValueError: if the table or the arrays are not predictions.
        OSError: if the file cannot be read.
    """
    name, columns = _table(source)
    if columns is None:
        found = read_npz(Path(source), "probs", "labels")
        return Predictions(found[0], found[1], None)
    names, probs = _probs(columns, name, "label")
    labels = _labels(columns["label"], names, name)
    if "sample" in columns:
        order, shape = _order(columns, name)
        by_sample, probs = labels[order].reshape(shape), probs[order].reshape(*shape, -1)
        labels = by_sample[0]
        if (by_sample != labels).any():
            raise ValueError(f"expected one label for each image in {name}, got different ones")
    return Predictions(probs if names else probs[..., 0], labels, tuple(names) or None)


def read_probs(source: "str | Path | pd.DataFrame") -> Probs:
    """Predictions in the same forms, whose labels are not read and may be missing."""
    name, columns = _table(source)
    if columns is None:
        return Probs(read_npz(Path(source), "probs")[0], None)
    names, probs = _probs(columns, name)
    if "sample" in columns:
        order, shape = _order(columns, name)
        probs = probs[order].reshape(*shape, -1)
    return Probs(probs if names else probs[..., 0], tuple(names) or None)


def write_predictions(
    path: str | Path, probs: ArrayLike, labels: ArrayLike | None = None, *, classes: _forms.Names | None = None
) -> None:
    """Write a CSV file that `read_predictions` and `python -m bnneval` read; numbers keep all their digits."""
    columns = _columns(probs, labels, classes)
    with Path(path).open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def to_frame(
    probs: ArrayLike, labels: ArrayLike | None = None, *, classes: _forms.Names | None = None
) -> "pd.DataFrame":
    """The same table as a pandas DataFrame.

    >>> to_frame([[0.75, 0.25]], ["cat"], classes=["cat", "dog"]).iloc[0].to_dict()
    {'label': 'cat', 'prob_cat': 0.75, 'prob_dog': 0.25}
    """
    import pandas as pd

    return pd.DataFrame(_columns(probs, labels, classes))


def _columns(probs: ArrayLike, labels: ArrayLike | None, classes: _forms.Names | None) -> dict[str, list[Any]]:
    """The columns of the table of predictions."""
    a = _forms.table(probs)
    p = _check.sample_probabilities(a) if a.ndim == 3 else _check.probabilities(a)[None]
    samples, n, count = p.shape
    names = [str(name) for name in (range(count) if classes is None else _forms.names(classes, count))]
    columns: dict[str, list[Any]] = {}
    if a.ndim == 3:
        columns["sample"] = np.repeat(np.arange(samples), n).tolist()
        columns["image"] = np.tile(np.arange(n), samples).tolist()
    if labels is not None:
        columns["label"] = [names[c] for c in _forms.numbered(labels, (n, count), classes)] * samples
    return columns | {f"{PREFIX}{name}": p[..., c].ravel().tolist() for c, name in enumerate(names)}


def _read_csv(path: Path) -> dict[str, list[str]]:
    """The columns of a CSV file with a header, as text."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            header, *rows = [row for row in csv.reader(stream) if row] or [[]]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"expected a CSV file in {path.name}, got {error}") from None
    for i, row in enumerate(rows):
        if len(row) != len(header):
            raise ValueError(f"expected {len(header)} values in row {i + 1} of {path.name}, got {len(row)}")
    if len(set(header)) != len(header) or not rows:
        got = "a column twice" if rows else "no rows"
        raise ValueError(f"expected a header and rows in {path.name}, got {got}")
    return {name: list(values) for name, values in zip(header, zip(*rows, strict=True), strict=True)}


def _table(source: Any) -> tuple[str, dict[str, list[Any]] | None]:
    """The name of the source for messages, and its columns; None for an npz file."""
    if hasattr(source, "columns"):
        return "the DataFrame", {str(name): np.asarray(source[name]).tolist() for name in source.columns}
    path = Path(source)
    return path.name, _read_csv(path) if path.suffix.lower() == ".csv" else None


def _probs(columns: Mapping[str, Sequence[Any]], name: str, *needed: str) -> tuple[list[str], NDArray[np.float64]]:
    """The names of the classes, none for a single column `prob`, and the probabilities, one column for each."""
    names = [column.removeprefix(PREFIX) for column in columns if column.startswith(PREFIX)]
    wanted = [f"{PREFIX}{c}" for c in names] or ["prob"]
    if not {*wanted, *needed} <= set(columns):
        listed = " and ".join([*needed, f"{PREFIX}CLASS for each class"])
        raise ValueError(f"expected columns {listed} in {name}, got {_forms.shown(list(columns)) or 'nothing'}")
    return names, np.column_stack([_numbers(columns[column], column, name) for column in wanted])


def _labels(values: Sequence[Any], names: Sequence[str], name: str) -> NDArray[np.int64]:
    """Column numbers of labels, which are names of columns, or 0, 1, False and True for a single column."""
    places = {column: c for c, column in enumerate(names)} or BINARY
    given = [str(value) if names else str(value).lower() for value in values]
    for i, label in enumerate(given):
        if label not in places:
            listed = _forms.shown(names or ["0", "1"])
            raise ValueError(f"expected labels among {listed} in {name}, got {label!r} in row {i + 1}")
    return np.array([places[label] for label in given], dtype=np.int64)


def _numbers(values: Sequence[Any], column: str, name: str) -> NDArray[np.float64]:
    try:
        return np.array([float(value) for value in values])
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected numbers in column {column} of {name}, got {error}") from None


def _order(columns: Mapping[str, Sequence[Any]], name: str) -> tuple[NDArray[np.int64], tuple[int, int]]:
    """The order of the rows that makes them (S, N), and this shape."""
    if "image" not in columns:
        raise ValueError(f"expected a column image next to sample in {name}, got {_forms.shown(list(columns))}")
    sample, image = (_numbers(columns[key], key, name) for key in ("sample", "image"))
    s, n = len(np.unique(sample)), len(np.unique(image))
    order = np.lexsort([image, sample])
    grid = np.repeat(np.arange(s), n), np.tile(np.arange(n), s)
    if len(order) != s * n or (sample[order] != grid[0]).any() or (image[order] != grid[1]).any():
        raise ValueError(f"expected every image 0, 1, ... once for every sample 0, 1, ... in {name}, got other rows")
    return order, (s, n)


def read_npz(path: Path, *keys: str) -> list[NDArray[Any]]:
    """The arrays in an npz file with these names; nothing is unpickled."""
    wanted = " and ".join(keys)
    with path.open("rb") as stream:
        try:
            if not zipfile.is_zipfile(stream):  # numpy's error would suggest unpickling it
                raise ValueError("a file that is not an npz archive")
            stream.seek(0)
            file = np.load(stream, allow_pickle=False)
            if not set(keys) <= set(file):
                raise ValueError(", ".join(sorted(file)) or "nothing")
            return [file[key] for key in keys]
        except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"expected {wanted} in {path.name}, got {error}") from None


def write_metrics(path: str | Path, metrics: Mapping[str, Any]) -> None:
    """Write the numbers of a report as a CSV file with the columns metric and value; those of OOD begin with `ood_`."""
    flat = {key: value for key, value in metrics.items() if not isinstance(value, dict)}
    flat |= {f"ood_{key}": value for key, value in metrics.get("ood", {}).items()}
    with Path(path).open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([("metric", "value"), *flat.items()])
