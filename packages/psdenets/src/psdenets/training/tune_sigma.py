"""Choose sigma after training, by the NLL of several weight samples on validation images.

Training minimises the NLL of single samples, or of a few, and cannot tell how much noise is best for the average over
many. Here sigma is multiplied by powers of 1.25, in the prior as in the posterior, with all trained weights unchanged.
"best" keeps the factor with the lowest NLL. "widest" keeps the largest factor whose NLL is not significantly above the
lowest, in a paired one-sided test at 5 %: of the networks that validation images cannot tell apart, the one with the
most epistemic uncertainty.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from psdenets.config import Config
from psdenets.data import Images
from psdenets.models.base import ImageClassifier
from psdenets.models.psde import Classifier
from psdenets.runs.predictions import Predictions, predict
from psdenets.seeds import generator
from sdeweights import NonFiniteState

_STEP, _MOST = 1.25, 8  # factors from 1.25^-8 = 0.17 to 1.25^8 = 6
_IMAGES, _PARTS = 1000, 40  # standard errors are computed from the NLL of 40 parts of at most 1,000 images
_ERRORS = 1.645  # standard errors of a difference that is significant at 5 %


class Tuned(NamedTuple):
    """The chosen factor, and the mean NLL of every factor that was tried."""

    factor: float
    nll: dict[float, float]

    def __str__(self) -> str:
        at = ", ".join(f"{factor:.3g}: {nll:.4f}" for factor, nll in sorted(self.nll.items()))
        return f"sigma times {self.factor:.3g}; NLL on validation images by factor: {at}"


def tuned(config: Config, model: ImageClassifier, images: Images) -> Tuned | None:
    """Choose sigma as `--tune-sigma` says, on validation images; None if there is nothing to choose."""
    process = config.system.process
    how = "none" if process is None else process.tune_sigma
    if how == "none" or not isinstance(model, Classifier) or not any(block.noisy for block in model.deep_blocks):
        return None
    return tune_sigma(model, images, how)


def tune_sigma(model: Classifier, images: Images, how: str) -> Tuned:
    """Choose the factor of sigma ("best" or "widest") and set it in the model."""
    options, images = model.config.system, images.first(_IMAGES)

    def nlls(power: int) -> np.ndarray:
        """NLL of every part of the images, infinite if a prediction is."""
        model.set_sigma(_STEP**power)
        g = generator(model.config.seed, "tune sigma")
        try:
            predictions = predict(model, images, options.final_samples, g)
        except NonFiniteState:
            return np.full(min(_PARTS, len(images)), math.inf)
        return np.array([part.metrics()["nll"] for part in _parts(predictions)])

    found = search(nlls, how)
    model.set_sigma(found.factor)
    return found


def search(nlls: Callable[[int], np.ndarray], how: str) -> Tuned:
    """Climb from power 0 of the step as long as it pays; then descend as long as it pays, if 0 is still the best.

    Args:
        nlls: power -> NLL of every part of the images.
        how: "best" or "widest".

    Example: the NLL is lowest at power 1, and not significantly higher at powers 2 and 3.
        >>> noise = np.array([-0.1, 0.1] * 20)
        >>> nlls = lambda power: (power - 1) ** 2 / 100 + noise * power
        >>> [round(search(nlls, how).factor, 2) for how in ("best", "widest")]
        [1.25, 1.95]
    """
    at = {0: nlls(0)}
    for k in range(1, _MOST + 1):
        at[k] = nlls(k)
        if _lowest(at) != k and (how == "best" or not _as_good(at, k)):
            break
    for k in range(-1, -_MOST - 1, -1):
        if _lowest(at) != k + 1:
            break
        at[k] = nlls(k)
    power = _lowest(at) if how == "best" else max(k for k in at if _as_good(at, k))
    return Tuned(_STEP**power, {_STEP**k: float(values.mean()) for k, values in at.items()})


def _lowest(at: dict[int, np.ndarray]) -> int:
    return min(at, key=lambda k: at[k].mean())


def _as_good(at: dict[int, np.ndarray], k: int) -> bool:
    """Whether the NLL at k is not significantly above the lowest one."""
    lowest = at[_lowest(at)]
    if not (np.isfinite(at[k]).all() and np.isfinite(lowest).all()):
        return False
    difference = at[k] - lowest
    return bool(difference.mean() <= _ERRORS * difference.std(ddof=1) / math.sqrt(len(difference)))


def _parts(predictions: Predictions) -> list[Predictions]:
    """The predictions of 40 parts of equal size, or of every image if there are fewer; a remainder is left out."""
    n = len(predictions.labels)
    size = max(1, n // _PARTS)
    return [
        predictions._replace(probs=predictions.probs[:, i : i + size], labels=predictions.labels[i : i + size])
        for i in range(0, size * min(_PARTS, n), size)
    ]
