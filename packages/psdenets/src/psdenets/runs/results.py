"""The end of a run: weights, predictions, metrics, plots, report, the table on the screen; metrics.json comes last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from psdenets.runs.directory import RunDir, versions
from psdenets.runs.files import atomically, write_json
from psdenets.runs.html_report import write_report
from psdenets.runs.plots import draw_plots
from psdenets.runs.predictions import Predictions, predict
from psdenets.runs.weights import save_weights
from psdenets.seeds import generator

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.data import Images
    from psdenets.models.base import ImageClassifier


class History(NamedTuple):
    """How a model was trained: one record per epoch, the training time, and further entries of metrics.json."""

    epochs: list[dict[str, Any]]
    seconds: float
    facts: dict[str, Any]


def write_results(run: RunDir, config: Config, model: ImageClassifier, test: Images, history: History) -> str:
    """Write everything that a finished run holds; returns the summary to print."""
    atomically(run.file("model.safetensors"), lambda path: save_weights(model.state_dict(), path))
    predictions = predict(model, test, config.final_samples, generator(config.seed, "final"))
    metrics = {
        **predictions.metrics(),
        "seconds": round(history.seconds, 3),
        **history.facts,
        "test_samples": len(predictions.probs),
        "parameters": model.parameter_counts(),
        "seed": config.seed,
        "versions": versions(),
    }
    save_predictions(run, "predictions.npz", predictions)
    draw_plots(run, predictions, model, history.epochs)
    write_report(run, config, metrics, predictions, test)
    write_json(run.file("metrics.json"), metrics)
    return summary(metrics, run)


def save_predictions(run: RunDir, name: str, predictions: Predictions) -> None:
    """probs (S, N, C) and labels (N,), as `python -m bnneval` reads them."""

    def write(path: object) -> None:
        with open(str(path), "wb") as file:  # noqa: PTH123 - a path object would get .npz appended
            np.savez_compressed(file, probs=predictions.probs, labels=predictions.labels)

    atomically(run.file(name), write)


def summary(metrics: Mapping[str, object], run: RunDir) -> str:
    """The numbers of a run as a small table."""
    rows = [(name, metrics[name]) for name in ("accuracy", "ece", "nll", "brier", "entropy", "kl", "seconds")]
    shown = {"accuracy": "{:.2%}", "ece": "{:.2%}", "seconds": "{:.1f}", "kl": "{:.1f}"}
    lines = [
        f"  {'test ' + name if name != 'seconds' else name:<14}{shown.get(name, '{:.4f}').format(value):>10}"
        for name, value in rows
    ]
    return "\n".join([*lines, f"  report        {run.file('report.html')}"]) + "\n"
