"""Hidden drifts f_h(t, h; w) of shape (N, C, H, W) -> the same; w_t is all of their weights and biases.

    strided   conv 3x3, conv 3x3 / 2, transposed conv 3x3 x 2, conv 3x3     the paper's
    3-1-3     conv 3x3, conv 1x1, conv 3x3
    3-3       conv 3x3, conv 3x3

with the activation between layers, and time as an extra input channel of each.
"""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from psdenets.nn.fast import add_map as pointwise
from psdenets.nn.fast.add_map import Then
from psdenets.nn.fast.compiled import compiled
from psdenets.nn.timed_conv import TimedConv, TimedConvTranspose

ACTIVATIONS: dict[str, Then] = {
    "softplus": pointwise.softplus,
    "tanh": pointwise.tanh,
    "elu": pointwise.elu,
    "swish": pointwise.swish,
    "rbf": pointwise.rbf,
}


@final
class Strided(nn.Module):
    """The paper's f_h. Any height and width will do: an odd one is halved rounding up, and restored."""

    def __init__(self, channels: int, width: int, activation: Then, generator: torch.Generator) -> None:
        super().__init__()
        self.first = TimedConv(channels, width, generator=generator)
        self.down = TimedConv(width, width, stride=2, generator=generator)
        self.up = TimedConvTranspose(width, width, generator=generator)
        self.last = TimedConv(width, channels, generator=generator)
        self.activation = activation

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """f_h at time t, of h's shape."""
        size = (h.shape[-2], h.shape[-1])
        h = self.first(t, h, self.activation)
        h = self.down(t, h, self.activation)
        h = self.up(t, h, size, self.activation)
        out: Tensor = self.last(t, h)
        return out


@final
class Plain(nn.Module):
    """Convolutions of the given odd kernel sizes, one after the other."""

    def __init__(
        self,
        channels: int,
        width: int,
        activation: Then,
        generator: torch.Generator,
        kernels: tuple[int, ...],
    ) -> None:
        super().__init__()
        sizes = [channels, *[width] * (len(kernels) - 1), channels]
        self.layers = nn.ModuleList(
            TimedConv(sizes[k], sizes[k + 1], kernel, generator=generator) for k, kernel in enumerate(kernels)
        )
        self.activation = activation

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """f_h at time t, of h's shape."""
        *hidden, last = self.layers
        for layer in hidden:
            h = layer(t, h, self.activation)
        out: Tensor = last(t, h)
        return out


def hidden_drift(
    name: str, channels: int, width: int, activation: str, generator: torch.Generator, *, fuse: bool = False
) -> nn.Module:
    """The f_h of that name, with fresh weights.

    Example:
        >>> f_h = hidden_drift("strided", 1, 32, "softplus", torch.Generator())
        >>> sum(p.numel() for p in f_h.parameters())
        19978
    """
    function = compiled(activation) if fuse else ACTIVATIONS[activation]
    if name == "strided":
        return Strided(channels, width, function, generator)
    kernels = {"3-1-3": (3, 1, 3), "3-3": (3, 3)}[name]
    return Plain(channels, width, function, generator, kernels)
