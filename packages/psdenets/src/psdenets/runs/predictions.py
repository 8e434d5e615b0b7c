"""Predictions on many images, and the metrics computed from them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from psdenets.data import Images
from psdenets.data.images import to_unit
from psdenets.data.stored import StoredPixels
from psdenets.models.base import ImageClassifier
from psdenets.models.likelihoods import Likelihood
from psdenets.models.sizes import require_predictions_fit


class Predictions(NamedTuple):
    """Predictions of S weight samples for N images, the labels (N,), and the mean KL of the samples."""

    probs: NDArray[np.float64]  # probabilities (S, N, C); for numbers, location and scale (S, N, 2)
    labels: NDArray[Any]  # class indices; for numbers, the targets
    kl: float
    likelihood: Likelihood

    def metrics(self) -> dict[str, float]:
        """Metrics of the mixture over weight samples, and the KL."""
        return {**self.likelihood.metrics(self.probs, self.labels), "kl": self.kl}


@torch.no_grad()
def predict(
    model: ImageClassifier,
    images: Images,
    samples: int,
    generator: torch.Generator,
    batch_size: int = 500,
    after_batch: Callable[[], None] = lambda: None,
) -> Predictions:
    """Predict all images with the same S weight samples, independently of the batch size."""
    outputs = len(model.spec.classes) or 2
    require_predictions_fit(samples, len(images), outputs, f"{samples:,} weight samples")
    batches = Batches(images.pixels, model.mean.device, batch_size)
    probs, kl = model.predict_batches(batches, samples, generator, after_batch)
    return Predictions(probs.numpy(), images.labels.numpy(), float(kl.mean() + model.head_kl()), model.likelihood)


@dataclass(frozen=True)
class Batches(Sequence["Tensor"]):
    """A sequence of batches of images in [0, 1], converted from pixels on access."""

    pixels: Tensor | StoredPixels
    device: torch.device
    size: int = 500

    def __len__(self) -> int:
        return -(-len(self.pixels) // self.size)

    def __getitem__(self, b: Any) -> Any:
        if not 0 <= b < len(self):
            raise IndexError(b)
        return to_unit(self.pixels[b * self.size : (b + 1) * self.size].to(self.device))
