"""Fog: a plasma fractal added to the image,  (x + s m) max(x) / (max(x) + s)  with m in [0, 1]."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bnneval.corruptions.levels import Image, quantise, unit


def plasma(side: int, decay: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Diamond-square height map on a torus, (side, side) with side a power of two, scaled to [0, 1].

    At each level, the centre of each square and then of each edge becomes the mean of its four neighbours plus
    w U(-w, w), where w = 100 decay^-level, so the noise shrinks by a factor of decay^2 per level.
    """
    height = np.zeros((side, side))
    step, w = side, 100.0

    def perturbed(neighbours: NDArray[np.float64]) -> NDArray[np.float64]:
        return neighbours / 4 + w * rng.uniform(-w, w, neighbours.shape)

    while step >= 2:
        half = step // 2
        corners = height[::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=0)
        height[half::step, half::step] = perturbed(pairs + np.roll(pairs, -1, axis=1))
        middles = height[half::step, half::step]
        above = middles + np.roll(middles, 1, axis=0) + corners + np.roll(corners, -1, axis=1)
        height[::step, half::step] = perturbed(above)
        left = middles + np.roll(middles, 1, axis=1) + corners + np.roll(corners, -1, axis=0)
        height[half::step, ::step] = perturbed(left)
        step, w = half, w / decay

    height -= height.min()
    scaled: NDArray[np.float64] = height / height.max()
    return scaled


def fog(image: Image, rng: np.random.Generator, strength: float, decay: float) -> Image:
    """Fog of this strength; the map is cropped from a square whose side is the next power of two."""
    x = unit(image)
    h, w = x.shape[:2]
    side = 1 << (max(h, w) - 1).bit_length()
    brightest = x.max()
    x += strength * plasma(side, decay, rng)[:h, :w, None]
    return quantise(x * brightest / (brightest + strength))
