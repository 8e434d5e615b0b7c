"""Space-to-depth: (N, C, 2H, 2W) -> (N, 4C, H, W), every 2 x 2 square of pixels becomes four channels; invertible.

Channel 4c + 2i + j of the result is channel c at rows i, i + 2, ... and columns j, j + 2, ... A plain reshape to
the same shape would mix rows that are not adjacent.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def space_to_depth(h: Tensor) -> Tensor:
    """Half the height and width, four times the channels."""
    if h.shape[-2] % 2 or h.shape[-1] % 2:
        raise ValueError(f"expected even height and width for space-to-depth, got {h.shape[-2]} x {h.shape[-1]}")
    return F.pixel_unshuffle(h, 2)


def depth_to_space(h: Tensor) -> Tensor:
    """The inverse of `space_to_depth`."""
    if h.shape[-3] % 4:
        raise ValueError(f"expected a multiple of 4 channels for depth-to-space, got {h.shape[-3]}")
    return F.pixel_shuffle(h, 2)
