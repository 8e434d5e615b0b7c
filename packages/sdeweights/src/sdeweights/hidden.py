"""Schemes for the hidden state along a weight path, eq. (9):  dh = f_h(t, h; w_t) dt.

Inside a step the weights are taken as linear between its ends. A scheme carries a state, a tuple of tensors whose first
is h; it can also go back a step, exactly or to the order of the scheme.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple, final

from torch import Tensor

from sdeweights.functional import HiddenDrift

State = tuple[Tensor, ...]


class Leg(NamedTuple):
    """One step from t0 to t1 = t0 + dt with the weights at both ends.

    For a scheme that looks at w0 alone they may be what `Functional.parts` made of them.
    """

    t0: Tensor
    t1: Tensor
    dt: float
    w0: Tensor
    w1: Tensor
    starts_at_reset: bool = False
    ends_at_reset: bool = False

    def reversed(self) -> Leg:
        """The same step taken backwards."""
        return Leg(self.t1, self.t0, -self.dt, self.w1, self.w0)


def slope(f_h: HiddenDrift, t: Tensor, h: Tensor, w: Tensor) -> Tensor:
    """f_h(t, h; w), refused where its shape is not that of h, which broadcasting would hide."""
    f = f_h(t, h, w)
    if not isinstance(f, Tensor):
        raise ValueError(f"expected f_h(t, h, w) of the shape {tuple(h.shape)} of h, got {type(f).__name__}")
    if f.shape != h.shape:
        raise ValueError(f"expected f_h(t, h, w) of the shape {tuple(h.shape)} of h, got {tuple(f.shape)}")
    return f


class HiddenScheme(ABC):
    """A one-step scheme for h."""

    order: float
    left_only = False  # a step looks at w0 alone

    def start(self, f_h: HiddenDrift, leg: Leg, h: Tensor) -> State:  # noqa: ARG002 - most schemes carry h alone
        """The state before the first step."""
        return (h,)

    @abstractmethod
    def step(self, f_h: HiddenDrift, leg: Leg, state: State) -> State:
        """The state at the end of a step."""

    def back(self, f_h: HiddenDrift, leg: Leg, state: State) -> State:
        """The state at the start of a step, from that at its end."""
        return self.step(f_h, leg.reversed(), state)


@final
class Euler(HiddenScheme):
    """h1 = h + f_h(t0, h; w0) dt: a residual network. A step forth and back is off by dt^2."""

    order = 1.0
    left_only = True

    def step(self, f_h: HiddenDrift, leg: Leg, state: State) -> State:
        """One residual layer."""
        (h,) = state
        return (h + slope(f_h, leg.t0, h, leg.w0) * leg.dt,)


@final
class Midpoint(HiddenScheme):
    """h1 = h + f_h(t0 + dt/2, h + f_h(t0, h; w0) dt/2; w_half) dt. Forth and back: off by dt^4."""

    order = 2.0

    def step(self, f_h: HiddenDrift, leg: Leg, state: State) -> State:
        """The slope half-way, taken for the whole step."""
        (h,) = state
        half = h + slope(f_h, leg.t0, h, leg.w0) * (leg.dt / 2)
        return (h + slope(f_h, (leg.t0 + leg.t1) / 2, half, (leg.w0 + leg.w1) / 2) * leg.dt,)


@final
class Rk4(HiddenScheme):
    """The classical Runge-Kutta method. A step forth and back is off by dt^6."""

    order = 4.0

    def step(self, f_h: HiddenDrift, leg: Leg, state: State) -> State:
        """Simpson's weights 1, 2, 2, 1 on four slopes."""
        (h,) = state
        t_half, w_half, dt = (leg.t0 + leg.t1) / 2, (leg.w0 + leg.w1) / 2, leg.dt
        k1 = slope(f_h, leg.t0, h, leg.w0)
        k2 = slope(f_h, t_half, h + k1 * (dt / 2), w_half)
        k3 = slope(f_h, t_half, h + k2 * (dt / 2), w_half)
        k4 = slope(f_h, leg.t1, h + k3 * dt, leg.w1)
        return (h + (k1 + 2 * (k2 + k3) + k4) * (dt / 6),)


@final
class ReversibleHeun(HiddenScheme):
    """Reversible Heun (Kidger et al., 2021), one evaluation a step; going back is exact up to rounding.

    z1 = 2 h - z + f_h(t0, z; w0) dt
    h1 = h + 1/2 (f_h(t0, z; w0) + f_h(t1, z1; w1)) dt,     state (h, z, f_h(t, z; w))
    """

    order = 2.0

    def start(self, f_h: HiddenDrift, leg: Leg, h: Tensor) -> State:
        """z starts as h."""
        return (h, h, slope(f_h, leg.t0, h, leg.w0))

    def step(self, f_h: HiddenDrift, leg: Leg, state: State) -> State:
        """Forth."""
        h, z, f0 = state
        if leg.starts_at_reset:
            f0 = slope(f_h, leg.t0, z, leg.w0)
        z1 = 2 * h - z + f0 * leg.dt
        f1 = slope(f_h, leg.t1, z1, leg.w1)
        return (h + (f0 + f1) * (leg.dt / 2), z1, f1)

    def back(self, f_h: HiddenDrift, leg: Leg, state: State) -> State:
        """And back: the same two equations solved for h and z."""
        h1, z1, f1 = state
        if leg.ends_at_reset:
            f1 = slope(f_h, leg.t1, z1, leg.w1)
        z = 2 * h1 - z1 - f1 * leg.dt
        f0 = slope(f_h, leg.t0, z, leg.w0)
        return (h1 - (f0 + f1) * (leg.dt / 2), z, f0)


SCHEMES: dict[str, type[HiddenScheme]] = {
    "euler": Euler,
    "midpoint": Midpoint,
    "rk4": Rk4,
    "reversible_heun": ReversibleHeun,
}
