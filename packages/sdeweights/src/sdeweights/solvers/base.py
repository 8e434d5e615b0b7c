"""What solvers are given and what they give back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from sdeweights import diffusion
from sdeweights.brownian import Increments
from sdeweights.diffusion import Field, FieldAndGap, Kind


class Sde(NamedTuple):
    """dw = f(t, w) dt + P^T g(t, w) dB: Ito, with m noises that drive the coordinates ``noisy`` of d.

    Attributes:
        drift: f, from (t, w) to (..., d).
        drift_and_gap: f and its gap f - f_p to the prior's drift, for the left ends of steps, where the KL is summed.
        diffusion: g on the noisy coordinates: scalar, (..., m) or (..., m, m).
        kind: which of these.
        noisy: (m,) places of the noisy coordinates.
        additive: g is not computed from w.
    """

    drift: Field
    drift_and_gap: FieldAndGap
    diffusion: Field
    kind: Kind
    noisy: Tensor
    additive: bool

    def spread(self, x: Tensor, d: int) -> Tensor:
        """P^T x: values of the noisy coordinates put in their places among d, zero elsewhere."""
        if x.shape[-1] == d:
            return x
        return x.new_zeros(*x.shape[:-1], d).index_copy(-1, self.noisy, x)

    def gather(self, x: Tensor) -> Tensor:
        """P x: the noisy coordinates of x, (..., m)."""
        return x if len(self.noisy) == x.shape[-1] else x[..., self.noisy]

    def push(self, g: Tensor, dB: Tensor, d: int) -> Tensor:
        """P^T g dB: (..., d)."""
        return self.spread(diffusion.apply(self.kind, g, dB), d)

    def correction(self, t: Tensor, w: Tensor) -> Tensor | float:
        """Ito drift minus Stratonovich drift: 1/2 sum_j (d g_j / dw) g_j."""
        if self.additive:
            return 0.0
        return self.spread(diffusion.ito_to_stratonovich(self.kind, self.diffusion, t, w, self.noisy), w.shape[-1])


class Step(NamedTuple):
    """One step of a stochastic scheme from t to t1, with f and g at its left end already evaluated."""

    t: Tensor
    t1: Tensor
    dt: float
    w: Tensor
    f: Tensor
    g: Tensor
    dB: Tensor
    Z: Tensor | None


class Solution(NamedTuple):
    """States at the grid points of a phase; the gap f - f_p and the diffusion at the left end of every step."""

    states: list[Tensor]
    gaps: list[Tensor]
    diffusions: list[Tensor]


class SdeSolver(Protocol):
    """A scheme for the stochastic phase.

    ``noises`` is 1 where it needs dB and 2 where it needs the time integrals too. ``order(additive)`` is its strong
    order, for noise that is not computed from the state and for (elementwise or commutative) noise that is.
    """

    @property
    def noises(self) -> int:
        """Normals a step and coordinate."""

    def order(self, additive: bool) -> float:
        """Strong order."""

    def check(self, sde: Sde, t: Tensor, w: Tensor) -> None:
        """Refuse an equation that the scheme does not solve."""

    def solve(self, sde: Sde, w: Tensor, times: Sequence[float], noise: Increments) -> Solution:
        """States at all ``times``."""


class OdeSolver(Protocol):
    """A scheme for deterministic phases; ``order`` is its order of convergence."""

    @property
    def order(self) -> float:
        """Order of convergence."""

    def solve(self, f: Field, w: Tensor, times: Sequence[float]) -> list[Tensor]:
        """States at all ``times``."""


class OneStepSde(ABC):
    """A stochastic scheme that is told by one step."""

    noises: int = 1

    @abstractmethod
    def order(self, additive: bool) -> float:
        """Strong order."""

    @abstractmethod
    def step(self, sde: Sde, s: Step) -> Tensor:
        """The state at the end of a step."""

    def check(self, sde: Sde, t: Tensor, w: Tensor) -> None:  # noqa: B027 - a scheme need not refuse anything
        """Refuse an equation that the scheme does not solve."""

    def solve(self, sde: Sde, w: Tensor, times: Sequence[float], noise: Increments) -> Solution:
        """Take the steps of a phase one after the other."""
        ts = clock(times, w)
        dBs = noise.dB.unbind(1)
        Zs: Sequence[Tensor | None] = [None] * len(dBs) if noise.Z is None else noise.Z.unbind(1)
        states, gaps, diffusions = [w], [], []
        for k in range(len(times) - 1):
            (f, gap), g = sde.drift_and_gap(ts[k], w), sde.diffusion(ts[k], w)
            w = self.step(sde, Step(ts[k], ts[k + 1], times[k + 1] - times[k], w, f, g, dBs[k], Zs[k]))
            states.append(w)
            gaps.append(gap)
            diffusions.append(g)
        return Solution(states, gaps, diffusions)


class OneStepOde(ABC):
    """A deterministic scheme that is told by one step."""

    order: float

    @abstractmethod
    def step(self, f: Field, t: Tensor, t1: Tensor, dt: float, w: Tensor) -> Tensor:
        """The state at the end of a step from t to t1 = t + dt."""

    def solve(self, f: Field, w: Tensor, times: Sequence[float]) -> list[Tensor]:
        """Take the steps of a phase one after the other."""
        ts = clock(times, w)
        states = [w]
        for k in range(len(times) - 1):
            states.append(self.step(f, ts[k], ts[k + 1], times[k + 1] - times[k], states[-1]))
        return states


def clock(times: Sequence[float], like: Tensor) -> tuple[Tensor, ...]:
    """Grid points as 0-dimensional tensors of the dtype and device of ``like``."""
    return torch.tensor(times, dtype=like.dtype, device=like.device).unbind()
