"""Write the results of a finished run: weights, predictions, metrics, plots and report; metrics.json comes last."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from psdenets.config import Config
from psdenets.data import Images
from psdenets.errors import BadInput
from psdenets.models.base import ImageClassifier
from psdenets.runs.directory import RunDir, versions
from psdenets.runs.html_report import write_report
from psdenets.runs.noise import noise_metrics, samples_agree
from psdenets.runs.plots import draw_plots
from psdenets.runs.prediction_files import save_predictions
from psdenets.runs.predictions import predict
from psdenets.runs.weights import save_weights
from psdenets.seeds import generator
from psdenets.tasks import task_of
from sdeweights import NonFiniteState


class History(NamedTuple):
    """How a model was trained: one record per epoch, the training time, and further entries of metrics.json."""

    epochs: list[dict[str, Any]]
    seconds: float
    facts: dict[str, Any]


def write_results(
    run: RunDir,
    config: Config,
    model: ImageClassifier,
    test: Images,
    history: History,
    train: Images | None = None,
    val: Images | None = None,
) -> str:
    """Evaluate the model on the test images, write all results, and return the summary to print.

    The training data are shown in the picture of a function of one number. Predictions of the validation images are
    kept in validation.npz; `psdenets.predict` compares the entropy of a picture with theirs.
    """
    run.folder.write("model.safetensors", lambda path: save_weights(model.state_dict(), path))
    try:
        predictions = predict(model, test, config.system.final_samples, generator(config.seed, "final"))
        noise = noise_metrics(model, test, predictions)
        familiar = None if val is None else predict(model, val, len(predictions.probs), generator(config.seed, "final"))
    except NonFiniteState as error:
        raise BadInput(f"cannot evaluate the trained network in {run.path}: {error}") from None
    metrics = {
        **predictions.metrics(),
        **noise,
        "seconds": round(history.seconds, 3),
        **history.facts,
        "test_samples": len(predictions.probs),
        "parameters": model.parameter_counts(),
        "seed": config.seed,
        "versions": versions(),
    }
    save_predictions(run.folder, "predictions.npz", predictions)
    if familiar is not None:
        save_predictions(run.folder, "validation.npz", familiar)
    draw_plots(run, predictions, model, history.epochs, (test, train))
    write_report(run, config, metrics, predictions, test, model.spec.classes)
    run.folder.write_json("metrics.json", metrics)
    return summary(metrics, run, config)


def summary(metrics: Mapping[str, Any], run: RunDir, config: Config) -> str:
    """The main metrics as a small table, and a line if the weight samples agree; infinite metrics are `inf`."""
    shown = {f"test {item.key}": item.of(metrics) for item in task_of(metrics).shown if item.key in metrics}
    shown["seconds"] = f"{metrics['seconds']:.1f}"
    lines = [f"  {name.replace('_', ' '):<25}{value:>10}" for name, value in shown.items()]
    agree = samples_agree(config, metrics["epistemic_share"], metrics["test_samples"])
    return "\n".join([*lines, f"  report  {run.file('report.html')}", *filter(None, [agree]), ""])
