"""Hidden drifts f_h(t, h; w), (N, C, H, W) -> the same shape; w_t holds all weights and biases.

    strided   conv 3x3, conv 3x3 / 2, transposed conv 3x3 x 2, conv 3x3     the paper's
    3-1-3     conv 3x3, conv 1x1, conv 3x3
    3-3       conv 3x3, conv 3x3

There is an activation between layers, and time is an extra input channel of every layer.
"""

from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from psdenets.errors import BadInput
from psdenets.nn.activations import ACTIVATIONS, Activation
from psdenets.nn.fast.compiled import compiled_add_map
from psdenets.nn.fast.switch import enabled
from psdenets.nn.timed_conv import AddMap, TimedConv, TimedConvTranspose, TimedSequence, add_map
from psdenets.options.network import COMPILED
from psdenets.references import made
from psdenets.registries import HIDDEN_DRIFTS


def strided(channels: int, width: int, activation: AddMap, generator: torch.Generator) -> TimedSequence:
    """The paper's f_h. Works for any height and width: odd sizes are halved rounding up, and later restored."""
    return TimedSequence(
        {
            "first": TimedConv(channels, width, add=activation, generator=generator),
            "down": TimedConv(width, width, stride=2, add=activation, generator=generator),
            "up": TimedConvTranspose(width, width, add=activation, generator=generator),
            "last": TimedConv(width, channels, generator=generator),
        }
    )


def convolutions(
    channels: int, width: int, activation: AddMap, generator: torch.Generator, kernels: tuple[int, ...]
) -> TimedSequence:
    """Convolutions with the given odd kernel sizes. Run directories rely on their names, layers.0, layers.1, ..."""
    sizes = [channels, *[width] * (len(kernels) - 1), channels]
    adds = [*[activation] * (len(kernels) - 1), None]
    layers = {
        str(i): TimedConv(sizes[i], sizes[i + 1], k, add=adds[i], generator=generator) for i, k in enumerate(kernels)
    }
    return TimedSequence({"layers": TimedSequence(layers)})


three_one_three = partial(convolutions, kernels=(3, 1, 3))
three_three = partial(convolutions, kernels=(3, 3))


@final
class PreActivated(nn.Module):
    """Convolutions of the activated hidden state, so that f_h takes both signs even with a single convolution."""

    def __init__(
        self, channels: int, width: int, activation: Activation, generator: torch.Generator, kernels: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.activation = activation
        self.convolutions = convolutions(channels, width, add_map(activation), generator, kernels)

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """f_h at time t, a scalar."""
        out: Tensor = self.convolutions(t, self.activation(h))
        return out


pre_three = partial(PreActivated, kernels=(3,))
pre_three_three = partial(PreActivated, kernels=(3, 3))


def hidden_drift(
    name: str, channels: int, width: int, activation: str, generator: torch.Generator, *, fuse: bool = False
) -> nn.Module:
    """Build an f_h with random weights: a name in `HIDDEN_DRIFTS`, or a custom `module:attribute`.

    A custom f_h receives the activation as a function of one tensor; those in `COMPILED` also let it add the time map.

    Example:
        >>> f_h = hidden_drift("strided", 1, 32, "softplus", torch.Generator())
        >>> sum(p.numel() for p in f_h.parameters())
        19978
    """
    function: AddMap | Activation = ACTIVATIONS[activation]
    if name in COMPILED:
        function = compiled_add_map(activation) if fuse and enabled() else add_map(ACTIVATIONS[activation])
    net = made(HIDDEN_DRIFTS, name, channels, width, function, generator)
    if not isinstance(net, nn.Module):
        raise BadInput(f"expected the hidden drift {name} to make an nn.Module, got {type(net).__name__}")
    return net
