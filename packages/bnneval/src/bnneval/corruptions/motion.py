"""Motion blur as defined by ImageMagick's MotionBlurImage: half a Gaussian along a line.

Tap i = 0 .. 2 ceil(radius) has weight exp(-i^2 / (2 sigma^2)), normalised, and reads the pixel at
(x, y) + ceil(i (cos angle, sin angle) - 1/2), with repeated border. The result is rounded to bytes.
"""

from __future__ import annotations

from math import ceil, cos, radians, sin

import numpy as np
from numpy.typing import NDArray

from bnneval.corruptions.levels import Image


def taps(radius: float, sigma: float) -> NDArray[np.float64]:
    """Weights of the 2 ceil(radius) + 1 pixels along the line."""
    weight = np.exp(-0.5 * (np.arange(2 * ceil(radius) + 1) / sigma) ** 2)
    share: NDArray[np.float64] = weight / weight.sum()
    return share


def offsets(count: int, angle: float) -> list[tuple[int, int]]:
    """(row, column) offsets of the taps, for an angle in degrees."""
    a = radians(angle)
    return [(ceil(i * sin(a) - 0.5), ceil(i * cos(a) - 0.5)) for i in range(count)]


def blur_along(image: NDArray[np.uint8], radius: float, sigma: float, angle: float) -> NDArray[np.uint8]:
    """Blur bytes (H, W) or (H, W, C) along a line at `angle` degrees."""
    weights = taps(radius, sigma)
    h, w = image.shape[:2]
    total = np.zeros(image.shape)
    for weight, (dy, dx) in zip(weights, offsets(len(weights), angle), strict=True):
        rows, columns = np.clip(np.arange(h) + dy, 0, h - 1), np.clip(np.arange(w) + dx, 0, w - 1)
        total += weight * image[np.ix_(rows, columns)]
    return np.floor(total + 0.5).astype(np.uint8)


def motion_blur(image: Image, rng: np.random.Generator, radius: float, sigma: float) -> Image:
    """Blur along a line whose angle is uniform in (-45, 45) degrees."""
    return blur_along(image, radius, sigma, rng.uniform(-45, 45))
