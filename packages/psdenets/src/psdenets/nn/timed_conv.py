"""Convolutions of [h, t]: the hidden state with time as one more channel, constant over the image.

    conv([h, t 1]; [W, V]) + b  =  conv(h; W) + conv(t 1; V) + b

The second term does not depend on h: it is computed once for a whole batch, and no channel is ever concatenated. It is
not constant over the image either, as zero padding cuts the kernel at the borders. Pixel (i, j) sees the taps (a, b)
with R[i, a] = C[j, b] = 1, and

    map[i, j] = t sum_ab R[i, a] C[j, b] V[a, b] + b,     a product with a matrix of zeros and ones.

On a CPU images and kernels are fastest with their channels last in memory. Kernels are kept that way, (out, k, k, in):
they come as views of the flat weights of a path, at every step others, and copies would be in vain.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from psdenets.nn.fast.add_map import Then, plus
from psdenets.nn.fast.thin_conv import conv

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
    k, size = weight.shape[-1], (h.shape[-2], h.shape[-1])
    out = conv(h, laid_out(weight), stride)
    return then(out, time_map(t, time_weight, bias, taps_seen(size, k, stride, h.dtype, h.device)))


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
    out = F.conv_transpose2d(h, laid_out(weight), None, 2, padding, (rows, columns))
    return then(out, time_map(t, time_weight, bias, taps_reached(size, k, h.dtype, h.device)))


def laid_out(weight: Tensor) -> Tensor:
    """A kernel (a, b, k, k) with its channels last in memory on a CPU, and first elsewhere.

    Images of one channel are laid out both ways at once. There the kernel decides, and with a plain one everything
    after it would be computed in the slower layout.
    """
    if weight.device.type != "cpu":
        return weight.contiguous()
    a, b, *k = weight.shape
    rows = weight.reshape(a, *k, 1) if b == 1 else weight.permute(0, 2, 3, 1).contiguous()
    return rows.permute(0, 3, 1, 2)


def time_map(t: Tensor, time_weight: Tensor, bias: Tensor, taps: Taps) -> Tensor:
    """What time and bias add to each pixel, (out, H, W), channels last in memory.

    Args:
        t: time, a scalar.
        time_weight: out kernels, (out, 1, k, k) or (1, out, k, k).
        bias: (out,).
        taps: which taps each pixel sees.
    """
    rows = torch.addmm(bias, taps.seen, (t * time_weight.reshape(len(bias), -1)).t())
    return rows.view(*taps.size, len(bias)).permute(2, 0, 1)


class Taps(NamedTuple):
    """Which taps of a kernel each pixel of a result of that size sees: zeros and ones, (H W, k k)."""

    size: Pair
    seen: Tensor


@lru_cache(maxsize=256)
def taps_seen(size: Pair, k: int, stride: int, dtype: torch.dtype, device: torch.device) -> Taps:
    """Of a convolution. Along each axis tap a falls into the image at pixel i if  0 <= i stride + a - k // 2 < n."""

    def along(n: int) -> Tensor:
        at = torch.arange(0, n, stride)[:, None] + torch.arange(k) - k // 2
        return (at >= 0) & (at < n)

    return _both(along(size[0]), along(size[1]), dtype, device)


@lru_cache(maxsize=256)
def taps_reached(size: Pair, k: int, dtype: torch.dtype, device: torch.device) -> Taps:
    """Of a transposed convolution, stride 2. Tap a reaches pixel i from pixel j if  2 j = i + k // 2 - a."""

    def along(n: int) -> Tensor:
        twice = torch.arange(n)[:, None] + k // 2 - torch.arange(k)
        return (twice % 2 == 0) & (twice >= 0) & (twice < 2 * math.ceil(n / 2))

    return _both(along(size[0]), along(size[1]), dtype, device)


def _both(rows: Tensor, columns: Tensor, dtype: torch.dtype, device: torch.device) -> Taps:
    """Taps along two axes, (H, k) and (W, k), as those of pixels."""
    with torch.inference_mode(False):  # what is kept must serve training too, whoever asks first
        seen = torch.einsum("ia,jb->ijab", rows.to(device, dtype), columns.to(device, dtype))
        return Taps((len(rows), len(columns)), seen.flatten(2).flatten(0, 1).contiguous())


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
        self.weight = _uniform((c_out, kernel, kernel, c_in), bound, generator)
        self.time_weight = _uniform((c_out, 1, kernel, kernel), bound, generator)
        self.bias = _uniform((c_out,), bound, generator)
        self.stride = stride

    @property
    def kernel(self) -> Tensor:
        """A view of the weight, (out, in, k, k)."""
        return self.weight.permute(0, 3, 1, 2)

    def forward(self, t: Tensor, h: Tensor, then: Then = plus) -> Tensor:
        """See `timed_conv`."""
        return timed_conv(t, h, self.kernel, self.time_weight, self.bias, self.stride, then)


@final
class TimedConvTranspose(nn.Module):
    """The transposed convolution of [h, t] that undoes the halving of a stride-2 `TimedConv`."""

    def __init__(self, c_in: int, c_out: int, kernel: int = 3, generator: torch.Generator | None = None) -> None:
        super().__init__()
        bound = 1 / math.sqrt((c_in + 1) * kernel**2)
        self.weight = _uniform((c_in, kernel, kernel, c_out), bound, generator)
        self.time_weight = _uniform((1, c_out, kernel, kernel), bound, generator)
        self.bias = _uniform((c_out,), bound, generator)

    @property
    def kernel(self) -> Tensor:
        """A view of the weight, (in, out, k, k)."""
        return self.weight.permute(0, 3, 1, 2)

    def forward(self, t: Tensor, h: Tensor, size: Pair, then: Then = plus) -> Tensor:
        """See `timed_conv_transpose`."""
        return timed_conv_transpose(t, h, self.kernel, self.time_weight, self.bias, size, then)


def _uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator | None) -> nn.Parameter:
    return nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) * bound)
