"""A table of runs: what they are and how well they predict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, final

from psdenets.errors import BadInput
from psdenets.runs.files import path_of
from psdenets.runs.run import Run

COLUMNS = (
    "run", "dataset", "model", "cut", "seed", "accuracy", "ece", "nll", "epistemic_share", "epochs", "seconds",
)  # fmt: skip
_NUMBERS = ("rmse", "crps", "coverage_90")  # shown if a run predicts numbers, in place of accuracy and ECE if all do
_FORMATS = {
    "accuracy": ".2%", "ece": ".2%", "nll": ".4f", "epistemic_share": ".1%", "seconds": ".0f", "rmse": ".4g",
    "crps": ".4g", "coverage_90": ".1%",
}  # fmt: skip


@final
class RunsTable(list[dict[str, Any]]):
    """A list of runs, each a dict by column; printed as a table, in notebooks too."""

    def __str__(self) -> str:
        cells = self._cells()
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells)

    def _cells(self) -> list[list[str]]:
        """The head and all rows as text."""
        columns = self.columns
        return [list(columns), *([_shown(name, row.get(name)) for name in columns] for row in self)]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns, those of classes and of numbers if there are such runs."""
        numbers = [row.get("rmse") is not None for row in self]
        kept = tuple(name for name in COLUMNS if not (numbers and all(numbers) and name in ("accuracy", "ece")))
        at = kept.index("nll")
        return (*kept[:at], *(_NUMBERS if any(numbers) else ()), *kept[at:])

    def _repr_html_(self) -> str:
        from html import escape

        head, *body = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self._cells())
        return f"<table><tr>{head.replace('td>', 'th>')}</tr>{''.join(f'<tr>{row}</tr>' for row in body)}</table>"

    def to_pandas(self) -> Any:
        """A pandas DataFrame with the same columns; raises BadInput if pandas is not installed."""
        try:
            import pandas as pd
        except ImportError:
            raise BadInput("expected pandas for a DataFrame, but it is not installed: pip install pandas") from None
        return pd.DataFrame(list(self), columns=list(self.columns))


def runs_table(runs: str | Path | Run | Sequence[str | Path | Run]) -> RunsTable:
    """A table of finished runs, given as directories or patterns like "runs/*"; unfinished runs are left out.

    Example: print(runs_table(["runs/*"]))
    """
    found = [runs] if isinstance(runs, str | Path | Run) else runs
    if not isinstance(found, Sequence):
        raise BadInput(f"expected runs, directories or patterns, got {runs!r}")
    return RunsTable(_row(run) for each in found for run in _runs(each))


def _runs(pattern: str | Path | Run) -> Iterable[Run]:
    if isinstance(pattern, Run):
        return [pattern]
    here = path_of(pattern)
    paths = sorted(Path(here.anchor).glob(str(here.relative_to(here.anchor))))
    if not paths:
        raise BadInput(f"expected run directories, got {pattern}, which matches nothing")
    return [Run(path) for path in paths if (path / "metrics.json").is_file()]


def _row(run: Run) -> dict[str, Any]:
    """The options are read as text, so a run with custom code is listed without executing it."""
    from psdenets.runs.checksums import Folder

    options, metrics = Folder(run.path).read_json("config.json", dict), run.metrics
    names = (*COLUMNS, *(_NUMBERS if "rmse" in metrics else ()))
    return {name: run.path.name if name == "run" else {**options, **metrics}.get(name) for name in names}


def _shown(name: str, value: Any) -> str:
    return "" if value is None else format(value, _FORMATS.get(name, ""))
