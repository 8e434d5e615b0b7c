"""Snow: sparse noise, magnified and motion-blurred, added twice to a paler image."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bnneval.corruptions.blur import zoom
from bnneval.corruptions.levels import Image, quantise, unit
from bnneval.corruptions.motion import blur_along

LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)


class Fall(NamedTuple):
    """Mean and std of the noise, magnification, threshold, and radius and sigma of the motion blur."""

    loc: float
    scale: float
    zoom: float
    threshold: float
    radius: float
    sigma: float


def flakes(shape: tuple[int, ...], rng: np.random.Generator, fall: Fall) -> NDArray[np.uint8]:
    """The layer of snow as bytes: noise above a threshold, blurred at an angle uniform in (-135, -45) degrees."""
    layer = zoom(rng.normal(fall.loc, fall.scale, (*shape, 1)), fall.zoom)[..., 0]
    layer[layer < fall.threshold] = 0
    return blur_along(quantise(layer), fall.radius, fall.sigma, rng.uniform(-135, -45))


def snow(image: Image, rng: np.random.Generator, *constants: float) -> Image:
    """mix x + (1 - mix) max(x, 1.5 grey + 0.5) + layer + layer rotated by 180 degrees; the last constant is `mix`."""
    *of_fall, mix = constants
    x = unit(image).astype(np.float32)
    layer = flakes(x.shape[:2], rng, Fall(*of_fall))[..., None] / 255.0
    grey = (x @ LUMA)[..., None]
    pale = mix * x + (1 - mix) * np.maximum(x, grey * np.float32(1.5) + np.float32(0.5))
    return quantise(pale + layer + layer[::-1, ::-1])
