"""Learned features: h_0 = a(x) with a frozen encoder a, computed once and cached on disk.

encoder = psdenets.encoder_of("runs/cifar10")             or any frozen nn.Module from images in [0, 1] to (N, d)
x = psdenets.features(encoder, images, cache="train.npz")
run = psdenets.fit(data=(x, labels), cut="full")          a table: a partially stochastic head trains in a minute
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np
import torch
from torch import Tensor, nn

from psdenets.data.images import as_images, to_unit
from psdenets.errors import BadInput
from psdenets.models.base import ImageClassifier
from psdenets.models.point import PointEstimate
from psdenets.models.psde import Classifier
from psdenets.runs.files import atomically
from psdenets.runs.loading import load

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from psdenets.models.psde import Weights


@final
class Encoder(nn.Module):
    """A trained network without its last layer, frozen: images (N, C, H, W) in [0, 1] -> features (N, d).

    If the network has noise, it is switched off.
    """

    def __init__(self, model: ImageClassifier) -> None:
        super().__init__()
        if not isinstance(model, Classifier | PointEstimate):
            raise BadInput(f"expected a network of one set of weights, got --model {model.config.model}")
        self.model = model.eval().requires_grad_(False)
        self._weights = model.mean_weights()
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        """Inputs of the last layer."""
        if isinstance(self.model, Classifier):
            return self.model.features(x, cast("Weights", self._weights))[0].float()
        found: Tensor = self.model.net.features(self.model.normalised(x))  # type: ignore[operator]
        return found


def encoder_of(run_dir: str | Path, *, allow_code: bool = False) -> Encoder:
    """The trained network of a run directory as an encoder."""
    return Encoder(load(run_dir, allow_code=allow_code))


@torch.no_grad()
def features(
    encoder: nn.Module, images: Any, *, cache: str | Path | None = None, batch_size: int = 500
) -> NDArray[np.float32]:
    """Features (N, d) of images from a frozen encoder.

    Args:
        encoder: a module from images (n, C, H, W) in [0, 1] to (n, ...), in evaluation mode and without gradients. The
            images get the dtype and the device of its parameters.
        images: uint8 (N, H, W), (N, H, W, C) or (N, C, H, W), as an array or tensor.
        cache: a npz file to keep the features in. It is used again if encoder and images are the same, by checksum.
        batch_size: images per pass.

    Raises:
        BadInput: if the encoder is not frozen, or the images or features cannot be used.
    """
    if encoder.training or any(p.requires_grad for p in encoder.parameters()):
        raise BadInput("expected a frozen encoder: call encoder.eval().requires_grad_(False) first")
    pixels = _pixels(images)
    key = _checksum(encoder, pixels)
    path = None if cache is None else Path(cache)
    if path is not None and path.is_file():
        with np.load(path) as stored:
            if "key" in stored and str(stored["key"]) == key:
                return np.asarray(stored["features"])
    like = next((p for p in encoder.parameters() if p.is_floating_point()), torch.zeros(1, dtype=torch.float32))
    parts = [encoder(to_unit(part).to(like)).flatten(1) for part in torch.split(pixels, batch_size)]
    found = torch.cat(parts).float().cpu().numpy()
    if not np.isfinite(found).all():
        raise BadInput("expected finite features, got NaN or infinity from the encoder")
    if path is not None:
        atomically(path, lambda file: _save(file, found, key))
    return found


def _pixels(images: Any) -> Tensor:
    array = images.detach().cpu().numpy() if isinstance(images, Tensor) else np.asarray(images)
    if array.ndim == 0:
        raise BadInput(f"expected images, got {images!r}")
    return as_images(array, np.zeros(len(array), np.int64), 1, "images").pixels[:]


def _save(path: Path, found: NDArray[np.float32], key: str) -> None:
    with path.open("wb") as file:
        np.savez(file, features=found, key=np.array(key))


def _checksum(encoder: nn.Module, pixels: Tensor) -> str:
    """SHA-256 of the encoder's structure and state, and of the images."""
    digest = hashlib.sha256(str(encoder).encode())
    for name, tensor in sorted(encoder.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    digest.update(str(tuple(pixels.shape)).encode())
    digest.update(pixels.numpy().tobytes())
    return digest.hexdigest()
