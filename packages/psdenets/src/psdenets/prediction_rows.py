"""What `psdenets.predict` says about each picture or row, as text, csv or JSON.

entropy     predictive entropy H in nats, from 0 (certain) to log C (uniform over C classes)
epistemic   mutual information of class and weights: the part of H that comes from differences between weight
            samples; the rest, H - epistemic, all samples have in common
ood         share of the validation images of the run whose entropy is below H, ties counting half. It is 0.5 on
            average for images like those, and near 1 for pictures that the network is unusually unsure about
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO

from psdenets.errors import BadInput, printable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from psdenets.data.spec import ImageSpec

Row = dict[str, Any]
_UNITS = {"entropy": "entropy_nats", "max_entropy": "max_entropy_nats", "epistemic": "epistemic_nats"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet executes cells that begin with one of these


def about_classes(
    probs: NDArray[np.float64], spec: ImageSpec, familiar: NDArray[np.float64] | None = None
) -> list[Row]:
    """Class, probability and uncertainty of each image or row.

    Args:
        probs: probabilities (S, N, C).
        spec: the names of the classes.
        familiar: sorted entropies of validation images; without them there is no score `ood`.
    """
    import numpy as np

    from bnneval import entropy_split

    mean, split = probs.mean(0), entropy_split(probs)
    scores = None if familiar is None else rank(split.total, familiar)
    return [
        {
            "class": spec.classes[int(mean[i].argmax())],
            "probability": float(mean[i].max()),
            "entropy": float(split.total[i]),
            "max_entropy": float(np.log(len(spec.classes))),
            "epistemic": float(split.epistemic[i]),
            **({} if scores is None else {"ood": float(scores[i])}),
            "probabilities": dict(zip(spec.classes, mean[i].tolist(), strict=True)),
        }
        for i in range(len(mean))
    ]


def rank(values: NDArray[np.float64], known: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of the sorted `known` values below each value, ties counting half.

    Example:
        >>> import numpy as np
        >>> rank(np.array([0.0, 2.0, 2.5, 9.0]), np.array([1.0, 2.0, 2.0, 3.0])).tolist()
        [0.0, 0.5, 0.75, 1.0]
    """
    import numpy as np

    sides = np.searchsorted(known, values, "left") + np.searchsorted(known, values, "right")
    return np.asarray(sides / (2 * len(known)), np.float64)


def about_numbers(law: Any, predictive: NDArray[np.float64]) -> list[Row]:
    """Mean, 90 % interval and standard deviations of each row, from location and scale (S, N, 2)."""
    location, scale = predictive[..., 0], predictive[..., 1]
    epistemic = location.std(0)
    total = (epistemic**2 + ((law.law.std() * scale) ** 2).mean(0)) ** 0.5
    low, high = law.interval(predictive)
    names = ("mean", "low", "high", "std", "epistemic_std")
    rows = zip(location.mean(0), low, high, total, epistemic, strict=True)
    return [dict(zip(names, map(float, row), strict=True)) for row in rows]


def as_text(row: Row) -> str:
    """One line for a terminal."""
    where = row["image"] if "image" in row else f"{row['file']} row {row['row']}"
    if "class" in row:
        unsure = f"entropy {row['entropy']:.3f} of {row['max_entropy']:.3f} nats, epistemic {row['epistemic']:.3f}"
        ood = f", ood {row['ood']:.2f}" if "ood" in row else ""
        return printable(f"{where}  {row['class']}  {row['probability']:.1%}  {unsure}{ood}")
    return printable(
        f"{where}  {row['mean']:.6g}  90 % from {row['low']:.6g} to {row['high']:.6g}  std {row['std']:.3g}, "
        f"of the weights {row['epistemic_std']:.3g}"
    )


def as_cells(row: Row) -> dict[str, Any]:
    """Columns of a csv file by name; names of files and classes are harmless in terminals and spreadsheets."""
    flat = {_UNITS.get(name, name): value for name, value in row.items() if name != "probabilities"}
    flat |= {f"p({name})": value for name, value in row.get("probabilities", {}).items()}
    return {_harmless(name): _harmless(value) if isinstance(value, str) else value for name, value in flat.items()}


def _harmless(text: str) -> str:
    """Text without control characters, which no spreadsheet takes for a formula."""
    return f"'{printable(text)}" if text.startswith(_FORMULA) else printable(text)


def _opened(out: str) -> TextIO:
    try:
        return Path(out).open("w", newline="", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"could not write --out {out}: {error.strerror}") from None


@dataclass
class Writer:
    """Writes rows one after the other."""

    file: TextIO
    form: str  # "text", "csv" or "json"
    _columns: list[str] = field(default_factory=list)

    @classmethod
    @contextmanager
    def to(cls, out: str | None, json: bool) -> Iterator[Self]:
        """A writer to a file, csv or with `json` lines of JSON, or to standard output."""
        if out is None:
            yield cls(sys.stdout, "json" if json else "text")
            return
        with _opened(out) as file:
            yield cls(file, "json" if json else "csv")

    def write(self, row: Row) -> None:
        """Write one row; the first one of a csv file is preceded by a header."""
        from bnneval.strict_json import dumps

        if self.form != "csv":
            self.file.write((dumps(row) if self.form == "json" else as_text(row)) + "\n")
            return
        cells = as_cells(row)
        if not self._columns:
            self._columns = list(cells)
            csv.writer(self.file, lineterminator="\n").writerow(self._columns)
        csv.DictWriter(self.file, self._columns, lineterminator="\n").writerow(cells)
