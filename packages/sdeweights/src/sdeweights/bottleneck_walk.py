"""One Euler step after the other of the paper's f_q, for several processes of one shape; see `bottleneck_steps`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sdeweights import kl
from sdeweights.drifts import ConcatSquash


class Clock(NamedTuple):
    """Starts and lengths of steps."""

    starts: Sequence[float]
    lengths: Sequence[float]


class Equation(NamedTuple):
    """The numbers of the equation; sigma is None where there is no noise."""

    theta: float
    mu: float
    sigma: float | None
    activation: Callable[[Tensor], Tensor]


class Layer(NamedTuple):
    """A `ConcatSquash` of B processes: weight (B, out, in), the others (B, 1, out)."""

    weight: Tensor
    bias: Tensor
    gate_slope: Tensor
    gate_bias: Tensor
    time_slope: Tensor

    @classmethod
    def of(cls, layers: Sequence[ConcatSquash]) -> Layer:
        """The same layer of B processes, side by side."""
        vectors = ("bias", "gate_slope", "gate_bias", "time_slope")
        rest = (beside([getattr(layer, name) for layer in layers])[:, None] for name in vectors)
        return cls(beside([layer.weight for layer in layers]), *rest)

    def gate(self, t: float) -> Tensor:
        """sigmoid(a t + c)."""
        return torch.add(self.gate_bias, self.gate_slope, alpha=t).sigmoid_()


def beside(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape with an axis for them in front."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(list(tensors))


def each(tensors: Tensor) -> Sequence[Tensor]:
    """The inverse of `beside`; of a single one the gradient is not copied."""
    return (tensors.squeeze(0),) if len(tensors) == 1 else tensors.unbind()


def layers_of(tensors: Sequence[Tensor]) -> list[Layer]:
    """The inverse of writing the tensors of all layers one after the other."""
    size = len(Layer._fields)
    return [Layer(*tensors[i : i + size]) for i in range(0, len(tensors), size)]


class Walk(NamedTuple):
    """What was met on the way, a list over steps each."""

    states: list[Tensor]  # with the first
    rates: list[Tensor]
    products: list[Tensor]
    hidden: list[Tensor]
    gates: list[Tensor]
    nets: list[Tensor]

    def path(self, clock: Clock, states: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """States (B, S, n + 1, d), stacked unless they are given, and KL (B, S)."""
        states = torch.stack(self.states, 2) if states is None else states
        if not self.rates:
            return states, states.new_zeros(states.shape[:2])
        return states, (torch.stack(self.rates, -1) * states.new_tensor(clock.lengths)).sum(-1)

    def kept(self) -> tuple[Tensor, ...]:
        """What the way back needs, as one sequence."""
        return (*self.products, *self.hidden, *self.gates, *self.nets)

    @classmethod
    def again(cls, kept: Sequence[Tensor]) -> Walk:
        """The inverse of `kept`."""
        n = len(kept) // 4
        return cls([], [], *(list(kept[i * n : (i + 1) * n]) for i in range(4)))


def path_of(
    equation: Equation, clock: Clock, dB: Tensor | None, w: Tensor, layers: Sequence[Layer], *, keep: bool
) -> tuple[Tensor, Tensor, Walk]:
    """States, KL, and what was met, without a graph: states are written where they stay."""
    states = w.new_empty(*w.shape[:2], len(clock.starts) + 1, w.shape[-1])
    states[:, :, 0] = w
    met = walk(equation, clock, dB, w, layers, keep=keep, into=states.unbind(2)[1:])
    return *met.path(clock, states), met


def walk(
    equation: Equation,
    clock: Clock,
    dB: Tensor | None,
    w: Tensor,
    layers: Sequence[Layer],
    *,
    keep: bool = False,
    into: Sequence[Tensor] | None = None,
) -> Walk:
    """One step after the other, and what the way back needs where it is to be kept; states go ``into`` tensors."""
    *hidden, last = layers
    squeezed = Hidden(hidden, w.new_tensor(clock.starts), equation.activation)
    met = Walk([w], [], [], [], [], [])
    to_hidden, to_net = hidden[0].weight.transpose(1, 2), rows_of(last.weight)
    noises = () if dB is None else dB.unbind(2)
    for k, (t, dt) in enumerate(zip(*clock, strict=True)):
        p = w @ to_hidden
        x = squeezed.at(k, p)
        gate = last.gate(t)
        net = torch.baddbmm(last.bias, x, to_net).mul_(gate).add_(last.time_slope, alpha=t)
        w = torch.mul(w, 1 - equation.theta * dt, out=None if into is None else into[k]).add_(net, alpha=dt)
        if equation.mu:
            w = w.add_(equation.theta * equation.mu * dt)
        if equation.sigma is not None:
            w = w.add_(noises[k], alpha=equation.sigma)
            met.rates.append(kl.integrand(net) / equation.sigma**2)
        met.states.append(w)
        if keep:
            met.products.append(p)
            met.hidden.append(x)
            met.gates.append(gate)
            met.nets.append(net)
    return met


def rows_of(weight: Tensor) -> Tensor:
    """W^T, (B, h', d), in long rows: products with short ones take four times as long."""
    return weight.transpose(1, 2).contiguous()


class Hidden:
    """The hidden layers at given times, gates and shifts of all of them computed once.

    Attributes:
        gates, shifts: of each layer, (n, B, 1, out).
    """

    def __init__(self, layers: Sequence[Layer], ts: Tensor, activation: Callable[[Tensor], Tensor]) -> None:
        self.layers, self.activation = layers, activation
        at = ts[:, None, None, None]
        self.gates = [torch.sigmoid(layer.gate_slope * at + layer.gate_bias) for layer in layers]
        self.shifts = [layer.time_slope * at for layer in layers]
        self._each = [list(zip(*pair, strict=True)) for pair in zip(self.gates, self.shifts, strict=True)]

    def at(self, k: int, p: Tensor) -> Tensor:
        """x from p, (B, S, h) -> (B, S, h'), at the k-th time."""
        return self._through([pairs[k] for pairs in self._each], p)

    def everywhere(self, p: Tensor) -> Tensor:
        """x from p at all times, (n, B, S, h) -> (n, B, S, h')."""
        return self._through(list(zip(self.gates, self.shifts, strict=True)), p)

    def _through(self, pairs: Sequence[tuple[Tensor, Tensor]], p: Tensor) -> Tensor:
        first, *rest = self.layers
        gate, shift = pairs[0]
        x = self.activation(torch.addcmul(shift, gate, p + first.bias))
        for layer, (gate, shift) in zip(rest, pairs[1:], strict=True):
            x = self.activation(torch.addcmul(shift, gate, x @ layer.weight.transpose(1, 2) + layer.bias))
        return x
