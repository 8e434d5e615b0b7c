"""Tables in files: the numbers of every row, and the target in the last column, with or without a header.

    csv     --data-root FILE or FOLDER

Values are separated by semicolons, commas or white space, so the text files of the UCI repository are read as they are
(yacht_hydrodynamics.data, housing.data, winequality-red.csv). A folder holds data.txt, itself or in data/, with the
columns to use in index_features.txt and index_target.txt, the layout of many papers on regression with these data sets.
"""

from __future__ import annotations

import csv as csv_module
import io
import math
from pathlib import Path

import numpy as np

from psdenets.data.tables import Table, table_of
from psdenets.errors import BadInput


def csv(root: Path) -> Table:
    """A file of numbers whose last column is to be predicted, or a folder with data.txt."""
    file = next((found for found in (root / "data.txt", root / "data" / "data.txt") if found.is_file()), root)
    names, values = read_csv(file)
    columns, target = _columns(file, len(names))
    if not columns:
        raise BadInput(f"expected columns and a target in {file}, got {len(names)} column")
    return table_of(values[:, columns], values[:, target], file, [names[k] for k in columns])


def _columns(file: Path, width: int) -> tuple[list[int], int]:
    """Columns to predict from, and the one to predict: the last, or those in the index files next to data.txt."""
    indices = [file.with_name(f"index_{part}.txt") for part in ("features", "target")]
    if file.name != "data.txt" or not all(path.is_file() for path in indices):
        return list(range(width - 1)), width - 1
    features, target = ([int(cell) for cell in read_csv(path)[1].ravel()] for path in indices)
    if len(target) != 1 or not set(features + target) <= set(range(width)):
        raise BadInput(f"expected columns from 0 to {width - 1} and one target in {indices[0].parent}/index_*.txt")
    return features, target[0]


def read_csv(path: Path) -> tuple[list[str], np.ndarray]:
    """Column names and numbers (N, columns) of a file; a missing value is NaN.

    Values are separated by semicolons, commas or white space, whichever the first line has. If this line has only
    numbers, there is no header, and the columns are x1, x2, ...
    """
    if not path.is_file():
        raise BadInput(f"expected a csv file, got {path}")
    try:
        (first, names), *lines = _lines(path)
        rows = [(number, [float(cell) if cell.strip() else math.nan for cell in line]) for number, line in lines]
    except (ValueError, UnicodeDecodeError, csv_module.Error) as error:
        raise BadInput(f"expected a header and rows of numbers in {path}, got: {error}") from None
    if all(map(_is_number, names)):
        rows = [(first, [float(cell) for cell in names]), *rows]
        names = [f"x{k}" for k in range(1, len(names) + 1)]
    for number, row in rows:
        if len(row) != len(names):
            raise BadInput(f"expected {len(names)} values in line {number} of {path}, got {len(row)}")
    if not rows:
        raise BadInput(f"expected rows of numbers in {path}, got only a header")
    return [name.strip() for name in names], np.array([row for _, row in rows])


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Number and cells of each line of a file that is not empty."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        text = file.read()
    separator = next((mark for mark in ";," if mark in text.strip().partition("\n")[0]), None)
    if separator is None:
        found = [(number, line.split()) for number, line in enumerate(text.splitlines(), start=1)]
    else:
        reader = csv_module.reader(io.StringIO(text), delimiter=separator)
        found = [(reader.line_num, line) for line in reader]
    return [(number, line) for number, line in found if line]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
