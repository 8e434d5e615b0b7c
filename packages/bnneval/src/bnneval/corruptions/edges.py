"""The OpenCV functions that *spatter* uses, on (H, W) bytes: Canny edges, chamfer distance, equalisation, filters."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

# OpenCV's 5 x 5 chamfer mask for the Euclidean distance, in 16-bit fixed point: axial, diagonal and knight's steps.
AXIAL, DIAGONAL, KNIGHT = (round(length * 65536) / 65536 for length in (1.0, 1.4, 2.1969))
TAN_22_5 = round((2**0.5 - 1) * 2**15)


def canny(x: NDArray[np.uint8], low: int, high: int) -> NDArray[np.bool_]:
    """Canny edges: thin ridges of the Sobel gradient |dx| + |dy| above `low` that are connected to one above `high`."""
    wide = x.astype(np.int64)
    dx, dy = (ndimage.sobel(wide, axis=axis, mode="nearest") for axis in (1, 0))
    ridge = _ridges(dx, dy) & (np.abs(dx) + np.abs(dy) > low)
    parts, count = ndimage.label(ridge, structure=np.ones((3, 3)))
    strong = np.zeros(count + 1, dtype=bool)
    strong[parts[ridge & (np.abs(dx) + np.abs(dy) > high)]] = True
    edges: NDArray[np.bool_] = strong[parts]
    return edges


def _ridges(dx: NDArray[np.int64], dy: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Pixels whose gradient exceeds that of the two neighbours along its direction, one of eight (ties to one side)."""
    size = np.abs(dx) + np.abs(dy)
    h, w = size.shape
    padded = np.pad(size, 1)

    def neighbour(rows: int, columns: int) -> NDArray[np.int64]:
        return padded[1 + rows : 1 + rows + h, 1 + columns : 1 + columns + w]

    x, y = np.abs(dx), np.abs(dy) << 15
    flat, steep = y < x * TAN_22_5, y > x * (TAN_22_5 + 2**16)
    along_x = (size > neighbour(0, -1)) & (size >= neighbour(0, 1))
    along_y = (size > neighbour(-1, 0)) & (size >= neighbour(1, 0))
    falling = (size > neighbour(-1, -1)) & (size > neighbour(1, 1))
    rising = (size > neighbour(-1, 1)) & (size > neighbour(1, -1))
    return np.where(flat, along_x, np.where(steep, along_y, np.where((dx ^ dy) < 0, rising, falling)))


@cache
def _chamfer(h: int, w: int) -> NDArray[np.float32]:
    """(H W, H W) chamfer distances between all pixels: the shortest path of axial, diagonal and knight's moves."""
    row, column = np.divmod(np.arange(h * w), w)
    dr, dc = np.abs(row[:, None] - row), np.abs(column[:, None] - column)
    long, short = np.maximum(dr, dc), np.minimum(dr, dc)
    flat = (long - 2 * short) * AXIAL + short * KNIGHT
    steep = (2 * short - long) * DIAGONAL + (long - short) * KNIGHT
    lengths: NDArray[np.float32] = np.where(2 * short <= long, flat, steep).astype(np.float32)
    return lengths


def distance_to(edges: NDArray[np.bool_], limit: float) -> NDArray[np.float32]:
    """Chamfer distance of each pixel to the nearest edge, at most `limit`; without edges it is `limit` everywhere."""
    to_nearest: NDArray[np.float32] = _chamfer(*edges.shape)[np.flatnonzero(edges)].min(axis=0, initial=limit)
    return to_nearest.reshape(edges.shape)


def box_blur(x: NDArray[Any]) -> NDArray[np.float64]:
    """3 x 3 mean, mirrored about the border pixels; sums of bytes are exact."""
    total = x.astype(np.float64)
    for axis in (0, 1):
        total = ndimage.correlate1d(total, [1.0, 1.0, 1.0], axis=axis, mode="mirror")
    return total / 9


def equalise(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Histogram equalisation: the cumulative histogram above the lowest level, stretched to 0..255."""
    histogram = np.bincount(x.ravel(), minlength=256)
    lowest = int(np.flatnonzero(histogram)[0])
    rest = x.size - histogram[lowest]
    if rest == 0:
        return x
    above = np.cumsum(histogram) - histogram[: lowest + 1].sum()
    table: NDArray[np.uint8] = np.rint(np.maximum(above, 0) * np.float32(255 / rest)).astype(np.uint8)
    return table[x]


def emboss(x: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Light from the upper left: correlation with [[-2,-1,0],[-1,1,1],[0,1,2]], mirrored, clipped to bytes."""
    kernel = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
    lit: NDArray[np.int64] = ndimage.correlate(x.astype(np.int64), kernel, mode="mirror")
    return np.clip(lit, 0, 255).astype(np.uint8)
