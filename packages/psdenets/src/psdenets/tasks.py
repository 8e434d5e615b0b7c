"""What a network predicts, classes or numbers, and which of its metrics are shown where.

The task of a run follows from its metrics, so it is known wherever they are.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Shown(NamedTuple):
    """A metric as it is shown: its key, its title, and its format."""

    key: str
    title: str
    form: str

    def of(self, metrics: Mapping[str, Any]) -> str:
        """Its value as text."""
        return format(metrics[self.key], self.form)


class Task(NamedTuple):
    """A task, and the metrics that are shown of it.

    Attributes:
        score: the main metric, higher is better for classes, lower for numbers.
        calibration: whether stated uncertainty is right.
        shown: all metrics of a summary, with those of the noise at the end.
        cards: the metrics at the top of a report.
    """

    score: Shown
    calibration: Shown
    shown: tuple[Shown, ...]
    cards: tuple[Shown, ...]

    @property
    def classifies(self) -> bool:
        """Whether classes are predicted."""
        return self is CLASSIFICATION

    def rank(self, metrics: Mapping[str, float]) -> tuple[float, float]:
        """What is larger for better weights: accuracy, then NLL; for numbers, NLL, then RMSE."""
        if self.classifies:
            return metrics["accuracy"], -metrics["nll"]
        return -metrics["nll"], -metrics["rmse"]


def _shown(key: str, form: str, title: str | None = None) -> Shown:
    return Shown(key, title or key.replace("_", " "), form)


_ACCURACY, _ECE = _shown("accuracy", ".2%"), _shown("ece", ".2%", "ECE")
_RMSE, _COVERAGE = _shown("rmse", ".4g", "RMSE"), _shown("coverage_90", ".1%", "90 % coverage")
_NLL, _KL, _SHARE = _shown("nll", ".4f", "NLL"), _shown("kl", ".1f", "KL"), _shown("epistemic_share", ".2%")
CLASSIFICATION = Task(
    _ACCURACY,
    _ECE,
    (
        _ACCURACY, _ECE, _NLL, _shown("brier", ".4f"), _shown("entropy", ".4f"), _KL, _SHARE,
        _shown("disagreement", ".2%"), _shown("nll_one_sample", ".4f"), _shown("accuracy_one_sample", ".2%"),
        _shown("nll_no_noise", ".4f"), _shown("accuracy_no_noise", ".2%"),
    ),
    (_ACCURACY, _ECE, _NLL, _shown("brier", ".4f", "Brier score"), _shown("entropy", ".3f", "mean entropy"), _KL),
)  # fmt: skip
REGRESSION = Task(
    _RMSE,
    _COVERAGE,
    (
        _RMSE, _shown("mae", ".4g"), _NLL, _shown("crps", ".4g"), _COVERAGE, _KL, _SHARE,
        _shown("nll_one_sample", ".4f"), _shown("rmse_one_sample", ".4g"), _shown("nll_no_noise", ".4f"),
        _shown("rmse_no_noise", ".4g"),
    ),
    (_RMSE, _shown("mae", ".4g", "MAE"), _NLL, _shown("crps", ".4g", "CRPS"), _COVERAGE, _KL),
)  # fmt: skip


def task_of(metrics: Mapping[str, Any]) -> Task:
    """The task that has these metrics."""
    return REGRESSION if "rmse" in metrics else CLASSIFICATION
