"""Publication figures: reliability, entropy, ROC, entropy by severity, PIT and quantiles. No pyplot, no global state.

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

from bnneval.calibration import Reliability
from bnneval.pit import PitHistogram, QuantileCalibration
from bnneval.roc import Roc
from bnneval.shift import Shift

if TYPE_CHECKING:
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


def _figure(width: float = 3.4, height: float = 2.8, **grid: Any) -> tuple[Figure, Any]:
    """A figure as wide as one column of text (3.4 inches), and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(**grid)


@_styled
def reliability_diagram(diagram: Reliability, error: float) -> Figure:
    """Accuracy against confidence per bin, with the gap hatched; below it, the share of samples per bin."""
    figure, (upper, lower) = _figure(3.4, 3.8, nrows=2, sharex=True, height_ratios=[3, 1])
    left, width = diagram.edges[:-1], np.diff(diagram.edges)
    filled = diagram.counts > 0
    style = {"width": width[filled], "align": "edge", "linewidth": 0.6}
    accuracy, confidence = diagram.accuracy[filled], diagram.confidence[filled]
    upper.bar(left[filled], accuracy, color=BLUE, edgecolor="white", label="accuracy", **style)
    gap = {"facecolor": "none", "edgecolor": ORANGE, "hatch": "////", "label": "gap to confidence"}
    upper.bar(left[filled], confidence - accuracy, bottom=accuracy, **gap, **style)
    upper.plot([0, 1], [0, 1], color="black", linestyle="--", linewidth=0.8, label="perfect calibration")
    upper.set(ylabel="accuracy", xlim=(0, 1), ylim=(0, 1), title=f"ECE = {100 * error:.2f} %")
    upper.legend(loc="upper left", frameon=True, framealpha=0.85, edgecolor="none")  # it may cover bars
    share = diagram.counts / diagram.counts.sum()
    lower.bar(left, share, width=width, align="edge", color=GREY, edgecolor="white", linewidth=0.6)
    lower.set(xlabel="confidence", ylabel="share")
    return figure


@_styled
def entropy_histograms(
    entropies: Mapping[str, NDArray[np.float64]], classes: int, bins: int = 40, title: str = ""
) -> Figure:
    """Densities of predictive entropy on [0, ln C], one per set; the legend shows mean and std (ddof = 0)."""
    figure, axes = _figure()
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
def roc_curve(curves: Mapping[str, Roc], title: str = "") -> Figure:
    """ROC curves of out-of-distribution detection; the legend shows the areas."""
    figure, axes = _figure(3.4, 3.2)
    for (name, curve), colour, line in zip(curves.items(), cycle(CYCLE), cycle(LINES), strict=False):
        label = f"{name}: AUC = {curve.auc:.3f}"
        axes.plot(curve.fpr, curve.tpr, color=colour, linestyle=line, linewidth=1.5, label=label)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=(0, (1, 3)), linewidth=0.8)
    axes.set(xlabel="false positive rate", ylabel="true positive rate (OOD)", title=title)
    axes.set(xlim=(0, 1), ylim=(0, 1.005), aspect="equal")
    axes.legend(loc="lower right")
    return figure


@_styled
def entropy_by_severity(shift: Shift) -> Figure:
    """Mean entropy by severity: a thin line for each corruption, and the pooled mean with its standard deviation."""
    figure, axes = _figure()
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
def pit_diagram(histogram: PitHistogram, title: str = "") -> Figure:
    """Density of PIT values per bin; about 95 % of the bins of a calibrated model are in the shaded band."""
    figure, axes = _figure()
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
    axes.legend(loc="lower center", frameon=True, framealpha=0.85, edgecolor="none")  # it covers bars
    return figure


@_styled
def quantile_diagram(curves: Mapping[str, QuantileCalibration], title: str = "") -> Figure:
    """Observed share below each predicted quantile, one curve per model; the legend shows the mean distance."""
    figure, axes = _figure(3.4, 3.2)
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
