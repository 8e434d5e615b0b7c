"""Hidden drifts f_h(t, h; w), (N, C, H, W) -> the same shape; w_t holds all weights and biases.

    strided   conv 3x3, conv 3x3 / 2, transposed conv 3x3 x 2, conv 3x3     the paper's
    3-1-3     conv 3x3, conv 1x1, conv 3x3
    3-3       conv 3x3, conv 3x3
    1-1       conv 1x1, conv 1x1                                            a perceptron, for the rows of a table
    pre-3     conv 3x3 of the activated h;   pre-3-3 has two convolutions
    bumps     a linear map of local features of the first channel           for tables of one column
    gain-3    pre-3 with a gain for every channel, 1 + g; the g are weights too, and come first in w

There is an activation between layers, and time is an extra input channel of every layer.
"""

import math
from functools import partial
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from psdenets.errors import BadInput
from psdenets.nn.activations import ACTIVATIONS, Activation
from psdenets.nn.fast.compiled import compiled_add_map
from psdenets.nn.fast.switch import enabled
from psdenets.nn.timed_conv import AddMap, TimedConv, TimedConvTranspose, TimedSequence, add_map
from psdenets.options.network import COMPILED
from psdenets.references import made
from psdenets.registries import HIDDEN_DRIFTS

_REACH, _WIDTH = 3.0, 0.75  # of bumps: their largest centre, and their width relative to the distance of two centres


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
one_one = partial(convolutions, kernels=(1, 1))


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


@final
class Gain(nn.Module):
    """A gain 1 + g for every channel, with g = 0 at first.

    Independent noise of the weights of a kernel averages out over its fan-in, thousands of weights per channel. Noise
    of a gain does not: it scales the whole channel. `fan_in` is 1, so its noise is not divided by anything.
    """

    fan_in = 1

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(channels))

    def forward(self) -> Tensor:
        """1 + g, (channels,)."""
        return 1 + self.value


@final
class GainedConv(nn.Module):
    """A convolution of the activated hidden state, with a gain for every channel of its result."""

    def __init__(self, channels: int, width: int, activation: Activation, generator: torch.Generator) -> None:  # noqa: ARG002 - called like every hidden drift
        super().__init__()
        self.activation = activation
        self.gain = Gain(channels)  # first, so that the first weights, which a horizontal cut makes noisy, have them
        self.convolution = TimedConv(channels, channels, generator=generator)

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """f_h at time t, a scalar."""
        out: Tensor = self.convolution(t, self.activation(h), self.gain())
        return out


@final
class Bumps(nn.Module):
    """du/dt = W [bumps(z), u, t] + b, dz/dt = 0, where the first channel z is the column of a table, and u the others.

    There are `width` bumps exp(-(z - c)^2 / (2 l^2)) with centres c from -3 to 3, and l is 3/4 of the distance between
    two of them. The bumps are divided by their norm, and multiplied by sqrt(width) so that their mean square is 1;
    beyond the centres, the last bump stays as large as it is. Only a few bumps differ from zero at any z, so data say
    nothing about the weights of distant bumps, which keep the noise of the prior. The activation is not used.

    The order of the centres spreads every first part of them evenly, so a horizontal cut adds noise everywhere.
    """

    centres: Tensor

    def __init__(self, channels: int, width: int, activation: Activation, generator: torch.Generator) -> None:  # noqa: ARG002 - called like every hidden drift
        super().__init__()
        if channels < 2 or width < 2:
            got = f"{channels - 1} and {width}"
            raise BadInput(f"expected --augment-channels at least 1 and --width at least 2 with bumps, got {got}")
        moving, self.fan_in = channels - 1, width + channels
        uniform = (torch.rand((moving, self.fan_in), generator=generator) * 2 - 1) / math.sqrt(self.fan_in)
        self.weight = nn.Parameter(uniform)
        self.bias = nn.Parameter(torch.zeros(moving))
        order = sorted(range(width), key=lambda i: f"{i:032b}"[::-1])  # bits reversed
        self.register_buffer("centres", torch.linspace(-_REACH, _REACH, width)[order], persistent=False)

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """f_h at time t, a scalar."""
        last = h.movedim(1, -1)
        features = torch.cat([self.bumps(last[..., :1]), last[..., 1:]], -1)
        moved = F.linear(features, self.weight[:, :-1], self.bias + t * self.weight[:, -1])
        return F.pad(moved, (1, 0)).movedim(-1, 1)

    def bumps(self, z: Tensor) -> Tensor:
        """(..., 1) -> (..., width)."""
        width = len(self.centres)
        scaled = (z - self.centres.to(z.dtype)) * ((width - 1) / (2 * _REACH * _WIDTH))
        # e^l / |e^l| = exp(1/2 log_softmax(2 l)), which is finite however far z is from all centres
        return math.sqrt(width) * (-scaled.square()).log_softmax(-1).div(2).exp()


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
