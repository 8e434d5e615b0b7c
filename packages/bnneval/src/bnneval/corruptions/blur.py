"""Blurs: gaussian, glass, defocus, zoom, motion.

Motion blur is that of ImageMagick's MotionBlurImage, half a Gaussian along a line: tap i = 0 .. 2 ceil(radius) has
weight exp(-i^2 / (2 sigma^2)), normalised, and reads the pixel at (x, y) + ceil(i (cos angle, sin angle) - 1/2), with
repeated border. The result is rounded to bytes.
"""

from functools import cache
from math import ceil, cos, radians, sin
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from bnneval.corruptions.levels import Image, quantise, unit


def smooth(x: NDArray[Any], sigma: float) -> NDArray[Any]:
    """Gaussian filter over the two image axes, with repeated border, truncated at 4 sigma."""
    blurred: NDArray[Any] = ndimage.gaussian_filter(x, sigma, mode="nearest", truncate=4.0, axes=(0, 1))
    return blurred


def gaussian_blur(image: Image, rng: np.random.Generator, sigma: float) -> Image:  # noqa: ARG001  same signature for all
    """Gaussian filter with a standard deviation of sigma pixels."""
    return quantise(smooth(unit(image), sigma))


def glass_blur(image: Image, rng: np.random.Generator, sigma: float, reach: int, iterations: int) -> Image:
    """Blur, replace every pixel by a nearby one above or to the left, and blur again.

    The original loops from the last pixel down to pixel `reach + 1` and is meant to swap each with one at an offset in
    -reach .. reach - 1, but because it swaps array views, it only copies the neighbour. With reach 1 the offsets are -1
    and 0, so the neighbour has not been overwritten yet. Every copy reads an old value, and a single gather is enough.
    """
    x = quantise(smooth(unit(image), sigma))
    rows, columns = (np.arange(side - reach, reach, -1) for side in x.shape[:2])
    for _ in range(iterations):
        offset = rng.integers(-reach, reach, size=(len(rows), len(columns), 2))
        dx, dy = offset[..., 0], offset[..., 1]
        moved = x[rows[:, None] + dy, columns[None, :] + dx]
        x[np.ix_(rows, columns)] = moved
    return quantise(smooth(unit(x), sigma))


@cache
def disk(radius: float, alias_blur: float) -> NDArray[np.float32]:
    """A disk of this radius on a 17 x 17 grid with sum 1, its rim smoothed by three Gaussian taps per direction."""
    x = np.arange(-8, 9)
    sharp = (x[:, None] ** 2 + x**2 <= radius**2).astype(np.float32)
    taps = np.exp(-0.5 * (np.array([-1, 0, 1]) / alias_blur) ** 2)
    taps = (taps / taps.sum()).astype(np.float32)
    soft: NDArray[np.float32] = sharp / sharp.sum()
    for axis in (0, 1):
        soft = ndimage.correlate1d(soft, taps, axis=axis, mode="mirror")
    return soft


def defocus_blur(image: Image, rng: np.random.Generator, radius: float, alias_blur: float) -> Image:  # noqa: ARG001
    """Convolution with `disk`; the image is mirrored about its border pixels."""
    return quantise(ndimage.correlate(unit(image), disk(radius, alias_blur)[..., None], mode="mirror"))


@cache
def zoom_matrix(side: int, factor: float) -> NDArray[np.float64]:
    """(side, side) matrix that magnifies a line of pixels about its centre by linear interpolation.

    The central n = ceil(side / factor) pixels are stretched to round(n * factor), end to end, and cropped to `side`.
    """
    crop = int(np.ceil(side / factor))
    first = (side - crop) // 2
    stretched = round(crop * factor)
    at = (np.arange(side) + (stretched - side) // 2) * (crop - 1) / max(stretched - 1, 1)
    left = np.minimum(at.astype(int), crop - 2)
    matrix = np.zeros((side, side))
    matrix[np.arange(side), first + left] = 1 - (at - left)
    matrix[np.arange(side), first + left + 1] += at - left
    return matrix


def zoom(x: NDArray[Any], factor: float) -> NDArray[Any]:
    """(H, W, C) magnified about its centre; the dtype is kept."""
    h, w, _ = x.shape
    stretched = (zoom_matrix(h, factor) @ x.reshape(h, -1)).reshape(x.shape)
    magnified: NDArray[Any] = zoom_matrix(w, factor) @ stretched
    return magnified.astype(x.dtype)


def zoom_blur(image: Image, rng: np.random.Generator, end: float) -> Image:  # noqa: ARG001
    """Mean of the image and its magnifications by arange(1, end, 0.01).

    This gives 7, 12, 16, 21 and 26 factors for the five severities; because of rounding, the first two include `end`.
    """
    x = unit(image).astype(np.float32)
    factors = np.arange(1, end, 0.01)
    total = x + sum(zoom(x, float(factor)) for factor in factors)
    return quantise(total / (len(factors) + 1))


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
