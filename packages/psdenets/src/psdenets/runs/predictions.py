"""Predictions on many images, and the numbers of a run that come from them. The metrics themselves are bnneval's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from bnneval import accuracy, brier, ece, mean_probs, nll, predictive_entropy
from psdenets.data.images import to_unit

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from psdenets.data import Images
    from psdenets.models.base import ImageClassifier


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
    batches = Batches(images.pixels, batch_size, model.mean.device)
    probs, kl = model.predict_batches(batches, samples, generator, torch.float64, after_batch)
    return Predictions(probs.cpu().numpy(), images.labels.numpy(), float(kl.mean() + model.head_kl()))


@dataclass(frozen=True)
class Batches(Sequence["Tensor"]):
    """Pixels as images in [0, 1], batch by batch, made when they are asked for."""

    pixels: Tensor
    size: int
    device: torch.device

    def __len__(self) -> int:
        return -(-len(self.pixels) // self.size)

    def __getitem__(self, b: Any) -> Any:
        if not 0 <= b < len(self):
            raise IndexError(b)
        return to_unit(self.pixels[b * self.size : (b + 1) * self.size].to(self.device))
