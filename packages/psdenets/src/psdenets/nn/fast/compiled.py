"""`--compile`: compute an activation and its derivative, (a(z), a'(z)) at z = x + m, in one pass with torch.compile.

The backward pass is then a single product. In float32 the logarithm of softplus is a polynomial, which compiled code
evaluates in registers:  log(1 + e) = e P(e) on [0, 1] to 3.4e-9, with e = exp(-|z|).
"""

import os
import shutil
from collections.abc import Callable
from functools import lru_cache
from typing import Any, final

import torch
from torch import Tensor

from psdenets.errors import BadInput
from psdenets.nn.fast.add_map import sum_over_images

Kernel = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
_SHAPES = 64  # limit on compiled kernels, one per image shape (layer, training or evaluation batch)

# P, lowest power first: log(1 + e) / e interpolated at ten Chebyshev points of [0, 1].
LOGARITHM = (
    0.9999999947, -0.4999989265, 0.333297105, -0.2495161627, 0.1966327427,
    -0.152696671, 0.1054362384, -0.05637361321, 0.01954252744, -0.003176057053,
)  # fmt: skip


def softplus(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """max(z, 0) + log(1 + e), and the logistic function."""
    z = x + m
    e = torch.exp(-z.abs())
    if z.dtype == torch.float32:
        *rest, p = LOGARITHM
        log: Any = p
        for c in reversed(rest):
            log = log * e + c
        log = log * e
    else:
        log = torch.log1p(e)
    r = 1 / (1 + e)
    return z.clamp(min=0) + log, torch.where(z > 0, r, e * r)


def tanh(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """tanh and 1 - tanh^2."""
    y = torch.tanh(x + m)
    return y, 1 - y * y


def elu(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """z or e^z - 1, and 1 or e^z."""
    z = x + m
    below = torch.expm1(z.clamp(max=0))
    return torch.where(z > 0, z, below), below + 1


def swish(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """z s and s (1 + z (1 - s)) with s the logistic function."""
    z = x + m
    s = torch.sigmoid(z)
    return z * s, s * (1 + z * (1 - s))


def rbf(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """exp(-z^2) and -2 z exp(-z^2)."""
    z = x + m
    y = torch.exp(-z * z)
    return y, -2 * z * y


def relu(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """max(z, 0), and 0 or 1."""
    z = x + m
    return z.clamp(min=0), (z > 0).to(z.dtype)


def gelu(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
    """z P(z) and P(z) + z p(z) with P and p the normal distribution function and density."""
    z = x + m
    below = 0.5 * (1 + torch.erf(z * 0.5**0.5))
    return z * below, below + z * torch.exp(-0.5 * z * z) * (2 * torch.pi) ** -0.5


KERNELS: dict[str, Kernel] = {
    "softplus": softplus, "tanh": tanh, "elu": elu, "swish": swish, "rbf": rbf, "relu": relu, "gelu": gelu,
}  # fmt: skip


def compiled_add_map(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """The compiled function (x, m) -> activation(x + m); compiling it for a new shape takes seconds."""
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        raise BadInput(
            f"expected a C++ compiler for --compile, but {compiler} was not found; set CXX or omit --compile"
        )
    kernel = _compiled(KERNELS[name])

    def fused(x: Tensor, m: Tensor) -> Tensor:
        out: Tensor = _Fused.apply(kernel, x, m)  # type: ignore[no-untyped-call]
        return out

    return fused


@lru_cache(maxsize=len(KERNELS))
def _compiled(kernel: Kernel) -> Kernel:
    function: Kernel = torch.compile(kernel, dynamic=False)

    def run(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor]:
        with torch._dynamo.config.patch(recompile_limit=_SHAPES):
            return function(x, m)

    return run


@final
class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: Kernel, x: Tensor, m: Tensor) -> Tensor:
        y, slope = kernel(x.detach(), m.detach())
        ctx.save_for_backward(slope)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[None, Tensor, Tensor]:
        if torch.is_grad_enabled():
            raise RuntimeError("--compile supports first derivatives only, got create_graph=True")
        (slope,) = ctx.saved_tensors
        gx = g * slope
        return None, gx, sum_over_images(gx)
