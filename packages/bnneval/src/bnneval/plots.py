"""Publication figures of calibration, entropy, detection, abstention and shift. No pyplot, no global state.

Every function makes a figure of its own, or draws into the axes given as `ax=`, and returns the figure.
The Okabe-Ito colours are distinguishable with any colour vision; line styles and hatches differ as well, so the figures
can be printed in black and white.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from bnneval.binomial import clopper_pearson
from bnneval.calibration import Reliability
from bnneval.pit import PitHistogram, QuantileCalibration
from bnneval.roc import Roc
from bnneval.selective import Abstention, RiskCoverage
from bnneval.shift import Shift

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")
T = TypeVar("T")

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
CYCLE = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", ":", "-.")  # 4 styles and 6 colours give 12 distinct pairs
STYLE: Any = {
    "font.size": 9, "axes.titlesize": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.8,
    "legend.fontsize": 8, "legend.frameon": False, "pdf.fonttype": 42, "svg.hashsalt": "bnneval",
}  # fmt: skip


def _styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Draw with STYLE, without changing the caller's matplotlib settings."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        from matplotlib import rc_context

        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


def _figure(width: float, height: float, **grid: Any) -> tuple[Figure, Any]:
    """A figure and its axes; one column of text is 3.4 inches wide."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(**grid)


def _axes(ax: Axes | None, width: float = 3.4, height: float = 2.8) -> tuple[Figure, Axes]:
    """The caller's axes and their figure, or new ones."""
    if ax is None:
        return _figure(width, height)
    figure: Any = ax.get_figure(root=True)
    return figure, ax


def _legend_below(axes: Axes, source: Axes | None = None, columns: int = 2) -> None:
    """A legend under the axes, where it covers no data; its entries are those of `source`, by default the same axes."""
    handles, labels = (source or axes).get_legend_handles_labels()
    anchor: Any = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": 3.8}
    axes.legend(handles, labels, ncols=columns, **anchor)


@_styled
def reliability_diagram(
    diagram: Reliability, error: float, *, level: float = 0.95, ax: Axes | tuple[Axes, Axes] | None = None
) -> Figure:
    """Accuracy against confidence per bin, with the gap hatched and its exact binomial interval; below it, the counts.

    Args:
        diagram: from `reliability` or `Evaluation.reliability`.
        error: the calibration error in the title, a fraction.
        level: confidence level of the intervals of the accuracies.
        ax: two axes, for accuracies and for counts; with a single one the counts are written above them.
    """
    if ax is None:
        figure, (upper, lower) = _figure(3.4, 4.4, nrows=2, sharex=True, height_ratios=[3, 1])
    else:
        upper, lower = ax if isinstance(ax, tuple) else (ax, None)
        figure, upper = _axes(upper)
    _accuracy_bars(upper, diagram, level)
    upper.set(ylabel="accuracy", xlim=(0, 1), ylim=(0, 1), title=f"ECE = {100 * error:.2f} %")
    filled = diagram.counts > 0
    left, width, counts = diagram.edges[:-1][filled], np.diff(diagram.edges)[filled], diagram.counts[filled]
    middle = left + width / 2
    if lower is None:
        upper.set(xlabel="confidence", ylim=(0, 1.2), yticks=np.linspace(0, 1, 6))
        _write_counts(upper, middle, np.ones(len(counts)), counts)
        _legend_below(upper)
        return figure
    lower.bar(left, counts, width=width, align="edge", color=GREY, edgecolor="white", linewidth=0.6)
    lower.set(xlabel="confidence", ylabel="samples", xlim=(0, 1), ylim=(0, 1.6 * counts.max()))
    _write_counts(lower, middle, counts, counts)
    _legend_below(lower, upper)
    return figure


