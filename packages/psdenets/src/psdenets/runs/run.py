"""A finished run, from Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from psdenets.errors import BadInput
from psdenets.registries import FROM_PYTHON
from psdenets.runs.files import path_of
from psdenets.runs.forms import read_history, read_metrics
from psdenets.tasks import task_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from psdenets.config import Config
    from psdenets.models.base import ImageClassifier
    from psdenets.runs.predictions import Predictions


@dataclass(frozen=True)
class Run:
    """A finished run: its directory, and what is in it, read on first use.

    Attributes:
        path: the run directory.
        allow_code: whether custom code that the run refers to may be executed.

    Example:
        run = Run.load("runs/first")
        run.metrics["accuracy"], run.history[-1]["val"]["nll"]
        run.model.predict_proba(x, samples=10)
        run.plot_reliability()
    """

    path: Path
    allow_code: bool = False

    @classmethod
    def load(cls, path: str | Path, *, allow_code: bool = False) -> Self:
        """The run in a directory; raises BadInput unless it is finished."""
        if not (path_of(path) / "metrics.json").is_file():
            raise BadInput(f"expected a finished run with metrics.json, got {path}")
        return cls(Path(path), allow_code)

    def __repr__(self) -> str:
        task = task_of(self.metrics)
        names = (task.score.key, "nll", task.calibration.key)
        scores = ", ".join(f"{name} {self.metrics[name]:.4f}" for name in names)
        named = f"{self.config.data_name}, " if self.config.dataset == "imagefolder" else ""
        return f"Run({str(self.path)!r}: {named}{self.config.title}, seed {self.config.seed}, {scores})"

    @cached_property
    def config(self) -> Config:
        """The options of the run."""
        from psdenets.runs.loading import read_config

        return read_config(self.path, self.allow_code)[0]

    @cached_property
    def metrics(self) -> dict[str, Any]:
        """The final metrics on the test images: metrics.json."""
        return read_metrics(self.path)

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The metrics of every epoch: metrics.jsonl."""
        return read_history(self.path)

    @cached_property
    def model(self) -> ImageClassifier:
        """The trained network, ready to predict."""
        from psdenets.runs.loading import load

        return load(self.path, allow_code=self.allow_code)

    @cached_property
    def predictions(self) -> Predictions:
        """Probabilities (S, N, C), or location and scale (S, N, 2), and labels (N,) of the test set."""
        from psdenets.models.likelihoods import likelihood_of
        from psdenets.runs.checksums import Folder
        from psdenets.runs.loading import read_config
        from psdenets.runs.prediction_files import read_predictions
        from psdenets.runs.predictions import Predictions

        config, spec = read_config(self.path, self.allow_code)
        outputs = 2 if spec.target is not None else len(spec.classes)
        found = read_predictions(Folder(self.path), "predictions.npz", outputs)
        return Predictions(*found, self.metrics["kl"], likelihood_of(config, spec))

    @property
    def report(self) -> Path:
        """The report, one HTML page that can be opened anywhere."""
        return self.path / "report.html"

    def plot_curves(self) -> Figure:
        """Accuracy and ECE by epoch."""
        from psdenets.runs.plots import training_curves

        if not self.history or "val" not in self.history[0]:
            raise BadInput(f"expected a run with epochs, got {self.path} of --model {self.config.model}")
        return training_curves(self.history)

    def plot_reliability(self) -> Figure:
        """Accuracy against confidence on the test images; of numbers, the share below each predicted quantile."""
        return self._figure("reliability" if task_of(self.metrics).classifies else "quantiles")

    def plot_entropy(self) -> Figure:
        """Histogram of the predictive entropy of the test images."""
        if not task_of(self.metrics).classifies:
            raise BadInput(f"expected a run that predicts classes, got {self.path}, which predicts numbers")
        return self._figure("entropy")

    def plot_function(self, data: Any = None) -> Figure:
        """Rows, mean and bands of a function of one number; plots/function.png shows the training rows.

        The rows are the test rows, or those of `data`, (x, y). A run on arrays does not keep them, so it needs `data`.
        """
        from psdenets.data import load_splits
        from psdenets.data.arrays import pool_from
        from psdenets.runs.regression_plots import function_figure

        if self.model.spec.target is None or self.model.spec.channels != 1:
            raise BadInput(f"expected a run that predicts a number from one column, got {self.path}")
        if data is None and self.config.dataset in FROM_PYTHON:
            raise BadInput(f"expected data=(x, y) to draw, got no data: {self.path} does not keep its arrays")
        return function_figure(self.model, load_splits(self.config).test if data is None else pool_from(data).train)

    def plot_weights(self) -> Figure:
        """Sample paths of a few weights over depth."""
        from psdenets.models.psde import Classifier
        from psdenets.runs.plots import weight_paths

        if not isinstance(self.model, Classifier):
            raise BadInput(f"expected weights that follow a process, got --model {self.config.model}")
        return weight_paths(self.model)

    def _figure(self, name: str) -> Figure:
        from psdenets.runs.plots import prediction_figures

        return prediction_figures(self.predictions)[name]
