"""What lies between two convolutions: a map m (C, H, W) is added to every image of x (N, C, H, W), then an activation.

Written with fewer passes over memory than PyTorch's own operations, in the backward pass above all:

    x + m             the gradient of m is (1 ... 1) @ G, a product of matrices, faster on a CPU than a sum over images
    softplus(x + m)   y = log u,  u = 1 + exp(x + m),  dy/dx = 1 - 1/u:  u is kept, and no exponential is taken twice
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional as F

Then = Callable[[Tensor, Tensor], Tensor]


def plus(x: Tensor, m: Tensor) -> Tensor:
    """x + m."""
    out: Tensor = _Plus.apply(x, m)  # type: ignore[no-untyped-call]
    return out


def softplus(x: Tensor, m: Tensor) -> Tensor:
    """log(1 + exp(x + m)), with the absolute accuracy that numbers around 1 have."""
    if x.dtype not in (torch.float32, torch.float64) or len(x) == 0:  # where that accuracy is poor, or there is nothing
        return F.softplus(plus(x, m))
    out: Tensor = _Softplus.apply(x, m)[0]  # type: ignore[no-untyped-call]
    return out


def tanh(x: Tensor, m: Tensor) -> Tensor:
    """The hyperbolic tangent of x + m."""
    return torch.tanh(plus(x, m))


def elu(x: Tensor, m: Tensor) -> Tensor:
    """ELU of x + m."""
    return F.elu(plus(x, m))


def swish(x: Tensor, m: Tensor) -> Tensor:
    """z sigmoid(z) at z = x + m."""
    return F.silu(plus(x, m))


def rbf(x: Tensor, m: Tensor) -> Tensor:
    """exp(-z^2) at z = x + m."""
    return torch.exp(-plus(x, m).square())


@final
class _Plus(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, m: Tensor) -> Tensor:
        return x + m

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG004
        return g, over_images(g)


@final
class _Softplus(torch.autograd.Function):
    """(y, u): u is an output so that it can be kept."""

    @staticmethod
    def forward(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        u = (x + m).exp_().add_(1)
        if bool(_in_memory_order(u).amax() < torch.inf):
            return u.log(), u
        return F.softplus(x + m), u.clamp_(max=torch.finfo(u.dtype).max)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:  # noqa: ARG004
        y, u = output
        ctx.mark_non_differentiable(u)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(y, u)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, _: None) -> tuple[Tensor | None, Tensor | None]:
        if g is None:
            return None, None
        y, u = ctx.saved_tensors
        twice = torch.is_grad_enabled()  # a second derivative: y knows where it comes from, u does not
        gx = -g * torch.expm1(-y) if twice else torch.addcdiv(g, g, u, value=-1)
        return gx, over_images(gx)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], x: Tensor, m: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        z, size = _side_by_side(x, in_dims[0], info.batch_size), info.batch_size
        maps = _side_by_side(m, in_dims[1], size)
        pairs = [_Softplus.apply(a, b) for a, b in zip(z, maps, strict=True)]  # type: ignore[no-untyped-call]
        return (torch.stack([y for y, _ in pairs]), torch.stack([u for _, u in pairs])), (0, 0)


def over_images(g: Tensor) -> Tensor:
    """The sum of (N, C, H, W) over N, channels last in memory."""
    n, c, height, width = g.shape
    rows = g.permute(0, 2, 3, 1).reshape(n, height * width * c)  # a view where channels are last
    return (g.new_ones(1, n) @ rows).view(height, width, c).permute(2, 0, 1)


def _in_memory_order(x: Tensor) -> Tensor:
    """x as it lies in memory where channels are last: a reduction that jumps takes four times as long."""
    return x.permute(0, 2, 3, 1) if not x.is_contiguous() else x


def _side_by_side(x: Tensor, dim: int | None, size: int) -> Tensor:
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