def _accuracy_bars(axes: Axes, diagram: Reliability, level: float) -> None:
    """Accuracies with intervals, gaps to the confidences, and the diagonal."""
    filled = diagram.counts > 0
    accuracy, confidence, counts = diagram.accuracy[filled], diagram.confidence[filled], diagram.counts[filled]
    left, width = diagram.edges[:-1][filled], np.diff(diagram.edges)[filled]
    style: dict[str, Any] = {"width": width, "align": "edge", "linewidth": 0.6}
    axes.bar(left, accuracy, color=BLUE, edgecolor="white", label="accuracy", **style)
    gap: Any = {"facecolor": "none", "edgecolor": ORANGE, "hatch": "////", "label": "gap to confidence"}
    axes.bar(left, confidence - accuracy, bottom=accuracy, **gap, **style)
    low, high = clopper_pearson(np.round(accuracy * counts).astype(np.int64), counts, level)
    bars: Any = {"fmt": "none", "ecolor": "black", "elinewidth": 0.8, "capsize": 1.5}
    ends = np.maximum([accuracy - low, high - accuracy], 0)
    axes.errorbar(left + width / 2, accuracy, yerr=ends, label=f"{100 * level:g} % interval", **bars)
    axes.plot([0, 1], [0, 1], color="black", linestyle="--", linewidth=0.8, label="perfect calibration")


def _write_counts(axes: Axes, x: NDArray[np.float64], y: NDArray[Any], counts: NDArray[np.int64]) -> None:
    """The numbers of samples, upright above the bars."""
    for at, height, count in zip(x, y, counts, strict=True):
        text: Any = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": 6}
        axes.annotate(f"{count}", (at, height), (0, 2), textcoords="offset points", **text)


@_styled
def entropy_histograms(
    entropies: Mapping[str, NDArray[np.float64]],
    classes: int,
    bins: int = 40,
    title: str = "",
    *,
    ax: Axes | None = None,
) -> Figure:
    """Densities of predictive entropy on [0, ln C], one per set; the legend shows mean and std (ddof = 0)."""
    figure, axes = _axes(ax)
    edges = np.linspace(0, max(np.log(classes), 1e-9), bins + 1)
    for (name, entropy), colour, line in zip(entropies.items(), cycle(CYCLE), cycle(LINES), strict=False):
        density, _ = np.histogram(np.clip(entropy, 0, edges[-1]), edges, density=True)
        axes.stairs(density, edges, color=colour, alpha=0.35, fill=True)
        label = f"{name}: {entropy.mean():.3f} ± {entropy.std():.3f}"
        axes.stairs(density, edges, color=colour, linestyle=line, linewidth=1.3, label=label)
    axes.set(xlabel="predictive entropy (nats)", ylabel="density", xlim=(0, edges[-1]), title=title)
    axes.legend()
    return figure


@_styled
def roc_curve(curves: Mapping[str, Roc], title: str = "", *, ax: Axes | None = None) -> Figure:
    """ROC curves of out-of-distribution detection; the legend shows the areas."""
    figure, axes = _axes(ax, 3.4, 3.2)
    for (name, curve), colour, line in zip(curves.items(), cycle(CYCLE), cycle(LINES), strict=False):
        label = f"{name}: AUC = {curve.auc:.3f}"
        axes.plot(curve.fpr, curve.tpr, color=colour, linestyle=line, linewidth=1.5, label=label)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=(0, (1, 3)), linewidth=0.8)
    axes.set(xlabel="false positive rate", ylabel="true positive rate (OOD)", title=title)
    axes.set(xlim=(0, 1), ylim=(0, 1.005), aspect="equal")
    axes.legend(loc="lower right")
    return figure


@_styled
def risk_coverage_curve(
    curves: Mapping[str, RiskCoverage], chosen: Abstention | None = None, title: str = "", *, ax: Axes | None = None
) -> Figure:
    """Share of errors among the predictions kept against the share kept; the legend shows the areas.

    `chosen` marks the coverage of a threshold from `abstention_threshold`, and the risk that was asked for.
    """
    figure, axes = _axes(ax, 3.4, 3.2)
    for (name, curve), colour, line in zip(curves.items(), cycle(CYCLE), cycle(LINES), strict=False):
        label = f"{name}: AURC = {curve.aurc:.4f}"
        axes.plot(curve.coverage, curve.risk, color=colour, linestyle=line, linewidth=1.5, label=label)
    if chosen is not None:
        asked = f"risk asked for: {100 * chosen.max_risk:g} %"
        axes.axhline(chosen.max_risk, color=GREY, linestyle=(0, (1, 3)), linewidth=0.8, label=asked)
        kept = f"confidence ≥ {chosen.threshold:.4f} keeps {100 * chosen.coverage:.1f} %"
        where: Any = {
            "color": "black",
            "linestyle": "none",
            "marker": "o",
            "markersize": 4,
            "clip_on": False,
            "zorder": 3,
        }
        axes.plot([chosen.coverage], [chosen.risk if chosen.kept else 0.0], label=kept, **where)
        if chosen.upper is not None and chosen.kept:
            bound = f"bound with {100 * chosen.level:g} % confidence" if chosen.level else ""
            axes.vlines(chosen.coverage, chosen.risk, chosen.upper, color="black", linewidth=0.8, label=bound)
    axes.set(xlabel="coverage", ylabel="risk (share of errors)", xlim=(0, 1), title=title)
    axes.set_ylim(bottom=0)
    _legend_below(axes, columns=1)
    return figure


