"""Frost: a photograph of ice blended into the image,  a x + b ice.

The photographs (frost1.png .. frost5.jpg of the original generator) are not part of this package. If their folder is
given they are used, otherwise procedural textures are; `Textures.source` records which.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from bnneval.corruptions.fog import plasma
from bnneval.corruptions.levels import Image

# The original draws from the first five of six, so frost6.jpg is never used.
PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")

# Mean colour and standard deviation of the five photographs at a fifth of their size (numbers two and three are equal).
COLOURS = (
    ((78, 149, 166), 43),
    ((201, 205, 214), 23),
    ((201, 205, 214), 23),
    ((138, 153, 166), 31),
    ((112, 123, 135), 44),
)


class Textures(NamedTuple):
    """Textures of ice: their source ("photographs" or "procedural") and five (H, W, 3) byte arrays."""

    source: str
    ice: tuple[NDArray[np.uint8], ...]


def textures(folder: str | Path | None = None) -> Textures:
    """The photographs in `folder` at a fifth of their size; without a folder, the procedural textures."""
    if folder is None:
        return _procedural()
    missing = [name for name in PHOTOGRAPHS if not (Path(folder) / name).is_file()]
    if missing:
        raise ValueError(f"expected the frost photographs {', '.join(PHOTOGRAPHS)}, got a folder without {missing[0]}")
    return Textures("photographs", tuple(_photograph(Path(folder) / name) for name in PHOTOGRAPHS))


@cache
def _photograph(path: Path) -> NDArray[np.uint8]:
    """Every fifth pixel: linear interpolation at scale 0.2 hits pixel 5 i + 2 exactly."""
    from PIL import Image as Picture

    pixels = np.asarray(Picture.open(path).convert("RGB"))
    h, w = (round(side * 0.2) for side in pixels.shape[:2])
    return pixels[2::5, 2::5][:h, :w]


@cache
def _procedural() -> Textures:
    """Five fixed textures: fine crystals on smooth clouds, with the colours and contrast of the photographs."""
    ice = []
    for number, (colour, spread) in enumerate(COLOURS):
        rng = np.random.default_rng([5, number])
        crystals = ndimage.gaussian_filter(rng.normal(size=(128, 128)), 0.8, mode="wrap")
        clouds = plasma(128, 1.8, rng)
        grey = _standard(_standard(crystals) + _standard(clouds))
        ice.append(np.clip(np.array(colour) + spread * grey[..., None], 0, 255).astype(np.uint8))
    return Textures("procedural", tuple(ice))


def _standard(x: NDArray[np.float64]) -> NDArray[np.float64]:
    scaled: NDArray[np.float64] = (x - x.mean()) / x.std()
    return scaled


def frost(image: Image, rng: np.random.Generator, keep: float, cover: float, source: Textures | None = None) -> Image:
    """keep * image + cover * ice in levels, clipped and truncated; ice is a random window of a random texture."""
    ice = (source or _procedural()).ice
    layer = ice[rng.integers(len(ice))]
    h, w = image.shape[:2]
    top, left = rng.integers(layer.shape[0] - h), rng.integers(layer.shape[1] - w)
    return np.clip(keep * image + cover * layer[top : top + h, left : left + w], 0, 255).astype(np.uint8)
