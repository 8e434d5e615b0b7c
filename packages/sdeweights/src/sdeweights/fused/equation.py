"""The equation solved by the fused schemes: the paper's f_q = theta (mu - w) + net(t, w) with constant noise sigma.

p = W1 w                          (h,)     the only input of the hidden layers
x = hidden(t, p)                  (h',)    a handful of numbers
n = gate (W x + b) + s t          (d,)     the net, gate = sigmoid(a t + c)
    + B(t) - A(t) w                        if it is a `DiagonalDrift`, with rates A and forces B
dw = (theta (mu - w) + n) dt + sigma dB
"""

from collections.abc import Callable
from typing import NamedTuple, Self, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from sdeweights.diffusion import Field, Kind
from sdeweights.drifts import BottleneckDrift, ConcatSquash, DiagonalDrift, PriorPlus, at_knots, knots_around
from sdeweights.solvers.base import Counted, Sde

# Activations without parameters that act elementwise.
_ACTIVATIONS = (F.softplus, F.relu, F.elu, F.silu, F.gelu, torch.relu, torch.tanh, torch.sigmoid, torch.sin)


class Layer(NamedTuple):
    """The tensors of a `ConcatSquash`: weight (out, in), the others (out,)."""

    weight: Tensor
    bias: Tensor
    gate_slope: Tensor
    gate_bias: Tensor
    time_slope: Tensor

    @classmethod
    def of(cls, layer: ConcatSquash) -> Self:
        """The tensors of a given layer."""
        return cls(layer.weight, layer.bias, layer.gate_slope, layer.gate_bias, layer.time_slope)


class Diagonal(NamedTuple):
    """The rates A and forces B of a `DiagonalDrift` at its knots, (knots, d)."""

    rates: Tensor
    forces: Tensor

    def at(self, t: float) -> tuple[Tensor, Tensor]:
        """A(t) and B(t), (d,)."""
        place = knots_around(t, len(self.rates))
        return at_knots(self.rates, place), at_knots(self.forces, place)


class Equation(NamedTuple):
    """Coefficients and layers of the equation; sigma is None for a deterministic phase.

    A theta that is trained or differs between samples is a tensor, () or (S, 1). A sigma that is trained, or differs
    between samples or coordinates, is a tensor that broadcasts to (S, d).
    """

    theta: float | Tensor
    mu: float
    sigma: float | Tensor | None
    activation: Callable[[Tensor], Tensor]
    layers: list[Layer]
    diagonal: Diagonal | None = None

    @classmethod
    def deterministic(cls, drift: Field) -> Self:
        """The equation dw = f_q dt; raises ValueError if f_q does not have the paper's form."""
        drift = drift.field if isinstance(drift, Counted) else drift
        if not isinstance(drift, PriorPlus):
            raise _refusal("PriorPlus(prior, BottleneckDrift)", type(drift).__name__)
        reversion, net = drift.prior.mean_reversion, drift.net
        diagonal = Diagonal(net.a, net.b) if type(net) is DiagonalDrift else None
        net = net.net if type(net) is DiagonalDrift else net
        if reversion is None:
            expected = "an OrnsteinUhlenbeck or Brownian prior whose theta and mu are numbers, theta may be trained"
            raise _refusal(expected, "another prior")
        layers = list(net.layers) if type(net) is BottleneckDrift else []
        if not layers or not all(type(layer) is ConcatSquash for layer in layers):
            raise _refusal("PriorPlus of a BottleneckDrift or DiagonalDrift", f"PriorPlus of {type(net).__name__}")
        activation = cast("BottleneckDrift", net).activation
        if not any(activation is known for known in _ACTIVATIONS):
            raise _refusal(f"one of the activations {', '.join(f.__name__ for f in _ACTIVATIONS)}", repr(activation))
        return cls(*reversion, None, activation, [Layer.of(cast("ConcatSquash", layer)) for layer in layers], diagonal)

    @classmethod
    def stochastic(cls, sde: Sde, d: int) -> Self:
        """The equation with noise on all d coordinates and the KL; raises ValueError if it has another form."""
        equation = cls.deterministic(sde.drift)
        sigma = None if sde.kind is Kind.DENSE else sde.prior.sigma
        own = cast("PriorPlus", sde.drift.field if isinstance(sde.drift, Counted) else sde.drift).prior
        if own is not sde.prior or len(sde.noisy) != d:
            raise _refusal("a drift built on the process's own prior, all of its coordinates noisy", "another drift")
        if sigma is None:
            raise _refusal("a constant sigma, a number or one per coordinate", "another diffusion")
        return equation._replace(sigma=sigma)


def _refusal(expected: str, got: str) -> ValueError:
    return ValueError(f'expected {expected} for fused-euler, got {got}; "euler" supports any drift and prior')
