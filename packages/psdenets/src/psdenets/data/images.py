"""Images in memory or in a file, uint8 (N, C, H, W), with labels; or rows of a table, float32 (N, columns, 1, 1)."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from psdenets.data.spec import ImageSpec
from psdenets.data.stored import StoredPixels
from psdenets.errors import BadInput


class Images(NamedTuple):
    """N images, uint8 (N, C, H, W), and labels, int64 (N,); see `psdenets.data.tables` for the rows of a table.

    Pixels are in memory, or in a file; then `pixels[...]` reads some of them.
    """

    pixels: Tensor | StoredPixels
    labels: Tensor

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, indices: Tensor) -> "Images":
        """The images at these indices, in this order; those in a file are not read."""
        return Images(_part(self.pixels, indices), self.labels[indices])

    def first(self, n: int | None) -> "Images":
        """The first n images, or all if n is None."""
        return self if n is None else Images(_part(self.pixels, slice(n)), self.labels[:n])


def _part(pixels: Tensor | StoredPixels, indices: Tensor | slice) -> Tensor | StoredPixels:
    return pixels.at(indices) if isinstance(pixels, StoredPixels) else pixels[indices]


class Pool(NamedTuple):
    """All images of a data set: its test set, if it has one, and images for training and validation."""

    train: Images
    test: Images | None
    spec: ImageSpec
    checksum: str | None = None  # of images given from Python, and of pictures in a folder
    notes: tuple[str, ...] = ()  # what a user should know about the images, one line each
    balanced_split: bool = False  # whether splits have the same share of every class

    @property
    def name(self) -> str:
        """The value of `--dataset` if they are given from Python."""
        return "arrays" if not self.spec.columns else "table" if self.spec.target is None else "numbers"


class Splits(NamedTuple):
    """Training, validation and test images, and their specification."""

    train: Images
    val: Images
    test: Images
    spec: ImageSpec
    checksum: str | None = None  # of images given from Python, and of pictures in a folder
    notes: tuple[str, ...] = ()  # what a user should know about the images, one line each


def as_images(pixels: np.ndarray, labels: np.ndarray, classes: int, where: object) -> Images:
    """Images from arrays (N, H, W), (N, H, W, C) or (N, C, H, W), with one label below `classes` each.

    Without this check, labels for which the head has no class would be trained on silently.
    """
    if pixels.dtype != np.uint8 or pixels.ndim not in (3, 4) or len(pixels) == 0:
        raise BadInput(f"expected uint8 images (N, H, W[, C]) in {where}, got {pixels.dtype} {pixels.shape}")
    if labels.shape != (len(pixels),):
        raise BadInput(f"expected {len(pixels)} labels in {where}, got shape {labels.shape}")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise BadInput(f"expected labels from 0 to {classes - 1} in {where}, got {low} to {high}")
    if pixels.ndim == 3:
        pixels = pixels[:, None]
    elif pixels.shape[-1] in (1, 3):
        pixels = pixels.transpose(0, 3, 1, 2)
    copied = np.array(pixels, order="C")  # memory-mapped files are read-only
    return Images(torch.from_numpy(copied), torch.from_numpy(labels.astype(np.int64)))


def to_unit(pixels: Tensor) -> Tensor:
    """uint8 0 .. 255 -> float32 0 .. 1; the rows of a table are floating-point numbers, and stay as they are."""
    return pixels if pixels.is_floating_point() else pixels.float() / 255
