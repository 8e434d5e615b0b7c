"""Weather: fog, frost and snow.

    fog      (x + s m) max(x) / (max(x) + s),  m a plasma fractal in [0, 1]
    frost    a x + b ice,  ice a photograph
    snow     sparse noise, magnified and motion-blurred, added twice to a paler image

The photographs of ice (frost1.png .. frost5.jpg of the original generator) are not part of this package. If their
folder is given they are used, otherwise procedural textures are; `Textures.source` records which.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from bnneval.corruptions.blur import blur_along, zoom
from bnneval.corruptions.levels import Image, quantise, unit

# The original draws from the first five of six, so frost6.jpg is never used.
PHOTOGRAPHS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")

# Mean colour and standard deviation of the five photographs at a fifth of their size (numbers two and three are equal).
COLOURS = (
    ((78, 149, 166), 43), ((201, 205, 214), 23), ((201, 205, 214), 23), ((138, 153, 166), 31), ((112, 123, 135), 44)
)  # fmt: skip
LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)


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
