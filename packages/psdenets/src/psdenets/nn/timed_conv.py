"""Convolutions of [h, t]: the hidden state with time as one more channel, constant over the image.

    conv([h, t 1]; [W, V]) + b  =  conv(h; W) + conv(t 1; V) + b

The second term does not depend on h, so it is computed once per batch and no channel is concatenated. It is not
constant over the image, because zero padding cuts off part of the kernel at the borders. It is computed as a product
with the matrix of zeros and ones in `psdenets.nn.taps`, which says which taps contribute to each pixel.

Order of the weights. The flat weight vector of a layer is [weight, time_weight, bias], each in row-major order:

    TimedConv            weight (out, k, k, in)     time_weight (out, 1, k, k)     bias (out,)
    TimedConvTranspose   weight (in, k, k, out)     time_weight (1, out, k, k)     bias (out,)

Kernels are stored channels last, the fastest layout for convolutions on a CPU. Along a weight path they are views of
the flat vector, different at every step, and are never copied. `layer.kernel` is the kernel in PyTorch's order:
`weight = kernel.permute(0, 2, 3, 1)`. Run directories depend on this order.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from psdenets.nn.activations import Activation
from psdenets.nn.fast.add_map import add, softplus
from psdenets.nn.fast.switch import enabled
from psdenets.nn.fast.thin_conv import convolution
from psdenets.nn.taps import Pair, Taps, taps_reached, taps_seen

AddMap = Callable[[Tensor, Tensor], Tensor]


@final
class TimedConv(nn.Module):
    """Convolution of [h, t] and activation: (N, in, H, W) -> (N, out, ceil(H / stride), ceil(W / stride)).

    It has out * ((in + 1) k^2 + 1) weights.

    Args:
        c_in: channels of h.
        c_out: channels of the result.
        k: side of the kernel, odd.
        stride: 1 keeps height and width, 2 halves them, rounding up.
        add: the function (x, m) -> activation(x + m) that adds the time map; x + m if None.
        generator: source of the initial weights.
    """

    def __init__(
        self,
        c_in: int,
        c_out: int,
        k: int = 3,
        stride: int = 1,
        add: AddMap | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt((c_in + 1) * k**2)
        self.weight = _uniform((c_out, k, k, c_in), bound, generator)
        self.time_weight = _uniform((c_out, 1, k, k), bound, generator)
        self.bias = _uniform((c_out,), bound, generator)
        self.c_in, self.c_out, self.k, self.stride = c_in, c_out, k, stride
        self.convolve = convolution(c_in, c_out, k, stride)
        self.add = add_map() if add is None else add

    @property
    def fan_in(self) -> int:
        """Number of inputs of each output, with the time channel."""
        return (self.c_in + 1) * self.k**2

    @property
    def kernel(self) -> Tensor:
        """The weight in PyTorch's order, (out, in, k, k)."""
        return _in_usual_order(self.weight)

    def forward(self, t: Tensor, h: Tensor, gain: Tensor | None = None) -> Tensor:
        """The result at time t, a scalar; before the activation, channel c is multiplied by gain[c] if it is given."""
        taps = taps_seen((h.shape[-2], h.shape[-1]), self.k, self.stride, h.dtype, h.device)
        weight: Tensor = self.weight
        time_weight: Tensor = self.time_weight
        bias: Tensor = self.bias
        if gain is not None:  # of the kernel, which is smaller than the result
            each = gain[:, None, None, None]
            weight, time_weight, bias = each * weight, each * time_weight, gain * bias
        kernel = _in_usual_order(weight).to(h.dtype)
        return self.add(self.convolve(h, kernel), time_map(t, time_weight, bias, taps))

    def extra_repr(self) -> str:
        """Channels in and out, kernel and stride."""
        return f"{self.c_in}, {self.c_out}, k={self.k}, stride={self.stride}"


