"""Image classifiers of infinite depth whose weights are partially stochastic.

    from psdenets import build, load
    model = build("mnist-ode-first")
    logits, kl = model(x)
    probs = model.predict_proba(x, samples=10)

Names are imported on first use, so `psdenets train --help` does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.data.spec import ImageSpec
    from psdenets.errors import BadInput
    from psdenets.models.base import ImageClassifier
    from psdenets.models.psde import Classifier
    from psdenets.models.registry import build
    from psdenets.presets import PRESETS, preset
    from psdenets.runs.loading import load

_HOMES = {
    "PRESETS": "presets", "BadInput": "errors", "Classifier": "models.psde", "Config": "config",
    "ImageClassifier": "models.base", "ImageSpec": "data.spec", "build": "models.registry", "load": "runs.loading",
    "preset": "presets",
}  # fmt: skip
__all__ = ["PRESETS", "BadInput", "Classifier", "Config", "ImageClassifier", "ImageSpec", "build", "load", "preset"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
