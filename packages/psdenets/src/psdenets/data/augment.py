"""Random changes to training images, a whole batch at a time, before they become numbers in [0, 1].

none        nothing
shift       up to one twelfth of the side in any direction, zeros coming in       digits have a left and a right
crop-flip   up to one eighth of the side, and half the images mirrored            as the paper's CIFAR-10: 4 of 32
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def augmented(pixels: Tensor, kind: str, generator: torch.Generator) -> Tensor:
    """Changed copies, uint8 (N, C, H, W) -> the same."""
    if kind == "none":
        return pixels
    if kind == "shift":
        return shifted(pixels, max(1, round(pixels.shape[-1] / 12)), generator)
    mirrored = torch.rand(len(pixels), generator=generator) < 0.5
    pixels = torch.where(mirrored[:, None, None, None], pixels.flip(-1), pixels)
    return shifted(pixels, max(1, pixels.shape[-1] // 8), generator)


def shifted(pixels: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """Each image moved by up to ``most`` pixels along each axis: a random crop of the image in a zero border."""
    n, c, height, width = pixels.shape
    padded = F.pad(pixels, (most, most, most, most))
    down, right = torch.randint(2 * most + 1, (2, n), generator=generator)
    rows = (down[:, None] + torch.arange(height))[:, None, :, None]
    columns = (right[:, None] + torch.arange(width))[:, None, None, :]
    images = torch.arange(n)[:, None, None, None]
    channels = torch.arange(c)[None, :, None, None]
    return padded[images, channels, rows, columns]
