"""Which kernel taps contribute to each pixel of a convolution; zero padding cuts off taps at the borders.

    map[i, j] = sum_ab R[i, a] C[j, b] V[a, b]      for a kernel V and an image of ones

R and C contain zeros and ones, with one row per pixel along an axis and one column per tap.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

Pair = tuple[int, int]


class Taps(NamedTuple):
    """Zeros and ones, (H W, k k): which kernel taps contribute to each pixel of a result of this size."""

    size: Pair
    seen: Tensor


@lru_cache(maxsize=256)
def taps_seen(size: Pair, k: int, stride: int, dtype: torch.dtype, device: torch.device) -> Taps:
    """Taps of a convolution. Along each axis, tap a contributes to pixel i if  0 <= i stride + a - k // 2 < n."""

    def along(n: int) -> Tensor:
        at = torch.arange(0, n, stride)[:, None] + torch.arange(k) - k // 2
        return (at >= 0) & (at < n)

    return _along_both_axes(along(size[0]), along(size[1]), dtype, device)


@lru_cache(maxsize=256)
def taps_reached(size: Pair, k: int, dtype: torch.dtype, device: torch.device) -> Taps:
    """Taps of a transposed convolution with stride 2. Tap a maps pixel j to pixel i if  2 j = i + k // 2 - a."""

    def along(n: int) -> Tensor:
        twice = torch.arange(n)[:, None] + k // 2 - torch.arange(k)
        return (twice % 2 == 0) & (twice >= 0) & (twice < 2 * math.ceil(n / 2))

    return _along_both_axes(along(size[0]), along(size[1]), dtype, device)


def _along_both_axes(rows: Tensor, columns: Tensor, dtype: torch.dtype, device: torch.device) -> Taps:
    """Taps per pixel, combined from the taps along each axis, (H, k) and (W, k)."""
    with torch.inference_mode(False):  # cached tensors must work in training, even if created during inference
        seen = torch.einsum("ia,jb->ijab", rows.to(device, dtype), columns.to(device, dtype))
        return Taps((len(rows), len(columns)), seen.flatten(2).flatten(0, 1).contiguous())