@_styled
def entropy_by_severity(shift: Shift, *, ax: Axes | None = None) -> Figure:
    """Mean entropy by severity: a thin line for each corruption, and the pooled mean with its standard deviation."""
    figure, axes = _axes(ax)
    for k, row in enumerate(shift.cells.values()):
        mean_of_one = [cell.entropy_mean for cell in row.values()]
        label = None if k else "one corruption"
        axes.plot(list(row), mean_of_one, color=GREY, linewidth=0.6, alpha=0.6, label=label)
    severity = list(shift.by_severity)
    mean = np.array([cell.entropy_mean for cell in shift.by_severity.values()])
    std = np.array([cell.entropy_std for cell in shift.by_severity.values()])
    axes.fill_between(
        severity, mean - std, mean + std, color=BLUE, alpha=0.15, linewidth=0, label="± 1 std over images"
    )
    axes.plot(severity, mean, color=BLUE, marker="o", linewidth=1.8, label="all corruptions")
    if shift.clean is not None:
        axes.axhline(shift.clean.entropy_mean, color=ORANGE, linestyle="--", linewidth=1, label="clean")
    axes.set(xlabel="severity", ylabel="predictive entropy (nats)", xticks=severity)
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right")
    return figure


@_styled
def pit_diagram(histogram: PitHistogram, title: str = "", *, ax: Axes | None = None) -> Figure:
    """Density of PIT values per bin; about 95 % of the bins of a calibrated model are in the shaded band."""
    figure, axes = _axes(ax)
    n, width = histogram.counts.sum(), np.diff(histogram.edges)
    axes.bar(
        histogram.edges[:-1], histogram.counts / n / width, width=width, align="edge", color=BLUE, edgecolor="white"
    )
    # A count is binomial with probability `width`; divided by n * width it is a density with mean 1.
    std = np.sqrt(width * (1 - width) / n) / width
    band = {"baseline": 1 - 2 * std, "fill": True, "color": ORANGE, "alpha": 0.3, "label": "calibrated: 1 ± 2 std"}
    axes.stairs(1 + 2 * std, histogram.edges, **band)
    axes.axhline(1, color="black", linestyle="--", linewidth=0.8)
    axes.set(xlabel="PIT", ylabel="density", xlim=(0, 1), title=title)
    axes.set_ylim(bottom=0)
    _legend_below(axes)
    return figure


@_styled
def quantile_diagram(curves: Mapping[str, QuantileCalibration], title: str = "", *, ax: Axes | None = None) -> Figure:
    """Observed share below each predicted quantile, one curve per model; the legend shows the mean distance."""
    figure, axes = _axes(ax, 3.4, 3.2)
    for (name, curve), colour, line in zip(curves.items(), cycle(CYCLE), cycle(LINES), strict=False):
        label = f"{name}: error = {100 * curve.error:.2f} %"
        axes.plot(curve.levels, curve.observed, color=colour, linestyle=line, linewidth=1.5, label=label)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=(0, (1, 3)), linewidth=0.8)
    axes.set(xlabel="predicted level of the quantile", ylabel="observed share below it", title=title)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.legend(loc="upper left")
    return figure


@_styled
def save(figure: Figure, stem: str | Path, dpi: int = 200) -> list[Path]:
    """Write STEM.pdf (vector) and STEM.png; they contain no date, so equal figures produce identical files."""
    paths = [Path(f"{stem}.{kind}") for kind in ("pdf", "png")]
    figure.savefig(paths[0], metadata={"CreationDate": None})
    figure.savefig(paths[1], dpi=dpi)
    return paths
