"""Elastic transform, pixelate and JPEG compression."""

from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from bnneval.corruptions.levels import Image, quantise, unit


def _affine(x: NDArray[np.float32], matrix: NDArray[np.float64]) -> NDArray[np.float32]:
    """x warped by the (2, 3) `matrix` on (column, row), with linear interpolation, mirrored about the border pixels.

    Source positions are multiples of 1/32 pixel, rounded as in OpenCV's fixed-point warp: the contributions of column
    and row to 1/1024 each, their sum to 1/32.
    """
    h, w, channels = x.shape
    inverse = np.linalg.inv(np.vstack([matrix, [0, 0, 1]]))
    row, column = np.mgrid[:h, :w]
    from_column, from_row = (
        np.floor((np.rint(a * column * 1024) + np.rint((b * row + c) * 1024) + 16) / 32) / 32 for a, b, c in inverse[:2]
    )
    at = np.stack([from_row, from_column])
    return np.stack([ndimage.map_coordinates(x[..., c], at, order=1, mode="mirror") for c in range(channels)], axis=-1)


def elastic_transform(image: Image, rng: np.random.Generator, alpha: float, sigma: float, affine: float) -> Image:
    """A random affine map, then a displacement of every pixel by alpha * (noise smoothed over sigma).

    The affine map moves three points, a third of the side away from the centre, by up to `affine`. All three constants
    are fractions of the side (32 pixels in CIFAR). With alpha = 0 only the affine map remains.
    """
    x = unit(image).astype(np.float32)
    h, w = x.shape[:2]
    side, arm = min(h, w), min(h, w) // 3
    centre = np.array([h // 2, w // 2], dtype=np.float32)
    points = np.array([centre + arm, [centre[0] + arm, centre[1] - arm], centre - arm], dtype=np.float32)
    moved = points + rng.uniform(-affine * side, affine * side, size=points.shape).astype(np.float32)
    x = _affine(x, _through(points, moved))
    noise = (rng.uniform(-1, 1, size=(h, w)) for _ in range(2))
    smooth = (ndimage.gaussian_filter(one, sigma * side, mode="reflect", truncate=3.0) for one in noise)
    across, down = (one * (alpha * side) for one in smooth)
    row, column = np.mgrid[:h, :w]
    at = np.stack([row + down.astype(np.float32), column + across.astype(np.float32)])
    warped = [ndimage.map_coordinates(x[..., c], at, order=1, mode="reflect") for c in range(x.shape[-1])]
    return quantise(np.stack(warped, axis=-1))


def _through(points: NDArray[np.float32], moved: NDArray[np.float32]) -> NDArray[np.float64]:
    """(2, 3) affine matrix that takes three points to three others."""
    homogeneous = np.column_stack([points, np.ones(3)]).astype(np.float64)
    return np.linalg.solve(homogeneous, moved.astype(np.float64)).T.astype(np.float64)


def pixelate(image: Image, rng: np.random.Generator, scale: float) -> Image:  # noqa: ARG001  same signature for all
    """Shrink to int(side * scale) and enlarge to the original size, both with a box filter."""
    from PIL import Image as Picture

    h, w = image.shape[:2]
    small = Picture.fromarray(image).resize((int(w * scale), int(h * scale)), Picture.Resampling.BOX)
    return np.asarray(small.resize((w, h), Picture.Resampling.BOX))


def jpeg_compression(image: Image, rng: np.random.Generator, quality: int) -> Image:  # noqa: ARG001
    """Encode and decode as JPEG of this quality, with chroma at half resolution."""
    from PIL import Image as Picture

    file = BytesIO()
    Picture.fromarray(image).save(file, "JPEG", quality=quality)
    return np.asarray(Picture.open(file))
