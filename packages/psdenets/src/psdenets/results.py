"""The end of a run: predictions, metrics, plots, report, and the table on the screen. metrics.json is written last."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from psdenets.models import Classifier
from psdenets.plots import draw_plots
from psdenets.predictions import Predictions, predict
from psdenets.report import write_report
from psdenets.rundir import RunDir, atomically, versions, write_json
from psdenets.seeds import generator
from psdenets.trainer import Trainer


def write_results(trainer: Trainer, run: RunDir) -> str:
    """Write everything that a finished run holds; returns the summary to print."""
    config, at = trainer.config, trainer.at
    model = _chosen_model(trainer)
    predictions = predict(model, trainer.splits.test, config.test_samples, generator(config.seed, "final"))
    metrics = {
        **predictions.metrics(),
        "seconds": round(at.seconds, 3),
        "epochs": at.epoch,
        "steps": at.step,
        "test_samples": config.test_samples,
        "selected_epoch": at.best_epoch if config.select == "best" else at.epoch,
        "parameters": model.census(),
        "seed": config.seed,
        "versions": versions(),
    }
    save_predictions(run, "predictions.npz", predictions)
    draw_plots(run, predictions, model, at.history)
    write_report(run, config, metrics, predictions, trainer.splits.test)
    write_json(run.file("metrics.json"), metrics)
    return summary(metrics, run)


def _chosen_model(trainer: Trainer) -> Classifier:
    model = Classifier(trainer.config, trainer.splits.spec)
    model.load_state_dict({name: tensor.cpu() for name, tensor in trainer.chosen().items()})
    return model.to(trainer.device).eval().requires_grad_(False)


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
