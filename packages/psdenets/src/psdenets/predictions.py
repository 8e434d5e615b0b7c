"""Predictions on many images, and the numbers of a run that come from them. The metrics themselves are bnneval's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from bnneval import accuracy, brier, ece, mean_probs, nll, predictive_entropy
from psdenets.data.images import to_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from psdenets.data import Images
    from psdenets.interface import ImageClassifier


class Predictions(NamedTuple):
    """Probabilities (S, N, C) of S weight samples, labels (N,), and the mean KL of the samples."""

    probs: NDArray[np.float64]
    labels: NDArray[np.int64]
    kl: float

    def metrics(self) -> dict[str, float]:
        """Accuracy, ECE, NLL and Brier score of the averaged probabilities, mean entropy, KL; fractions, nats."""
        mean = mean_probs(self.probs)
        return {
            "accuracy": accuracy(mean, self.labels),
            "ece": ece(mean, self.labels),
            "nll": nll(mean, self.labels),
            "brier": brier(mean, self.labels),
            "entropy": float(predictive_entropy(mean).mean()),
            "kl": self.kl,
        }


@torch.no_grad()
def predict(
    model: ImageClassifier,
    images: Images,
    samples: int,
    generator: torch.Generator,
    batch_size: int = 500,
    after_batch: Callable[[], None] = lambda: None,
) -> Predictions:
    """Probabilities of all images under the same S weight samples, whatever the batch size.

    Softmax in float64: in float32 a probability underflows to 0 at a logit gap of 104, and the NLL is infinite.
    """
    weights = model.draw(samples, generator)
    parts = []
    for pixels in torch.split(images.pixels, batch_size):
        logits = model.logits(to_unit(pixels.to(model.mean.device)), weights)
        parts.append(logits.double().softmax(-1).cpu())
        after_batch()
    kl = float(weights.kl.mean() + model.head_kl())
    return Predictions(torch.cat(parts, dim=1).numpy(), images.labels.numpy(), kl)
