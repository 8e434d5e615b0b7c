"""Generate PERFORMANCE.md and its plot from performance.json, which `nox -s bench -- --json` writes.

    python docs/performance.py

The text between the tables is in performance-text.md, one section per part; no table is typed by hand.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TITLES = {
    "step": "A training step",
    "noise": "What noise costs",
    "profile": "Where the time goes",
    "predict": "Predictions",
    "memory": "Memory",
    "scaling": "Time against size",
    "start": "Start",
}
Rows = list[dict[str, Any]]


def main() -> None:
    """Write both files."""
    measured = json.loads((HERE / "performance.json").read_text())
    (HERE / "PERFORMANCE.md").write_text(page(measured, (HERE / "performance-text.md").read_text()))
    plot(measured["scaling"]["rows"], HERE / "performance.png")


def page(measured: dict[str, Any], text: str) -> str:
    """The whole page: text and table of each part."""
    texts = sections(text)
    pieces = ["# Speed and memory", texts[""], asked(measured)]
    for part, title in TITLES.items():
        pieces += [f"## {title}", texts[title], table(part, measured[part]["rows"])]
    pieces += ["## What did not help", texts["What did not help"]]
    return "\n\n".join(piece.strip() for piece in pieces if piece.strip()) + "\n"


def sections(text: str) -> dict[str, str]:
    """Text by heading; the text before the first heading has the key ""."""
    parts = re.split(r"^## (.*)$", text, flags=re.M)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def asked(measured: dict[str, Any]) -> str:
    """How many figures have a bound, and a table of those that miss it."""
    rows = [row for part in measured.values() for row in part["rows"] if row["holds"] is not None]
    missed = [row for row in rows if not row["holds"]]
    lines = [f"Of {len(rows)} figures with a bound, {len(rows) - len(missed)} hold."]
    if missed:
        lines += ["These do not:", "", "| where | figure | bound | measured | fastest runs |", "|---|---|---|---|---|"]
        lines += [
            f"| {row['where']} | {row['what']} | {bound(row)} | {number(row)} | {fastest(row)} |" for row in missed
        ]
    return "\n".join(lines)


def table(part: str, rows: Rows) -> str:
    """Figures of one part, grouped by network and batch."""
    if part == "profile":
        return side_by_side(rows)
    best = any(row.get("fastest") is not None for row in rows)
    heads = ["figure", "measured", *(["fastest runs"] if best else []), "bound"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for where, group in itertools.groupby(rows, key=lambda row: row["where"]):
        lines.append(f"| **{where}** |" + " |" * (len(heads) - 1))
        for row in group:
            cells = [row["what"], number(row), *([fastest(row)] if best else []), bound(row)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def side_by_side(rows: Rows) -> str:
    """One row per kind of operation, one column per contender."""
    columns = list(dict.fromkeys(row["where"] for row in rows))
    figures = {(row["what"], row["where"]): row["figure"] for row in rows}
    kinds = list(dict.fromkeys(row["what"] for row in rows))
    lines = ["| milliseconds per solver step | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {kind} | " + " | ".join(f"{figures[kind, c]:.2f}" for c in columns) + " |" for kind in kinds]
    sums = (sum(figures[kind, c] for kind in kinds) for c in columns)
    return "\n".join([*lines, "| sum | " + " | ".join(f"{s:.2f}" for s in sums) + " |"])


def number(row: dict[str, Any]) -> str:
    """The figure with three digits and its unit."""
    figure = row["figure"]
    text = f"{figure:.0f}" if figure >= 100 else f"{figure:.3g}"
    return f"{text} {row['unit']}".strip()


def fastest(row: dict[str, Any]) -> str:
    """The same figure computed from the fastest runs, if it was measured."""
    return "" if row.get("fastest") is None else number({**row, "figure": row["fastest"]})


def bound(row: dict[str, Any]) -> str:
    """The bound, and whether it holds."""
    if row["holds"] is None:
        return ""
    words = f"≤ {row['most']:g}" if row["most"] is not None else f"≥ {row['least']:g}"
    return f"{words}: {'yes' if row['holds'] else '**no**'}"


def plot(rows: Rows, path: Path) -> None:
    """One panel per series with logarithmic axes, and a line of slope 1 through the last point."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    series = [(where, list(group)) for where, group in itertools.groupby(rows, key=lambda row: row["where"])]
    figure, axes = plt.subplots(1, len(series), figsize=(3.3 * len(series), 3.2), constrained_layout=True)
    for ax, (where, group) in zip(axes, series, strict=True):
        sizes = [int(row["what"]) for row in group[:-1]]
        seconds = [row["figure"] for row in group[:-1]]
        ax.loglog(sizes, [seconds[-1] * n / sizes[-1] for n in sizes], color="0.7", label="slope 1")
        ax.loglog(sizes, seconds, "o-", color="C0", label=f"measured, slope {group[-1]['figure']:.2f}")
        name, _, rest = where.partition(" of ")
        ax.set(title=rest.replace(", ", "\n", 1), xlabel=name, xticks=sizes, xticklabels=[f"{n:,}" for n in sizes])
        ax.title.set_fontsize(10)
        ax.minorticks_off()
        low, high = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
        ax.set_ylim(10**low, 10**high)
        ax.legend(fontsize=8, frameon=False)
    axes[0].set_ylabel("seconds")
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main()
