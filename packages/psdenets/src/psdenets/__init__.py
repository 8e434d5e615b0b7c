"""Image classifiers of infinite depth whose weights are partially stochastic.

    import psdenets
    run = psdenets.fit("digits-cpu-ode-first", sigma=0.3, out="runs/a")
    run.metrics["accuracy"], run.model.predict_proba(x, samples=10)

    model = psdenets.build("mnist-ode-first")
    logits, kl = model(x)

Names are imported on first use, so `psdenets train --help` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.data.spec import ImageSpec
    from psdenets.errors import BadInput, Interrupted
    from psdenets.estimators import PSDEClassifier, PSDERegressor
    from psdenets.models.base import ImageClassifier
    from psdenets.models.psde import Classifier
    from psdenets.models.registry import build
    from psdenets.presets import PRESETS, preset
    from psdenets.runs.compare import compare_runs
    from psdenets.runs.features import encoder_of, features
    from psdenets.runs.loading import load
    from psdenets.runs.run import Run
    from psdenets.runs.table import runs_table
    from psdenets.training.callbacks import Callback, CsvLog, TensorBoardLog
    from psdenets.training.fit import fit
    from psdenets.training.loop import Diverged

_HOMES = {
    "PRESETS": "presets", "BadInput": "errors", "Callback": "training.callbacks", "Classifier": "models.psde",
    "Config": "config", "CsvLog": "training.callbacks", "Diverged": "training.loop", "ImageClassifier": "models.base",
    "ImageSpec": "data.spec", "Interrupted": "errors", "PSDEClassifier": "estimators",
    "PSDERegressor": "estimators", "Run": "runs.run", "TensorBoardLog": "training.callbacks",
    "build": "models.registry", "compare_runs": "runs.compare", "encoder_of": "runs.features",
    "features": "runs.features", "fit": "training.fit", "load": "runs.loading", "preset": "presets",
    "runs_table": "runs.table",
}  # fmt: skip
__all__ = [
    "PRESETS", "BadInput", "Callback", "Classifier", "Config", "CsvLog", "Diverged", "ImageClassifier", "ImageSpec",
    "Interrupted", "PSDEClassifier", "PSDERegressor", "Run", "TensorBoardLog", "build", "compare_runs", "encoder_of",
    "features", "fit", "load", "preset", "runs_table",
]  # fmt: skip
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
