"""Figures of a network that predicts numbers: the function of one column, predictions, and their calibration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from bnneval import pit_histogram, quantile_calibration
from bnneval import plots as bnn_plots
from psdenets.models.regression import LEVEL, LocationScale
from psdenets.seeds import generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from psdenets.data import Images
    from psdenets.models.base import ImageClassifier
    from psdenets.runs.predictions import Predictions

_BEYOND = 0.4  # of the range of the data, shown on both sides
_GRID, _SAMPLES, _POINTS, _LINES = 241, 64, 300, 8  # points, weight samples, data points and sampled functions shown


def number_figures(test: Predictions) -> dict[str, Figure]:
    """Predicted against true numbers, and two figures of calibration."""
    law = cast("LocationScale", test.likelihood)
    pit = law.cdf(test.probs, test.labels)
    return {
        "predicted": _against_truth(law, test.probs, test.labels),
        "pit": bnn_plots.pit_diagram(pit_histogram(pit)),
        "quantiles": bnn_plots.quantile_diagram({"test": quantile_calibration(pit)}),
    }


def function_figure(model: ImageClassifier, shown: Images) -> Figure:
    """The function of one column: data, mean, some weight samples, and bands of aleatoric and total uncertainty.

    Bands have a level of 90 %. The inner one has the mean scale of all weight samples; the outer one is the interval of
    their mixture, so what lies between the two comes from the weights.
    """
    x = shown.pixels[:].flatten().double().numpy()
    beyond = _BEYOND * (x.max() - x.min())
    grid = np.linspace(x.min() - beyond, x.max() + beyond, _GRID)
    columns = torch.from_numpy(grid.astype(np.float32))[:, None, None, None].to(model.mean.device)
    predictive, _ = model.predict_batches([columns], _SAMPLES, generator(0, "function"))
    law, found = cast("LocationScale", model.likelihood), predictive.numpy()
    mean, scale = found[..., 0].mean(0), np.sqrt((found[..., 1] ** 2).mean(0))
    low, high = law.interval(found)
    noise = law.law.ppf((1 + LEVEL) / 2) * scale
    figure, ax = _figure(7.0, 3.4)
    ax.fill_between(grid, low, high, color=bnn_plots.BLUE, alpha=0.18, linewidth=0, label="90 %: noise and weights")
    ax.fill_between(
        grid, mean - noise, mean + noise, color=bnn_plots.BLUE, alpha=0.30, linewidth=0, label="90 %: noise"
    )
    ax.plot(grid, found[:_LINES, :, 0].T, color=bnn_plots.GREY, linewidth=0.6, alpha=0.7)
    ax.plot([], [], color=bnn_plots.GREY, linewidth=0.8, label="weight samples")
    ax.plot(grid, mean, color=bnn_plots.BLUE, linewidth=1.6, label="mean")
    y = shown.labels.numpy()
    ax.plot(x[:_POINTS], y[:_POINTS], ".", color="black", markersize=2.5, alpha=0.7, label="data")
    reach = 1.5 * (y.max() - y.min())
    ax.set(xlabel=model.spec.columns[0], ylabel="y", xlim=(grid[0], grid[-1]))
    bottom, top = max(low.min(), y.min() - reach), min(high.max(), y.max() + reach)
    ax.set_ylim(min(bottom, y.min()), max(top, y.max()))
    ax.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _against_truth(law: LocationScale, predictive: NDArray[np.float64], y: NDArray[Any]) -> Figure:
    """Mean and 90 % interval of at most 300 rows against their targets."""
    some = slice(_POINTS)
    mean = predictive[:, some, 0].mean(0)
    low, high = law.interval(predictive[:, some])
    figure, ax = _figure(3.4, 3.2)
    errors = np.stack([np.maximum(mean - low, 0), np.maximum(high - mean, 0)])
    style = {"markersize": 3, "elinewidth": 0.6, "alpha": 0.7}
    ax.errorbar(y[some], mean, yerr=errors, fmt=".", color=bnn_plots.BLUE, ecolor=bnn_plots.GREY, **style)
    ends = [float(y[some].min()), float(y[some].max())]
    ax.plot(ends, ends, color="black", linestyle="--", linewidth=0.8)
    ax.set(xlabel="true", ylabel="predicted, with 90 % interval")
    return figure


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(bnn_plots.STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots()
