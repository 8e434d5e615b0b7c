"""Convolutions of [h, t]: the hidden state with time as one more channel, constant over the image.

    conv([h, t 1]; [W, V]) + b  =  conv(h; W) + conv(t 1; V) + b

The second term does not depend on h. It is not constant over the image either, because zero padding cuts the kernel at
the borders; so it is a map with one image's size, computed once for a whole batch, and no channel is ever concatenated.
"""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Pair = tuple[int, int]


def timed_conv(t: Tensor, h: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor, stride: int = 1) -> Tensor:
    """Convolution of [h, t], (N, in, H, W) -> (N, out, ceil(H / stride), ceil(W / stride)).

    Args:
        t: time, a scalar.
        h: hidden state.
        weight: (out, in, k, k), k odd.
        time_weight: kernel of the time channel, (out, 1, k, k).
        bias: (out,).
        stride: step of the kernel.
    """
    padding = weight.shape[-1] // 2
    ones = h.new_ones((1, 1, *h.shape[-2:]))
    time_map = F.conv2d(ones, t * time_weight, bias, stride, padding)
    return F.conv2d(h, weight, None, stride, padding) + time_map


def timed_conv_transpose(t: Tensor, h: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor, size: Pair) -> Tensor:
    """Transposed convolution of [h, t] with stride 2, (N, in, ceil(H / 2), ceil(W / 2)) -> (N, out, H, W).

    Args:
        t: time, a scalar.
        h: hidden state.
        weight: (in, out, k, k), k odd.
        time_weight: kernel of the time channel, (1, out, k, k).
        bias: (out,).
        size: (H, W) of the result; even and odd sizes differ in one row of output padding.
    """
    k = weight.shape[-1]
    padding = k // 2
    rows, columns = (n - ((m - 1) * 2 - 2 * padding + k) for n, m in zip(size, h.shape[-2:], strict=True))
    ones = h.new_ones((1, 1, *h.shape[-2:]))
    time_map = F.conv_transpose2d(ones, t * time_weight, bias, 2, padding, (rows, columns))
    return F.conv_transpose2d(h, weight, None, 2, padding, (rows, columns)) + time_map


@final
class TimedConv(nn.Module):
    """A convolution of [h, t] that keeps height and width, or halves them (rounding up) with stride 2.

    It has out * ((in + 1) k^2 + 1) weights.
    """

    def __init__(
        self, c_in: int, c_out: int, kernel: int = 3, stride: int = 1, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt((c_in + 1) * kernel**2)
        self.weight = _uniform((c_out, c_in, kernel, kernel), bound, generator)
        self.time_weight = _uniform((c_out, 1, kernel, kernel), bound, generator)
        self.bias = _uniform((c_out,), bound, generator)
        self.stride = stride

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """See `timed_conv`."""
        return timed_conv(t, h, self.weight, self.time_weight, self.bias, self.stride)


@final
class TimedConvTranspose(nn.Module):
    """The transposed convolution of [h, t] that undoes the halving of a stride-2 `TimedConv`."""

    def __init__(self, c_in: int, c_out: int, kernel: int = 3, generator: torch.Generator | None = None) -> None:
        super().__init__()
        bound = 1 / math.sqrt((c_in + 1) * kernel**2)
        self.weight = _uniform((c_in, c_out, kernel, kernel), bound, generator)
        self.time_weight = _uniform((1, c_out, kernel, kernel), bound, generator)
        self.bias = _uniform((c_out,), bound, generator)

    def forward(self, t: Tensor, h: Tensor, size: Pair) -> Tensor:
        """See `timed_conv_transpose`."""
        return timed_conv_transpose(t, h, self.weight, self.time_weight, self.bias, size)


def _uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator | None) -> nn.Parameter:
    return nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) * bound)
