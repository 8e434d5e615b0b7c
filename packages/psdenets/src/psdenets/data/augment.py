"""Randomly augment a batch of training images, before they are scaled to [0, 1].

none        no change
jitter      rotated by up to 8 degrees, scaled by up to 8 %, shifted by up to 1/16 of the side     digits, drawings
crop-flip   shifted by up to 1/8 of the side with zero padding, half of the images mirrored        CIFAR-10: 4 of 32
shift-flip  shifted by up to 1/16 of the side with reflected borders; each image is mirrored in    CIFAR-10: 2 of 32
            every other epoch, starting with a random half of them
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

_TURN, _SCALE, _MOVE = math.radians(8), 0.08, 1 / 16


def augmented(pixels: Tensor, kind: str, generator: torch.Generator, turn: Tensor) -> Tensor:
    """Augment a batch of images.

    Args:
        pixels: uint8 (N, C, H, W); the result has the same shape and dtype.
        kind: see above.
        generator: source of randomness.
        turn: for each image a random bit, different in the next epoch: whether shift-flip mirrors it, (N,).
    """
    if kind == "none":
        return pixels
    if kind == "jitter":
        return jittered(pixels, generator)
    if kind == "shift-flip":
        return shifted(mirrored(pixels, turn), max(1, pixels.shape[-1] // 16), generator, "reflect")
    half = torch.rand(len(pixels), generator=generator) < 0.5
    return shifted(mirrored(pixels, half), max(1, pixels.shape[-1] // 8), generator)


def mirrored(pixels: Tensor, which: Tensor) -> Tensor:
    """Mirror some images: those with `which`, (N,)."""
    return torch.where(which[:, None, None, None], pixels.flip(-1), pixels)


def shifted(pixels: Tensor, most: int, generator: torch.Generator, border: str = "constant") -> Tensor:
    """Shift each image by up to `most` pixels along each axis: a random crop of the padded image."""
    n, c, height, width = pixels.shape
    padded = F.pad(pixels.float(), (most, most, most, most), border).to(pixels.dtype)
    down, right = torch.randint(2 * most + 1, (2, n), generator=generator)
    rows = (down[:, None] + torch.arange(height))[:, None, :, None]
    columns = (right[:, None] + torch.arange(width))[:, None, None, :]
    images = torch.arange(n)[:, None, None, None]
    channels = torch.arange(c)[None, :, None, None]
    return padded[images, channels, rows, columns]


def jittered(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate, scale and shift each image slightly, with bilinear interpolation and zeros outside the border."""
    turn, grow, down, right = 2 * torch.rand((4, len(pixels)), generator=generator) - 1
    turn, scale = turn * _TURN, 1 + grow * _SCALE
    # rows of the map from positions in the result to positions in the image, both with corners at -1 and 1
    x_row = torch.stack([scale * turn.cos(), -scale * turn.sin(), 2 * _MOVE * right], dim=1)
    y_row = torch.stack([scale * turn.sin(), scale * turn.cos(), 2 * _MOVE * down], dim=1)
    grid = F.affine_grid(torch.stack([x_row, y_row], dim=1), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels.float(), grid, align_corners=False).round().to(torch.uint8)
