"""Convolutions between thin images (at most three channels) and wide ones, as matrix products on a CPU.

The first and last layers of f_h are such convolutions. Libraries compute at least eight channels at a time, so half to
nine tenths of their work is wasted here. With the k k shifts of an image as an axis, stride 1, and one row per pixel,

    thin to wide     y = shifts(x)^T K            dx = fold(K dy^T),     dK = shifts(x) dy
    wide to thin     y = fold(K x^T)              dx = shifts(dy)^T K,   dK = shifts(dy) x

`shifts` only copies thin images, and its transpose `fold` only adds them. PyTorch's convolution is used where it is
just as fast: for y from thin to wide, for dK from two or three channels to wide, and for dx from wide to thin.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional as F

from psdenets.nn.fast.switch import enabled

Convolution = Callable[[Tensor, Tensor], Tensor]
_MOST = 3  # channels; with four or more, PyTorch's convolutions are faster


def convolution(c_in: int, c_out: int, k: int, stride: int = 1) -> Convolution:
    """The function (h, kernel) -> convolution with zero padding k // 2; k is odd and the kernel (out, in, k, k)."""
    thin = stride == 1 and min(c_in, c_out) <= _MOST < max(c_in, c_out)
    return thin_conv if thin and enabled() else partial(F.conv2d, stride=stride, padding=k // 2)


def thin_conv(h: Tensor, kernel: Tensor) -> Tensor:
    """Convolve a thin image to a wide one or vice versa, (N, in, H, W) -> (N, out, H, W), channels last on a CPU."""
    usual = h.ndim == 4 and len(h) > 0 and h.dtype in (torch.float32, torch.float64)
    if not usual or h.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
        return F.conv2d(h, kernel, None, 1, kernel.shape[-1] // 2)
    if len(kernel) < kernel.shape[1]:
        rows: Tensor = _ToThin.apply(h, kernel)  # type: ignore[no-untyped-call]
        return rows.permute(0, 3, 1, 2)
    out: Tensor = _ToWide.apply(h, kernel)  # type: ignore[no-untyped-call]
    return out


@final
class _ToThin(torch.autograd.Function):
    """Wide to thin, (N, H, W, c); the caller permutes the result, so that it supports in-place operations."""

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
        if h.shape[1] > 1:  # PyTorch is faster with two or more channels
            return gh, _plain_gradients(g, h, weight, (False, True))[1]
        return gh, _over_pixels(h, g, weight.shape[-1]).permute(3, 2, 0, 1)


@final
class _Shifts(torch.autograd.Function):
    """(c, N, H, W) -> (k, k, c, N, H, W): the shifted image that each tap of a kernel is applied to."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, k: int) -> Tensor:
        p, (height, width) = k // 2, x.shape[-2:]
        seen = F.pad(x, (p, p, p, p)).unfold(2, height, 1).unfold(3, width, 1)
        return seen.permute(2, 3, 0, 1, 4, 5).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
        """Nothing to save."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # noqa: ARG004
        gx: Tensor = _Fold.apply(g)  # type: ignore[no-untyped-call]
        return gx, None


@final
class _Fold(torch.autograd.Function):
    """(k, k, c, N, H, W) -> (c, N, H, W), the transpose of `_Shifts`."""

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
    # If c = 1, this order of the products is three times as fast as any other.
    parts = taps.reshape(-1, channels).contiguous() @ _rows(wide).t()
    folded: Tensor = _Fold.apply(parts.view(*taps.shape[:3], n, height, width))  # type: ignore[no-untyped-call]
    return folded.permute(1, 2, 3, 0).contiguous()


def _over_pixels(thin: Tensor, wide: Tensor, k: int) -> Tensor:
    """shifts(thin) wide: (N, c, H, W) and (N, C, H, W) -> (k, k, c, C)."""
    planes: Tensor = _Shifts.apply(thin.transpose(0, 1).contiguous(), k)  # type: ignore[no-untyped-call]
    rows = _rows(wide)
    return (planes.view(-1, len(rows)) @ rows).view(k, k, thin.shape[1], -1)


def _rows(wide: Tensor) -> Tensor:
    """(N, C, H, W) -> (N H W, C), a view if channels are last."""
    return wide.permute(0, 2, 3, 1).reshape(-1, wide.shape[1])


def _plain_gradients(g: Tensor, h: Tensor, weight: Tensor, which: tuple[bool, bool]) -> tuple[Tensor, Tensor]:
    """Gradients of PyTorch's convolution with respect to h and weight."""
    p = weight.shape[-1] // 2
    gh, gw, _ = torch.ops.aten.convolution_backward(
        g, h, weight, None, [1, 1], [p, p], [1, 1], False, [0, 0], 1, [*which, False]
    )
    return gh, gw
