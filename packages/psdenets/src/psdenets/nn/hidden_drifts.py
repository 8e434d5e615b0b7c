"""Hidden drifts f_h(t, h; w), (N, C, H, W) -> the same shape; w_t holds all of their weights and biases.

    strided   conv 3x3, conv 3x3 / 2, transposed conv 3x3 x 2, conv 3x3     the paper's
    3-1-3     conv 3x3, conv 1x1, conv 3x3
    3-3       conv 3x3, conv 3x3

The activation comes between layers, and time is an extra input channel of every layer.
"""

from __future__ import annotations

from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from psdenets.errors import BadInput
from psdenets.nn.activations import ACTIVATIONS, Activation
from psdenets.nn.fast.add_map import AddMap, add_map
from psdenets.nn.fast.compiled import compiled_add_map
from psdenets.nn.timed_conv import TimedConv, TimedConvTranspose
from psdenets.references import chosen
from psdenets.registries import HIDDEN_DRIFTS


@final
class Strided(nn.Module):
    """The paper's f_h. Any height and width will do: odd ones are halved rounding up, and restored."""

    def __init__(self, channels: int, width: int, activation: AddMap, generator: torch.Generator) -> None:
        super().__init__()
        self.first = TimedConv(channels, width, add=activation, generator=generator)
        self.down = TimedConv(width, width, stride=2, add=activation, generator=generator)
        self.up = TimedConvTranspose(width, width, add=activation, generator=generator)
        self.last = TimedConv(width, channels, generator=generator)

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """f_h at time t, of the shape of h."""
        size = (h.shape[-2], h.shape[-1])
        h = self.up(t, self.down(t, self.first(t, h)), size)
        out: Tensor = self.last(t, h)
        return out


@final
class Plain(nn.Module):
    """A sequence of convolutions with the given odd kernel sizes."""

    def __init__(
        self,
        channels: int,
        width: int,
        activation: AddMap,
        generator: torch.Generator,
        kernels: tuple[int, ...],
    ) -> None:
        super().__init__()
        sizes = [channels, *[width] * (len(kernels) - 1), channels]
        adds = [activation] * (len(kernels) - 1) + [add_map()]
        self.layers = nn.ModuleList(
            TimedConv(sizes[i], sizes[i + 1], k, add=adds[i], generator=generator) for i, k in enumerate(kernels)
        )

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """f_h at time t, of the shape of h."""
        for layer in self.layers:
            h = layer(t, h)
        return h


three_one_three = partial(Plain, kernels=(3, 1, 3))
three_three = partial(Plain, kernels=(3, 3))


def hidden_drift(
    name: str, channels: int, width: int, activation: str, generator: torch.Generator, *, fuse: bool = False
) -> nn.Module:
    """The f_h of that name in `HIDDEN_DRIFTS`, or the one that `module:attribute` makes, with new random weights.

    A user's own is given the activation as a function of one tensor; those of psdenets fuse it with what precedes it.

    Example:
        >>> f_h = hidden_drift("strided", 1, 32, "softplus", torch.Generator())
        >>> sum(p.numel() for p in f_h.parameters())
        19978
    """
    function: AddMap | Activation = ACTIVATIONS[activation]
    if name in HIDDEN_DRIFTS:
        function = compiled_add_map(activation) if fuse else add_map(ACTIVATIONS[activation])
    net = chosen(HIDDEN_DRIFTS, name)(channels, width, function, generator)
    if not isinstance(net, nn.Module):
        raise BadInput(f"expected the hidden drift {name} to make an nn.Module, got {type(net).__name__}")
    return net
