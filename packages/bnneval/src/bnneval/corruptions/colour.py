"""Brightness and saturation, which change V and S of HSV, and contrast."""

import numpy as np
from numpy.typing import NDArray

from bnneval.corruptions.levels import Image, quantise, unit

# Which of (v, t, q, p) are red, green and blue in each sixth of the colour circle.
_SIXTHS = np.array([[0, 1, 3], [2, 0, 3], [3, 0, 1], [3, 2, 0], [1, 3, 0], [0, 3, 2]])


def to_hsv(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    """Red, green, blue (..., 3) in [0, 1] to hue, saturation, value in [0, 1]; grey has hue 0, black saturation 0.

    V = max,  S = (max - min) / max,  6 H = k + difference of the other two / (max - min),  k = 0, 2, 4 for r, g, b.
    """
    value, least = rgb.max(axis=-1), rgb.min(axis=-1)
    chroma = value - least
    safe = np.where(chroma > 0, chroma, 1)
    # If two channels tie for the maximum, the later one determines the sector; the hue is the same either way.
    sector = 2 - np.argmax(rgb[..., ::-1] == value[..., None], axis=-1)
    after, before = (np.take_along_axis(rgb, (sector[..., None] + k) % 3, axis=-1)[..., 0] for k in (1, 2))
    hue = (2.0 * sector + (after - before) / safe) / 6 % 1.0
    saturation = np.where(chroma > 0, chroma / np.where(value > 0, value, 1), 0)
    return np.stack([np.where(chroma > 0, hue, 0), saturation, value], axis=-1)


def to_rgb(hsv: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inverse of `to_hsv`."""
    h, s, v = np.moveaxis(hsv, -1, 0)
    sixth = np.floor(h * 6)
    f = h * 6 - sixth
    levels = np.stack([v, v * (1 - (1 - f) * s), v * (1 - f * s), v * (1 - s)], axis=-1)
    return np.take_along_axis(levels, _SIXTHS[sixth.astype(int) % 6], axis=-1)


def brightness(image: Image, rng: np.random.Generator, added: float) -> Image:  # noqa: ARG001  same signature for all
    """V' = min(V + added, 1); black turns grey."""
    hsv = to_hsv(unit(image))
    hsv[..., 2] = np.clip(hsv[..., 2] + added, 0, 1)
    return quantise(to_rgb(hsv))


def saturate(image: Image, rng: np.random.Generator, factor: float, added: float) -> Image:  # noqa: ARG001
    """S' = clip(factor S + added, 0, 1). Grey has hue 0, which is red, so it turns reddish if `added` > 0."""
    hsv = to_hsv(unit(image))
    hsv[..., 1] = np.clip(hsv[..., 1] * factor + added, 0, 1)
    return quantise(to_rgb(hsv))


def contrast(image: Image, rng: np.random.Generator, factor: float) -> Image:  # noqa: ARG001
    """(x - m) factor + m, where m is the mean of each channel of the image."""
    x = unit(image)
    mean = x.mean(axis=(0, 1), keepdims=True)
    return quantise((x - mean) * factor + mean)
