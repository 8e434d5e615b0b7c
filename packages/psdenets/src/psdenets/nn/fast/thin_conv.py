"""Convolutions between thin images, of at most three channels, and wide ones, as products of matrices on a CPU.

The first and the last layer of f_h are such convolutions. Libraries compute eight channels at a time or more, and half
to nine tenths of that is thrown away here. With the k k shifts of an image as an axis of their own, stride 1, and rows
of pixels,

    thin to wide     y = shifts(x)^T K            dx = fold(K dy^T),     dK = shifts(x) dy
    wide to thin     y = fold(K x^T)              dx = shifts(dy)^T K,   dK = shifts(dy) x

``shifts`` copies thin images alone, and ``fold``, its transpose, adds thin images alone. Where PyTorch's convolution is
as fast it is used: for y from thin to wide, for dK there but from one channel, and for dx from wide to thin.
"""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional as F

_MOST = 3  # channels: from four on PyTorch's convolutions are faster


def conv(h: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    """Convolution with an odd kernel (out, in, k, k) and zero padding k // 2, channels last on a CPU."""
    c_out, c_in, k, _ = weight.shape
    thin = stride == 1 and h.ndim == 4 and len(h) > 0 and min(c_in, c_out) <= _MOST < max(c_in, c_out)
    if not thin or not _usual(h):
        return F.conv2d(h, weight, None, stride, k // 2)
    if c_out < c_in:
        rows: Tensor = _ToThin.apply(h, weight)  # type: ignore[no-untyped-call]
        return rows.permute(0, 3, 1, 2)
    out: Tensor = _ToWide.apply(h, weight)  # type: ignore[no-untyped-call]
    return out


def _usual(h: Tensor) -> bool:
    """Whether the products below are as exact as the library, and on the device on which they are faster."""
    cpu = h.device.type == "cpu" and not torch.is_autocast_enabled("cpu")
    return cpu and h.dtype in (torch.float32, torch.float64)


@final
class _ToThin(torch.autograd.Function):
    """(N, H, W, c): the caller makes a view of it, which may be written into."""

    generate_vmap_rule = True

    @staticmethod
    def forward(h: Tensor, weight: Tensor) -> Tensor:
        return _folded(h, weight.flip(2, 3).permute(2, 3, 0, 1))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        h, weight = ctx.saved_tensors
        to_h, to_weight = ctx.needs_input_grad
        g = g.permute(0, 3, 1, 2)
        gh = _plain_gradients(g, h, weight, (True, False))[0] if to_h else None
        gw = _over_pixels(g, h, weight.shape[-1]).flip(0, 1).permute(2, 3, 0, 1) if to_weight else None
        return gh, gw


@final
class _ToWide(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(h: Tensor, weight: Tensor) -> Tensor:
        return F.conv2d(h, weight, None, 1, weight.shape[-1] // 2)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None]:
        h, weight = ctx.saved_tensors
        to_h, to_weight = ctx.needs_input_grad
        gh = _folded(g, weight.permute(2, 3, 1, 0)).permute(0, 3, 1, 2) if to_h else None
        if not to_weight:
            return gh, None
        if h.shape[1] > 1:  # from two channels on the library is faster
            return gh, _plain_gradients(g, h, weight, (False, True))[1]
        return gh, _over_pixels(h, g, weight.shape[-1]).permute(3, 2, 0, 1)


@final
class _Shifts(torch.autograd.Function):
    """(c, N, H, W) -> (k, k, c, N, H, W): the image that each tap of a kernel sees."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, k: int) -> Tensor:
        p, (height, width) = k // 2, x.shape[-2:]
        seen = F.pad(x, (p, p, p, p)).unfold(2, height, 1).unfold(3, width, 1)
        return seen.permute(2, 3, 0, 1, 4, 5).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004
        gx: Tensor = _Fold.apply(g)  # type: ignore[no-untyped-call]
        return gx, None


@final
class _Fold(torch.autograd.Function):
    """(k, k, c, N, H, W) -> (c, N, H, W), the transpose of ``_Shifts``."""

    generate_vmap_rule = True

    @staticmethod
    def forward(parts: Tensor) -> Tensor:
        k, _, c, n, height, width = parts.shape
        p = k // 2
        total = parts.new_zeros(c, n, height + 2 * p, width + 2 * p)
        for a in range(k):
            for b in range(k):
                total[:, :, a : a + height, b : b + width].add_(parts[a, b])
        return total[:, :, p : p + height, p : p + width]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:  # noqa: ARG004
        ctx.k = inputs[0].shape[0]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        gx: Tensor = _Shifts.apply(g, ctx.k)  # type: ignore[no-untyped-call]
        return gx


def _folded(wide: Tensor, taps: Tensor) -> Tensor:
    """fold(K x^T): wide (N, C, H, W) and taps (k, k, c, C) -> (N, H, W, c)."""
    n, channels, height, width = wide.shape
    # Of all orders of these products, this one is three times as fast as the others where c = 1.
    parts = taps.reshape(-1, channels).contiguous() @ _rows(wide).t()
    folded: Tensor = _Fold.apply(parts.view(*taps.shape[:3], n, height, width))  # type: ignore[no-untyped-call]
    return folded.permute(1, 2, 3, 0).contiguous()


def _over_pixels(thin: Tensor, wide: Tensor, k: int) -> Tensor:
    """shifts(thin) wide: (N, c, H, W) and (N, C, H, W) -> (k, k, c, C)."""
    planes: Tensor = _Shifts.apply(thin.transpose(0, 1).contiguous(), k)  # type: ignore[no-untyped-call]
    rows = _rows(wide)
    return (planes.view(-1, len(rows)) @ rows).view(k, k, thin.shape[1], -1)


def _rows(wide: Tensor) -> Tensor:
    """(N, C, H, W) -> (N H W, C), a view where channels are last."""
    return wide.permute(0, 2, 3, 1).reshape(-1, wide.shape[1])


def _plain_gradients(g: Tensor, h: Tensor, weight: Tensor, which: tuple[bool, bool]) -> tuple[Tensor, Tensor]:
    """Gradients of PyTorch's convolution to h and weight."""
    p = weight.shape[-1] // 2
    gh, gw, _ = torch.ops.aten.convolution_backward(
        g, h, weight, None, [1, 1], [p, p], [1, 1], False, [0, 0], 1, [*which, False]
    )
    return gh, gw
