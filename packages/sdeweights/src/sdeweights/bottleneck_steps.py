"""Euler's steps of the paper's f_q = theta (mu - w) + net(t, w), for several processes of one shape at once:

    p  = W1 w                            (h,)      all that the hidden layers see of w
    x  = hidden(t, p)                    (h',)     a handful of numbers
    n  = gate (W x + b) + s t            (d,)      the net, gate = sigmoid(a t + c)
    w1 = w + (theta (mu - w) + n) dt + sigma dB,      1/2 |n / sigma|^2 dt of KL

What has d numbers is passed over as seldom as can be, and while it is in the cache. With l the gradient of w1 and k
that of the KL,

    G = l + k n / sigma^2,   x <- W^T (G gate) dt,   p <- J^T x,   w <- (1 - theta dt) l + W1^T p,   J = dx/dp
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from sdeweights.bottleneck_gradients import Steps
from sdeweights.bottleneck_walk import Clock, Equation, Layer, path_of
from sdeweights.diffusion import Field
from sdeweights.drifts import BottleneckDrift, ConcatSquash, PriorPlus
from sdeweights.priors import Numbers, Prior


class Shape(NamedTuple):
    """What drifts have in common whose steps can be taken at once."""

    numbers: Numbers
    sizes: tuple[torch.Size, ...]
    activation: Callable[[Tensor], Tensor]
    dtype: torch.dtype
    device: torch.device


_MOST_HIDDEN = 16  # the Jacobian J is computed row by row
_SIGMAS = (1e-6, 1e6)  # whose squares are far from the ends of float32
_ACTIVATIONS = (F.softplus, F.relu, F.elu, F.silu, F.gelu, torch.relu, torch.tanh, torch.sigmoid, torch.sin)


def shape_of(drift: object, prior: Prior | None = None) -> Shape | None:
    """The shape of the OU process with plain numbers plus a bottleneck net; None for any other drift.

    Where a prior is given the KL is against it, and it has to be the drift's own.
    """
    if not isinstance(drift, PriorPlus) or (prior is not None and drift.prior is not prior):
        return None
    numbers, net = drift.prior.numbers, drift.net
    if numbers is None or type(net) is not BottleneckDrift or not all(type(x) is ConcatSquash for x in net.layers):
        return None
    if prior is not None and not _SIGMAS[0] <= abs(numbers.sigma) <= _SIGMAS[1]:
        return None
    weights = [cast("Tensor", layer.weight) for layer in net.layers]
    dtype, device = weights[0].dtype, weights[0].device
    usual = dtype in (torch.float32, torch.float64) and weights[-1].shape[1] <= _MOST_HIDDEN
    # only what is known to have no parameters and to treat every number by itself
    if not usual or not any(net.activation is known for known in _ACTIVATIONS) or _watched(drift, device):
        return None
    return Shape(numbers, tuple(weight.shape for weight in weights), net.activation, dtype, device)


def _watched(drift: PriorPlus, device: torch.device) -> bool:
    """Whether somebody would miss the calls of modules, or transforms what they compute."""
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    return (
        transformed
        or torch.is_autocast_enabled(device.type)
        or bool(torch.nn.modules.module._has_any_global_hook())  # type: ignore[no-untyped-call]
        or any(map(_hooked, drift.modules()))
    )


def _hooked(module: torch.nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)


def take(
    drifts: Sequence[Field], w: Tensor, times: Sequence[float], dB: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """States at the grid points, the first among them, and the KL.

    Args:
        drifts: f_q of B processes of one shape.
        w: where they start, (B, S, d).
        times: n + 1 grid points.
        dB: increments (B, S, n, d), or None for steps without noise.

    Returns:
        (B, S, n + 1, d), and 1/2 int |u|^2 of each sample, (B, S), where there is noise.
    """
    shape = shape_of(drifts[0])
    if shape is None:
        raise ValueError("expected the drift f_p + bottleneck net of a prior with plain numbers, got another")
    nets = [drift.net for drift in drifts]  # type: ignore[attr-defined]
    layers = [Layer.of(same) for same in zip(*(net.layers for net in nets), strict=True)]
    theta, mu, sigma = shape.numbers
    equation = Equation(theta, mu, None if dB is None else sigma, shape.activation)
    clock = Clock(times[:-1], [b - a for a, b in itertools.pairwise(times)])
    tensors = [w, *(x for layer in layers for x in layer)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        states, total = Steps.apply(equation, clock, dB, *tensors)  # type: ignore[no-untyped-call]
    else:
        states, total, _ = path_of(equation, clock, dB, w, layers, keep=False)
    return states, None if dB is None else total
