"""Spatter: drops of water (pale turquoise, lit from one side) at severities 1 to 3, mud (brown) at 4 and 5."""

import numpy as np
from numpy.typing import NDArray

from bnneval.corruptions.blur import smooth
from bnneval.corruptions.edges import box_blur, canny, distance_to, emboss, equalise
from bnneval.corruptions.levels import Image, quantise, unit

TURQUOISE = np.array([175, 238, 238], dtype=np.float32) / 255
BROWN = np.array([63, 42, 20], dtype=np.float32) / 255


def spatter(
    image: Image,
    rng: np.random.Generator,
    loc: float,
    scale: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: int,
) -> Image:
    """Drops where noise exceeds a threshold; water adds `strength` of its colour; mud, blurred by it, covers x."""
    x = unit(image).astype(np.float32)
    liquid = smooth(rng.normal(loc, scale, x.shape[:2]), sigma)
    liquid[liquid < threshold] = 0
    if mud:
        cover = smooth((liquid > threshold).astype(np.float32), strength)
        cover[cover < 0.8] = 0
        return quantise(x * (1 - cover[..., None]) + BROWN * cover[..., None])
    # As in the original and the official files, noise above 1 wraps around to a low byte: a hole in the drop.
    drops = (liquid * 255).astype(np.int64).astype(np.uint8)
    return quantise(x + np.float32(strength) * _lit(drops)[..., None] * TURQUOISE)


def _lit(liquid: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Drops shaded by the distance from their rims, with maximum 1; all 0 if there is no drop."""
    height = box_blur(distance_to(canny(liquid, 50, 150), 20)).astype(np.uint8)
    shade = np.rint(box_blur(emboss(equalise(height)))).astype(np.float32)
    drops = liquid * shade
    lit: NDArray[np.float32] = drops / max(drops.max(), np.float32(1))
    return lit
