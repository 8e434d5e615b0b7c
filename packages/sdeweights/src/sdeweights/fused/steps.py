"""Euler steps of the fused equation; see `sdeweights.fused.equation`.

    w1 = w + (theta (mu - w) + n) dt + sigma dB,     1/2 |n / sigma|^2 dt of KL

Each step makes as few passes as possible over the arrays of length d, while they are in the cache.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from sdeweights import kl
from sdeweights.fused.equation import Equation, Layer


class Visited(NamedTuple):
    """Values stored at each step for the backward pass: p, x, the gate of the last layer, and the net's output n."""

    products: list[Tensor]
    hidden: list[Tensor]
    gates: list[Tensor]
    nets: list[Tensor]


def take(
    equation: Equation, w: Tensor, times: Sequence[float], dB: Tensor | None, *, keep: bool
) -> tuple[Tensor, Tensor, Visited]:
    """Take the steps of a phase from w, (S, d), over n + 1 grid points, without an autograd graph.

    dB is (S, n, d), or None for a deterministic phase. Returns states (S, n + 1, d), KL (S,), and the values that the
    backward pass needs, which are stored if `keep` is True.
    """
    theta, mu, sigma, activation, (*hidden, last), diagonal = equation
    states = w.new_empty(len(w), len(times), w.shape[-1])
    states[:, 0] = w
    squeezed = HiddenLayers(hidden, w.new_tensor(times[:-1]), activation)
    to_hidden, to_net = hidden[0].weight.t(), long_rows(last.weight)
    visited, squares = Visited([], [], [], []), []
    for k, (t, t1) in enumerate(itertools.pairwise(times)):
        dt = t1 - t
        p = w @ to_hidden
        x = squeezed.at(k, p)
        gate = torch.add(last.gate_bias, last.gate_slope, alpha=t).sigmoid_()
        net = torch.addmm(last.bias, x, to_net).mul_(gate).add_(last.time_slope, alpha=t)
        if diagonal is not None:
            rates, forces = diagonal.at(t)
            net.add_(forces).addcmul_(rates, w, value=-1)
        w = torch.mul(w, 1 - theta * dt, out=states[:, k + 1]).add_(net, alpha=dt)
        if mu:
            w.add_(theta * mu * dt)
        if dB is not None and sigma is not None:
            w = w.addcmul_(dB[:, k], sigma) if isinstance(sigma, Tensor) else w.add_(dB[:, k], alpha=sigma)
            squares.append(_squared_norm(net, sigma))
        if keep:
            for values, value in zip(visited, (p, x, gate, net), strict=True):
                values.append(value)
    lengths = [b - a for a, b in itertools.pairwise(times)]
    return states, kl.of_squares(squares, lengths) if squares else w.new_zeros(len(w)), visited


def _squared_norm(net: Tensor, sigma: float | Tensor) -> Tensor:
    """|n / sigma|^2, (S,). A scalar sigma is divided out after the sum, twice, since sigma^2 may underflow to 0."""
    if isinstance(sigma, Tensor):
        net, sigma = net / sigma, 1.0
    return (net * net).sum(-1) / sigma / sigma


def long_rows(weight: Tensor) -> Tensor:
    """W^T, (h', d), stored with contiguous rows of length d; products with short rows take four times as long."""
    return weight.t().contiguous()


class HiddenLayers:
    """The hidden layers at given times; gates and shifts for all times are computed at once.

    Attributes:
        gates, shifts: for each layer, (n, 1, out).
    """

    def __init__(self, layers: Sequence[Layer], ts: Tensor, activation: Callable[[Tensor], Tensor]) -> None:
        self.layers, self.activation = layers, activation
        at = ts[:, None, None]
        self.gates = [torch.sigmoid(layer.gate_slope * at + layer.gate_bias) for layer in layers]
        self.shifts = [layer.time_slope * at for layer in layers]

    def at(self, k: int, p: Tensor) -> Tensor:
        """x from p at the k-th time, (S, h) -> (S, h')."""
        return self._through([g[k] for g in self.gates], [s[k] for s in self.shifts], p)

    def everywhere(self, p: Tensor) -> Tensor:
        """x from p at all times, (n, S, h) -> (n, S, h')."""
        return self._through(self.gates, self.shifts, p)

    def _through(self, gates: Sequence[Tensor], shifts: Sequence[Tensor], p: Tensor) -> Tensor:
        x = p
        for k, (layer, gate, shift) in enumerate(zip(self.layers, gates, shifts, strict=True)):
            z = x + layer.bias if k == 0 else x @ layer.weight.t() + layer.bias
            x = self.activation(torch.addcmul(shift, gate, z))
        return x