@final
class TimedConvTranspose(nn.Module):
    """Transposed convolution of [h, t] with stride 2, (N, in, ceil(H / 2), ceil(W / 2)) -> (N, out, H, W).

    It restores the size halved by a `TimedConv` with stride 2. It takes the same arguments as `TimedConv`.
    """

    def __init__(
        self, c_in: int, c_out: int, k: int = 3, add: AddMap | None = None, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        bound = 1 / math.sqrt((c_in + 1) * k**2)
        self.weight = _uniform((c_in, k, k, c_out), bound, generator)
        self.time_weight = _uniform((1, c_out, k, k), bound, generator)
        self.bias = _uniform((c_out,), bound, generator)
        self.c_in, self.c_out, self.k = c_in, c_out, k
        self.add = add_map() if add is None else add

    @property
    def fan_in(self) -> int:
        """Number of inputs of each output, with the time channel, if the stride were 1."""
        return (self.c_in + 1) * self.k**2

    @property
    def kernel(self) -> Tensor:
        """The weight in PyTorch's order, (in, out, k, k)."""
        return _in_usual_order(self.weight)

    def forward(self, t: Tensor, h: Tensor, size: Pair) -> Tensor:
        """The result at time t, with height and width `size`; even and odd sizes differ in one row of padding."""
        padding = self.k // 2
        rows, columns = (n - ((m - 1) * 2 - 2 * padding + self.k) for n, m in zip(size, h.shape[-2:], strict=True))
        out = F.conv_transpose2d(h, self.kernel.to(h.dtype), None, 2, padding, (rows, columns))
        taps = taps_reached(size, self.k, h.dtype, h.device)
        return self.add(out, time_map(t, self.time_weight, self.bias, taps))

    def extra_repr(self) -> str:
        """Channels in and out, kernel and stride."""
        return f"{self.c_in}, {self.c_out}, k={self.k}, stride=2"


@final
class TimedSequence(nn.Module):
    """A sequence of named layers, in which transposed convolutions restore the height and width of the input."""

    def __init__(self, layers: Mapping[str, nn.Module]) -> None:
        super().__init__()
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """The result at time t, a scalar."""
        size = (h.shape[-2], h.shape[-1])
        for layer in self.children():
            h = layer(t, h, size) if isinstance(layer, TimedConvTranspose) else layer(t, h)
        return h


def add_map(activation: Activation | None = None) -> AddMap:
    """The function (x, m) -> activation(x + m), or x + m without an activation."""
    if activation is F.softplus and enabled():
        return softplus
    return _plus if activation is None else partial(_activated, activation)


def _activated(activation: Activation, x: Tensor, m: Tensor) -> Tensor:
    return activation(_plus(x, m))


def _plus(x: Tensor, m: Tensor) -> Tensor:
    """x + m, using the version with the faster gradient if gradients are enabled."""
    return add(x, m) if torch.is_grad_enabled() and enabled() else x + m


def time_map(t: Tensor, time_weight: Tensor, bias: Tensor, taps: Taps) -> Tensor:
    """The contribution of time and bias to each pixel, (out, H, W), channels last in memory.

    Args:
        t: time, a scalar.
        time_weight: one kernel per output channel, (out, 1, k, k) or (1, out, k, k).
        bias: (out,).
        taps: the taps that contribute to each pixel.
    """
    seen = taps.seen
    rows = torch.addmm(bias.to(seen.dtype), seen, (t * time_weight.reshape(len(bias), -1)).t().to(seen.dtype))
    return rows.view(*taps.size, len(bias)).permute(2, 0, 1)


def _in_usual_order(weight: Tensor) -> Tensor:
    """(a, k, k, b) -> (a, b, k, k): a view on a CPU, contiguous on other devices."""
    kernel = weight.permute(0, 3, 1, 2)
    return kernel if kernel.device.type == "cpu" else kernel.contiguous()


def _uniform(shape: tuple[int, ...], bound: float, generator: torch.Generator | None) -> nn.Parameter:
    return nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) * bound)
