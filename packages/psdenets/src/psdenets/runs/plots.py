"""The figures of a run: reliability, entropy, ROC (drawn by bnneval), training curves, weight paths, widths, grids."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bnneval import ece, mean_probs, predictive_entropy, reliability, roc
from bnneval import plots as bnn_plots
from psdenets.errors import printable
from psdenets.models.psde import Classifier, DeepBlock
from psdenets.models.regression import LocationScale
from psdenets.runs.files import atomically
from psdenets.runs.regression_plots import function_figure, number_figures
from psdenets.seeds import generator
from psdenets.tasks import task_of
from sdeweights import WeightProcess

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from psdenets.data import Images
    from psdenets.models.base import ImageClassifier
    from psdenets.runs.directory import RunDir
    from psdenets.runs.predictions import Predictions

_COLOURS = {"train": bnn_plots.GREY, "val": bnn_plots.ORANGE, "test": bnn_plots.BLUE}
_LINES = {"train": ":", "val": "--", "test": "-"}
_PATHS, _WEIGHTS = 12, 3  # sample paths per weight, number of weights shown
_WIDTHS, _WIDTH_GROUP, _WIDTH_WEIGHTS = 64, 8, 20_000  # paths, paths at a time and weights per block for the widths


def draw_plots(
    run: RunDir,
    predictions: Predictions,
    model: ImageClassifier,
    epochs: list[dict[str, Any]],
    data: tuple[Images, Images | None],
) -> None:
    """Write plots/*.png, with training curves if there are epochs and weight paths if the weights follow a process.

    A function of one number is drawn with the training data, or the test data if they are not given: `data` has both.
    """
    figures = prediction_figures(predictions)
    if model.spec.target is not None and model.spec.channels == 1:
        figures["function"] = function_figure(model, data[1] or data[0])
    if epochs:
        figures["curves"] = training_curves(epochs)
    if isinstance(model, Classifier):
        figures["weights"] = weight_paths(model)
        noisy = {f"block {b + 1}": width_ratios(block) for b, block in enumerate(model.deep_blocks) if block.noisy}
        figures |= {"widths": width_histogram(noisy)} if noisy else {}
    for name, figure in figures.items():
        save(figure, run.file(f"plots/{name}.png"))


def prediction_figures(test: Predictions, ood: Mapping[str, Predictions] | None = None) -> dict[str, Figure]:
    """Reliability and entropy figures of the test predictions, and ROC figures for out-of-distribution sets by name.

    For numbers, their calibration, and predicted against true ones.
    """
    if isinstance(test.likelihood, LocationScale):
        return number_figures(test)
    mean = mean_probs(test.probs)
    entropies = {"test": predictive_entropy(mean)}
    diagram = bnn_plots.reliability_diagram(reliability(mean, test.labels), ece(mean, test.labels))
    figures = {"reliability": diagram}
    for name, predictions in (ood or {}).items():
        label = printable(name).replace("$", r"\$")  # matplotlib sets text between dollar signs as formulas
        entropies[label] = predictive_entropy(mean_probs(predictions.probs))
        figures["roc"] = bnn_plots.roc_curve({"entropy": roc(entropies["test"], entropies[label])})
    return {**figures, "entropy": bnn_plots.entropy_histograms(entropies, mean.shape[1])}


def save(figure: Figure, path: Path) -> None:
    """Write a PNG atomically; creates missing folders."""
    from matplotlib import rc_context

    with rc_context(bnn_plots.STYLE):
        atomically(path, lambda temporary: figure.savefig(temporary, dpi=150, format="png"))


def training_curves(records: list[dict[str, Any]]) -> Figure:
    """Accuracy and ECE of training, validation and test images by epoch (the paper's Figures 5 and 6).

    RMSE and NLL, if numbers are predicted. The test images are left out if they were not evaluated after each epoch.
    """
    figure, axes = _figure(7.0, 2.8, 2)
    epochs = [record["epoch"] for record in records]
    panels = [("accuracy", "accuracy (%)", 100), ("ece", "ECE (%)", 100)]
    if not task_of(records[0]["val"]).classifies:
        panels = [("rmse", "RMSE", 1), ("nll", "NLL (nats)", 1)]
    for ax, (metric, label, unit) in zip(axes, panels, strict=True):
        for part, colour in _COLOURS.items():
            if part not in records[0]:
                continue
            values = [unit * record[part][metric] for record in records]
            ax.plot(epochs, values, color=colour, linestyle=_LINES[part], linewidth=1.5, label=part)
        ax.set(xlabel="epoch", ylabel=label)
    if metric == "ece":
        ax.set_ylim(bottom=0)
    axes[0].legend(frameon=False)
    return figure


def metrics_by_steps(by_steps: Mapping[int, Mapping[str, float]], trained: int) -> Figure:
    """Accuracy, NLL and ECE of a trained network against the solver steps per block; `trained` is marked."""
    figure, axes = _figure(7.0, 2.3, 3)
    steps, ticks = list(by_steps), [max(by_steps)]
    for n in reversed(steps):  # labels of neighbours would overlap
        ticks += [n] if ticks[-1] / n > max(1.4, (steps[-1] / steps[0]) ** 0.1) else []
    panels = (("accuracy", "accuracy (%)", 100), ("nll", "NLL (nats)", 1), ("ece", "ECE (%)", 100))
    if not task_of(by_steps[steps[0]]).classifies:
        panels = (("rmse", "RMSE", 1), ("nll", "NLL (nats)", 1), ("coverage_90", "90 % coverage (%)", 100))
    for ax, colour, (name, label, unit) in zip(axes, bnn_plots.CYCLE, panels, strict=False):
        values = [unit * row[name] for row in by_steps.values()]
        ax.plot(steps, values, color=colour, marker="o", markersize=4, linewidth=1.3)
        ax.axvline(trained, color=bnn_plots.GREY, linestyle="--", linewidth=0.8, zorder=0)
        ax.set_xscale("log", base=2)
        ax.set_xticks(ticks)
        ax.xaxis.set_major_formatter("{x:.0f}")
        ax.minorticks_off()
        ax.set_ylabel(label)
    axes[2].set_ylim(bottom=0)
    axes[1].set_xlabel("solver steps per block (dashed: last grid of training)")
    return figure


def weight_paths(model: Classifier) -> Figure:
    """Sample paths of a few weights of the first stochastic block over depth; the stochastic window is shaded."""
    import torch

    blocks = model.deep_blocks
    noisy = [b for b, block in enumerate(blocks) if not block.process.cut.deterministic]
    b = noisy[0] if noisy else 0
    process = blocks[b].process
    with torch.no_grad():
        path = blocks[b].draw(_PATHS, generator(0, "weight paths", device=process.w0.device))
    figure, (ax,) = _figure(7.0, 2.8, 1)
    ts = path.ts.cpu().numpy()
    if noisy:
        ax.axvspan(process.cut.t1, process.cut.t2, color="#eeeeee", zorder=0, label="stochastic")
    shown = _shown_weights(process.S.cpu().numpy(), process.D.cpu().numpy())
    for k, colour in zip(shown, bnn_plots.CYCLE, strict=False):
        for i in range(_PATHS):
            ax.plot(ts, path.w[i, :, k].cpu().numpy(), color=colour, linewidth=0.8, alpha=0.7)
        kind = "stochastic" if k in process.S else "deterministic"
        ax.plot([], [], color=colour, label=f"weight {k} ({kind})")
    ax.set(xlabel=f"depth t of block {b + 1}", ylabel="w", xlim=(0, 1))
    ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def width_ratios(block: DeepBlock) -> np.ndarray:
    """Standard deviations of noisy weights at t2, posterior / prior, for at most 20,000 weights.

    Both laws get the same noise, so the ratio is exactly 1 if the drifts are equal, for any number of paths.
    """
    import torch

    process, at = block.process, -1 if block.grid.sde is None else block.grid.sde.last
    prior = WeightProcess(process.w0, process.prior.drift, process.prior, process.cut, allow_leak=True)
    chosen = process.S[torch.randperm(len(process.S), generator=generator(0, "width weights"))[:_WIDTH_WEIGHTS]]
    stds = []
    for law in (process, prior):
        g = generator(0, "widths", device=process.w0.device)
        with torch.no_grad():
            paths = (law.sample(block.grid, _WIDTH_GROUP, generator=g) for _ in range(_WIDTHS // _WIDTH_GROUP))
            stds.append(torch.cat([path.w[:, at, chosen] for path in paths]).double().std(0))
    return (stds[0] / stds[1]).cpu().numpy()


def width_histogram(ratios: Mapping[str, np.ndarray]) -> Figure:
    """Histograms of posterior / prior standard deviation, one per block; ratios off the axis count at its ends."""
    figure, axes = _figure(7.0, 1.0 + 1.1 * len(ratios), 1, rows=len(ratios), sharex=True)
    reach = max(0.1, *(1.05 * np.quantile(np.abs(ratio - 1), 0.999) for ratio in ratios.values()))
    edges = 1 + reach * np.linspace(-1, 1, 82)  # a bin around 1, so rounding errors do not split the equal widths
    for ax, colour, (name, ratio) in zip(axes, cycle(bnn_plots.CYCLE), ratios.items(), strict=False):
        counts, _ = np.histogram(np.clip(ratio, edges[0], edges[-1]), edges)
        ax.stairs(100 * counts / len(ratio), edges, color=colour, fill=True, alpha=0.35)
        ax.stairs(100 * counts / len(ratio), edges, color=colour, linewidth=1.3)
        ax.axvline(1, color="black", linestyle="--", linewidth=0.8)
        low, median, high = np.quantile(ratio, [0.01, 0.5, 0.99])
        about = f"{name}: median {median:.3f}, 98 % of the weights from {low:.3f} to {high:.3f}"
        ax.set_title(about, loc="left", fontsize=8)
        ax.set(ylabel="weights (%)", xlim=(max(0, edges[0]), edges[-1]))
    axes[-1].set_xlabel("standard deviation of a weight, posterior / prior (dashed: as wide as the prior)")
    return figure


def _shown_weights(S: np.ndarray, D: np.ndarray) -> list[int]:
    """Indices of the weights to show: spread over S, or two from S and one from D if both are non-empty."""
    if len(S) and len(D):
        return [int(S[0]), int(S[len(S) // 2]), int(D[len(D) // 2])]
    some = S if len(S) else D
    return [int(some[round(k * (len(some) - 1) / (_WEIGHTS - 1))]) for k in range(_WEIGHTS)]


def _figure(width: float, height: float, columns: int, rows: int = 1, **grid: Any) -> tuple[Figure, Any]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(bnn_plots.STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, np.atleast_1d(figure.subplots(rows, columns, **grid))
