"""Pictures of a run, under plots/: reliability, entropy, training curves, sample weight paths.

Reliability and entropy are drawn by bnneval; what is drawn here needs a training history or a weight process.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bnneval import ece, mean_probs, predictive_entropy, reliability
from bnneval import plots as bnn_plots
from psdenets.models.psde import Classifier
from psdenets.seeds import generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from psdenets.models.base import ImageClassifier
    from psdenets.runs.directory import RunDir
    from psdenets.runs.predictions import Predictions

_COLOURS = {"train": bnn_plots.GREY, "val": bnn_plots.ORANGE, "test": bnn_plots.BLUE}
_LINES = {"train": ":", "val": "--", "test": "-"}
_PATHS, _WEIGHTS = 12, 3  # sample paths of each of so many weights


def draw_plots(run: RunDir, predictions: Predictions, model: ImageClassifier, history: list[dict[str, Any]]) -> None:
    """As PNG: reliability and entropy, curves where there were epochs, weight paths where weights have a path."""
    mean = mean_probs(predictions.probs)
    folder = run.file("plots")
    figures = {
        "reliability": bnn_plots.reliability_diagram(
            reliability(mean, predictions.labels), ece(mean, predictions.labels)
        ),
        "entropy": bnn_plots.entropy_histograms({"test": predictive_entropy(mean)}, mean.shape[1]),
    }
    if history:
        figures["curves"] = training_curves(history)
    if isinstance(model, Classifier):
        figures["weights"] = weight_paths(model)
    for name, figure in figures.items():
        save(figure, folder / f"{name}.png")


def save(figure: Figure, path: Path) -> None:
    """Write a PNG for screens and reports."""
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context(bnn_plots.STYLE):
        figure.savefig(path, dpi=150)


def training_curves(history: list[dict[str, Any]]) -> Figure:
    """Accuracy and ECE of training, validation and test images after each epoch (the paper's Figures 5 and 6)."""
    figure, axes = _figure(7.0, 2.8, 2)
    epochs = [record["epoch"] for record in history]
    for ax, metric, label in ((axes[0], "accuracy", "accuracy (%)"), (axes[1], "ece", "ECE (%)")):
        for part, colour in _COLOURS.items():
            values = [100 * record[part][metric] for record in history]
            ax.plot(epochs, values, color=colour, linestyle=_LINES[part], linewidth=1.5, label=part)
        ax.set(xlabel="epoch", ylabel=label)
    axes[1].set_ylim(bottom=0)
    axes[0].legend(frameon=False)
    return figure


def weight_paths(model: Classifier) -> Figure:
    """A few weights of the first noisy block: sample paths over depth, the stochastic window shaded."""
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
    for k, colour in zip(
        _shown_weights(process.S.cpu().numpy(), process.D.cpu().numpy()), bnn_plots.CYCLE, strict=False
    ):
        for i in range(_PATHS):
            ax.plot(ts, path.w[i, :, k].cpu().numpy(), color=colour, linewidth=0.8, alpha=0.7)
        kind = "stochastic" if k in process.S else "deterministic"
        ax.plot([], [], color=colour, label=f"weight {k} ({kind})")
    ax.set(xlabel=f"depth t of block {b + 1}", ylabel="w", xlim=(0, 1))
    ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _shown_weights(S: np.ndarray, D: np.ndarray) -> list[int]:
    """Weights spread over S, and one of D where both exist."""
    if len(S) and len(D):
        return [int(S[0]), int(S[len(S) // 2]), int(D[len(D) // 2])]
    some = S if len(S) else D
    return [int(some[round(k * (len(some) - 1) / (_WEIGHTS - 1))]) for k in range(_WEIGHTS)]


def _figure(width: float, height: float, columns: int) -> tuple[Figure, Any]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(bnn_plots.STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, np.atleast_1d(figure.subplots(1, columns))
