"""Posterior drifts f_q(t, w; theta): the paper's bottleneck network, the split drift of a horizontal cut, f_p + net.

A drift maps (t, w), with w of shape (..., d), to (..., d). If its coordinates can be evaluated separately, it has a
method `restrict(indices)`, which returns the drift of those coordinates as a function of those coordinates only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sdeweights.cuts import Cut
from sdeweights.diffusion import Field, FieldAndGap
from sdeweights.grid import as_float
from sdeweights.priors import Prior


@final
class ConcatSquash(nn.Module):
    """sigmoid(a t + c) * (W x + b) + s t: a linear layer gated and shifted by time."""

    def __init__(self, d_in: int, d_out: int, *, zero: bool = False, generator: torch.Generator | None = None) -> None:
        super().__init__()
        bound = 0.0 if zero else 1 / math.sqrt(d_in)

        def uniform(*shape: int) -> nn.Parameter:
            return nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) * bound)

        self.weight = uniform(d_out, d_in)
        self.bias = uniform(d_out)
        self.gate_slope = uniform(d_out)
        self.gate_bias = uniform(d_out)
        self.time_slope = uniform(d_out)

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate_slope * t + self.gate_bias)
        return gate * F.linear(x, self.weight, self.bias) + self.time_slope * t

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"


@final
class BottleneckDrift(nn.Module):
    """The paper's f_q: d -> hidden -> d with an activation after every hidden layer; the last layer is initially zero.

    The number of parameters is affine in d: 8 d + 1040 for "2-128-2".

    Args:
        d: number of weights.
        hidden: sizes of the hidden layers, (2, 128, 2) or "2-128-2".
        activation: applied after each hidden layer.
        generator: source of the initial values.

    Example:
        >>> sum(p.numel() for p in BottleneckDrift(19978, "1-32-1").parameters())
        120068
    """

    def __init__(
        self,
        d: int,
        hidden: str | Sequence[int] = (2, 128, 2),
        *,
        activation: Callable[[Tensor], Tensor] = F.softplus,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if d < 1:
            raise ValueError(f"expected d >= 1 weights, got {d}")
        sizes = [d, *_sizes(hidden), d]
        pairs = list(itertools.pairwise(sizes))
        last = len(pairs) - 1
        self.layers = nn.ModuleList(
            ConcatSquash(a, b, zero=k == last, generator=generator) for k, (a, b) in enumerate(pairs)
        )
        self.activation = activation

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        """f_q(t, w), with the shape of w; zero until the last layer is trained."""
        *hidden, last = self.layers
        x = w
        for layer in hidden:
            x = self.activation(layer(t, x))
        out: Tensor = last(t, x)
        return out


@final
class DiagonalDrift(nn.Module):
    """b(t) - a(t) w + net(t, w), a >= 0: each weight is pulled to its own value b / a at its own rate a.

    The bottleneck net can contract at most as many directions as its narrowest layer is wide. Here data can narrow any
    weight, and leave the others as wide as the prior makes them. a and b are linear in t between equidistant knots in
    [0, 1]. Everything is initially zero, unless the drift holds the weights: a = hold and b = hold * at, so that the
    posterior starts narrow around `at`, and training widens what data do not determine. `rate` and `force` are then in
    units of `hold`, so that one learning rate suits a rate of 20 and the net. A negative rate counts as 0 and has no
    gradient: call `project_` after every step of the optimiser, which sets it back to 0, where it has one.

    Args:
        d: number of weights.
        hidden: sizes of the hidden layers of the bottleneck net.
        knots: values of a and b per weight.
        hold: initial rate of all weights; with a step dt, Euler schemes need a rate below 2 / dt.
        at: the values (d,) at which weights are held.
        activation: activation of the net.
        generator: source of the initial values of the net.
    """

    def __init__(
        self,
        d: int,
        hidden: str | Sequence[int] = (2, 128, 2),
        *,
        knots: int = 2,
        hold: float = 0.0,
        at: Tensor | None = None,
        activation: Callable[[Tensor], Tensor] = F.softplus,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if knots < 1:
            raise ValueError(f"expected at least 1 knot, got {knots}")
        if hold < 0 or (hold > 0 and (at is None or at.shape != (d,))):
            raise ValueError(f"expected hold >= 0, with {d} values to hold if it is not 0, got hold={hold}, at={at}")
        self.net = BottleneckDrift(d, hidden, activation=activation, generator=generator)
        self.unit = hold or 1.0
        self.rate, self.force = (nn.Parameter(torch.zeros(knots, d)) for _ in range(2))
        if hold and at is not None:
            with torch.no_grad():
                self.rate.fill_(1.0)
                self.force.copy_(at.expand(knots, d))

    @property
    def a(self) -> Tensor:
        """The rates at the knots, (knots, d): `rate`, with 0 in place of negative values, in its unit."""
        return self.unit * self.rate.clamp(min=0)

    @property
    def b(self) -> Tensor:
        """The forces at the knots, (knots, d), in the same unit."""
        return self.unit * self.force

    @torch.no_grad()
    def project_(self) -> None:
        """Set negative rates to 0."""
        self.rate.clamp_(min=0)

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        """The drift, with the shape of w."""
        place = knots_around(as_float(t), len(self.rate))
        out: Tensor = self.net(t, w) + at_knots(self.b, place) - at_knots(self.a, place) * w
        return out

    def extra_repr(self) -> str:
        return f"{self.rate.shape[1]}, knots={len(self.rate)}"


def knots_around(t: float, knots: int) -> tuple[int, int, float]:
    """The knots before and after t, and the position of t between them, from 0 to 1."""
    first = min(int(t * (knots - 1)), max(knots - 2, 0))
    return first, min(first + 1, knots - 1), t * (knots - 1) - first


def at_knots(values: Tensor, place: tuple[int, int, float]) -> Tensor:
    """Interpolate values, (knots, d), linearly."""
    i, j, s = place
    return values[i] if s == 0 else torch.lerp(values[i], values[j], s)


def _sizes(hidden: str | Sequence[int]) -> list[int]:
    try:
        sizes = [int(size) for size in (hidden.split("-") if isinstance(hidden, str) else hidden)]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise ValueError(f'expected hidden sizes like "2-128-2" or (2, 128, 2), all at least 1, got {hidden!r}')
    return sizes


@final
class SplitDrift(nn.Module):
    """f_q = [f_S(t, w_S), f_D(t, w_D)] for a horizontal cut: neither half depends on the weights of the other.

    Args:
        stochastic: f_S, from (t, w_S) to the shape of w_S.
        deterministic: f_D, from (t, w_D) to the shape of w_D.
        indices: the coordinates S, as returned by `cut.indices(d)`.
        d: number of weights.

    Example:
        >>> drift = SplitDrift(lambda t, w: -w, lambda t, w: t + w, indices=[0], d=2)
        >>> drift(torch.tensor(0.5), torch.tensor([1.0, 2.0]))
        tensor([-1.0000,  2.5000])
    """

    S: Tensor
    D: Tensor

    def __init__(self, stochastic: Field, deterministic: Field, indices: Sequence[int] | Tensor, d: int) -> None:
        super().__init__()
        self.stochastic = stochastic
        self.deterministic = deterministic
        S = torch.as_tensor(indices, dtype=torch.int64).cpu().sort().values
        mask = torch.zeros(d, dtype=torch.bool)
        if len(S) and not 0 <= int(S[0]) <= int(S[-1]) < d:
            raise ValueError(f"expected indices from 0 to {d - 1}, got {int(S[0])} to {int(S[-1])}")
        mask[S] = True
        if int(mask.sum()) < len(S):
            raise ValueError("expected distinct indices, got one more than once")
        self.register_buffer("S", S, persistent=False)
        self.register_buffer("D", (~mask).nonzero().squeeze(-1), persistent=False)

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        """f_q(t, w) of all coordinates, with the shape of w."""
        f_S = self.stochastic(t, w[..., self.S])
        f_D = self.deterministic(t, w[..., self.D])
        return torch.zeros_like(w).index_copy(-1, self.S, f_S).index_copy(-1, self.D, f_D)

    def restrict(self, indices: Tensor) -> Field:
        """f_S if `indices` are S, f_D if they are D; raises ValueError for any other set."""
        if torch.equal(indices, self.S):
            return self.stochastic
        if torch.equal(indices, self.D):
            return self.deterministic
        raise ValueError(
            f"expected a drift split like the cut, got one split at other coordinates: "
            f"{len(self.S)} stochastic of {len(self.S) + len(self.D)}"
        )


@final
class PriorPlus(nn.Module):
    """f_q = f_p + net. If the net is zero at initialisation, the posterior starts as the prior, with a KL of 0."""

    def __init__(self, prior: Prior, net: Field) -> None:
        super().__init__()
        self.prior = prior
        self.net = net

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        """f_p(t, w) + net(t, w), with the shape of w."""
        return self.prior.drift(t, w) + self.net(t, w)

    def and_gap(self, t: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """f_q(t, w) and the gap f_q - f_p, which is the output of the net."""
        net = self.net(t, w)
        return self.prior.drift(t, w) + net, net

    def restrict(self, indices: Tensor) -> PriorPlus:
        """The drift of the coordinates `indices`; raises ValueError if the prior or the net cannot be restricted."""
        restrict: Callable[[Tensor], Field] | None = getattr(self.net, "restrict", None)
        if restrict is None:
            raise ValueError("expected a net that is split like the cut, got one that may mix coordinates")
        return PriorPlus(self.prior.restrict(indices), restrict(indices))


def with_gap(drift: Field, prior: Prior) -> FieldAndGap:
    """(t, w) -> (f_q, f_q - f_p).

    For a drift f_p + net the gap is the output of the net, so f_p is evaluated once and there is no cancellation.
    """
    if isinstance(drift, PriorPlus) and drift.prior is prior:
        return drift.and_gap

    def both(t: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        f_q = drift(t, w)
        return f_q, f_q - prior.drift(t, w)

    return both


def bottleneck(
    d: int,
    cut: Cut,
    hidden: str | Sequence[int] = (2, 128, 2),
    hidden_deterministic: str | Sequence[int] | None = None,
    *,
    knots: int = 0,
    hold: float = 0.0,
    at: Tensor | None = None,
    activation: Callable[[Tensor], Tensor] = F.softplus,
    generator: torch.Generator | None = None,
) -> BottleneckDrift | DiagonalDrift | SplitDrift:
    """The network of f_q for a cut: one network, or one for S and one for D if the cut is horizontal.

    With knots, each is a `DiagonalDrift`, which may hold the weights `at` their values, otherwise a `BottleneckDrift`.
    """
    at = torch.zeros(d) if at is None else at.detach()

    def net(at: Tensor, hidden: str | Sequence[int]) -> BottleneckDrift | DiagonalDrift:
        if knots:
            return DiagonalDrift(
                len(at), hidden, knots=knots, hold=hold, at=at, activation=activation, generator=generator
            )
        return BottleneckDrift(len(at), hidden, activation=activation, generator=generator)

    if not cut.splits(d):
        return net(at, hidden)
    S = cut.indices(d)
    D = torch.ones(d, dtype=torch.bool).index_fill(0, torch.as_tensor(S), False)
    return SplitDrift(net(at[~D], hidden), net(at[D], hidden_deterministic or hidden), S, d)
