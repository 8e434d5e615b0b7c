"""Compute activation(x + m), where a map m (C, H, W) is added to every image of x (N, C, H, W).

The fast versions make fewer passes over memory than PyTorch's operations, mostly in the backward pass:

    x + m             the gradient of m is (1 ... 1) @ G, a matrix product, faster on a CPU than a sum over images
    softplus(x + m)   y = log u,  u = 1 + exp(x + m),  dy/dx = 1 - 1/u:  u is stored, so there is only one exponential
"""

from typing import Any, final

import torch
from torch import Tensor
from torch.nn import functional as F


def add(x: Tensor, m: Tensor) -> Tensor:
    """x + m, with the gradient of m computed as a matrix product."""
    out: Tensor = _Add.apply(x, m)  # type: ignore[no-untyped-call]
    return out


def softplus(x: Tensor, m: Tensor) -> Tensor:
    """log(1 + exp(x + m)), with the absolute rounding error of numbers around 1."""
    if x.dtype not in (torch.float32, torch.float64) or len(x) == 0:  # half precision would lose too many digits
        return F.softplus(add(x, m))
    out: Tensor = _Softplus.apply(x, m)[0]  # type: ignore[no-untyped-call]
    return out


@final
class _Add(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, m: Tensor) -> Tensor:
        return x + m

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """Nothing to save."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG004
        return g, sum_over_images(g)


@final
class _Softplus(torch.autograd.Function):
    """(y, u): u is also an output, because only inputs and outputs can be saved."""

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
        twice = torch.is_grad_enabled()  # a second derivative needs the graph, which y has and u lacks
        gx = -g * torch.expm1(-y) if twice else torch.addcdiv(g, g, u, value=-1)
        return gx, sum_over_images(gx)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], x: Tensor, m: Tensor
    ) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
        xs, ms = (
            z.expand(info.batch_size, *z.shape) if dim is None else z.movedim(dim, 0)
            for z, dim in zip((x, m), in_dims, strict=True)
        )
        pairs = [_Softplus.apply(a, b) for a, b in zip(xs, ms, strict=True)]  # type: ignore[no-untyped-call]
        return (torch.stack([y for y, _ in pairs]), torch.stack([u for _, u in pairs])), (0, 0)


def sum_over_images(g: Tensor) -> Tensor:
    """The sum of (N, C, H, W) over N, channels last in memory."""
    n, c, height, width = g.shape
    rows = g.permute(0, 2, 3, 1).reshape(n, height * width * c)  # a view if g is channels last
    return (g.new_ones(1, n) @ rows).view(height, width, c).permute(2, 0, 1)


def _in_memory_order(x: Tensor) -> Tensor:
    """x with its axes in memory order; a reduction in any other order takes four times as long."""
    return x.permute(0, 2, 3, 1) if not x.is_contiguous() else x
