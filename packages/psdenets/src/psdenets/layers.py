"""Convolutions of [h, t]: the hidden state with time as one more channel, constant over the image.

    conv([h, t 1]; [W, V]) + b  =  conv(h; W) + conv(t 1; V) + b

The second term does not depend on h: it is computed once for a whole batch, and no channel is ever concatenated. It is
not constant over the image either, as zero padding cuts the kernel at the borders. Pixel (i, j) sees the taps (a, b)
with R[i, a] = C[j, b] = 1, and

    map[i, j] = t sum_ab R[i, a] V[a, b] C[j, b] + b,     two products with matrices of zeros and ones.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from psdenets.pointwise import Then, plus
from psdenets.thin import conv

Pair = tuple[int, int]


def timed_conv(
    t: Tensor, h: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor, stride: int = 1, then: Then = plus
) -> Tensor:
    """Convolution of [h, t], (N, in, H, W) -> (N, out, ceil(H / stride), ceil(W / stride)).

    Args:
        t: time, a scalar.
        h: hidden state.
        weight: (out, in, k, k), k odd.
        time_weight: kernel of the time channel, (out, 1, k, k).
        bias: (out,).
        stride: step of the kernel.
        then: how the time map is added, with an activation perhaps.
    """
    k = weight.shape[-1]
    seen = tuple(taps_seen(n, k, stride, h.dtype, h.device) for n in h.shape[-2:])
    out = conv(h, laid_out(weight), stride)
    return then(out, time_map(t, time_weight[:, 0], bias, *seen))


def timed_conv_transpose(
    t: Tensor, h: Tensor, weight: Tensor, time_weight: Tensor, bias: Tensor, size: Pair, then: Then = plus
) -> Tensor:
    """Transposed convolution of [h, t] with stride 2, (N, in, ceil(H / 2), ceil(W / 2)) -> (N, out, H, W).

    Args:
        t: time, a scalar.
        h: hidden state.
        weight: (in, out, k, k), k odd.
        time_weight: kernel of the time channel, (1, out, k, k).
        bias: (out,).
        size: (H, W) of the result; even and odd sizes differ in one row of output padding.
        then: how the time map is added, with an activation perhaps.
    """
    k = weight.shape[-1]
    padding = k // 2
    rows, columns = (n - ((m - 1) * 2 - 2 * padding + k) for n, m in zip(size, h.shape[-2:], strict=True))
    seen = tuple(taps_reached(m, n, k, h.dtype, h.device) for m, n in zip(h.shape[-2:], size, strict=True))
    out = F.conv_transpose2d(h, laid_out(weight), None, 2, padding, (rows, columns))
    return then(out, time_map(t, time_weight[0], bias, *seen))


def laid_out(weight: Tensor) -> Tensor:
    """A kernel (a, b, k, k) with its channels last in memory on a CPU.

    Images of one channel are laid out both ways at once. There the kernel decides, and with a plain one everything
    after it would be computed in the slower layout.
    """
    if weight.device.type != "cpu":
        return weight
    a, b, *k = weight.shape
    rows = weight.reshape(a, *k, 1) if b == 1 else weight.permute(0, 2, 3, 1).contiguous()
    return rows.permute(0, 3, 1, 2)


def time_map(t: Tensor, time_weight: Tensor, bias: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """What time and bias add to each pixel, (out, H, W), channels last in memory.

    Args:
        t: time, a scalar.
        time_weight: (out, k, k).
        bias: (out,).
        rows: which taps a row of pixels sees, zeros and ones, (H, k).
        columns: likewise, (W, k).
    """
    by_row = rows @ (t * time_weight)  # (out, H, k)
    channels_last = columns @ by_row.permute(1, 2, 0) + bias  # (H, W, out)
    return channels_last.permute(2, 0, 1)


@lru_cache(maxsize=256)
def taps_seen(n: int, k: int, stride: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Taps a of a convolution that fall into the image at each output pixel i:  0 <= i stride + a - k // 2 < n."""
    with torch.inference_mode(False):  # what is kept must serve training too, whoever asks first
        at = torch.arange(0, n, stride)[:, None] + torch.arange(k) - k // 2
        return ((at >= 0) & (at < n)).to(device, dtype)


@lru_cache(maxsize=256)
def taps_reached(m: int, n: int, k: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Taps a of a transposed convolution, stride 2, that reach output pixel i from one of m:  2 j = i + k // 2 - a."""
    with torch.inference_mode(False):
        twice = torch.arange(n)[:, None] + k // 2 - torch.arange(k)
        return ((twice % 2 == 0) & (twice >= 0) & (twice < 2 * m)).to(device, dtype)


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

    def forward(self, t: Tensor, h: Tensor, then: Then = plus) -> Tensor:
        """See `timed_conv`."""
        return timed_conv(t, h, self.weight, self.time_weight, self.bias, self.stride, then)


@final
class TimedConvTranspose(nn.Module):
    """The transposed convolution of [h, t] that undoes the halving of a stride-2 `TimedConv`."""

    def __init__(self, c_in: int, c_out: int, kernel: int = 3, generator: torch.Generator | None = None) -> None:
        super().__init__()
        bound = 1 / math.sqrt((c_in + 1) * kernel**2)
        self.weight = _uniform((c_in, c_out, kernel, kernel), bound, generator)
        self.time_weight = _uniform((1, c_out, kernel, kernel), bound, generator)
        self.bias = _uniform((c_out,), bound, generator)

    def forward(self, t: Tensor, h: Tensor, size: Pair, then: Then = plus) -> Tensor:
        """See `timed_conv_transpose`."""
        return timed_conv_transpose(t, h, self.weight, self.time_weight, self.bias, size, then)


def _uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator | None) -> nn.Parameter:
    return nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) * bound)
