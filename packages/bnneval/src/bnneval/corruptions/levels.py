"""Conversion between bytes and [0, 1]: x / 255, and back clipped, scaled by 255 and *truncated*, as in CIFAR-10-C."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]
"""One image, (H, W, 3) bytes."""


def unit(image: Image) -> NDArray[np.float64]:
    """Bytes as fractions of 255."""
    return image / 255.0


def quantise(x: NDArray[Any]) -> Image:
    """Fractions as bytes: floor(255 clip(x, 0, 1)). Rounding would brighten the image by half a level."""
    levels: Image = (np.clip(x, 0, 1) * 255).astype(np.uint8)
    return levels
