"""The solver interface: the equation passed in, the solution returned, and the loop for one-step schemes."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from sdeweights import diffusion, kl
from sdeweights.brownian import Increments
from sdeweights.diffusion import Field, FieldAndGap, Kind
from sdeweights.drifts import with_gap
from sdeweights.priors import Prior


@dataclass
class Counted:
    """A drift that counts its evaluations."""

    field: Field
    calls: int = 0

    def __call__(self, t: Tensor, w: Tensor) -> Tensor:
        self.calls += 1
        return self.field(t, w)

    def with_gap(self, prior: Prior) -> FieldAndGap:
        """(t, w) -> (f_q, f_q - f_p); each call counts as one evaluation."""
        both = with_gap(self.field, prior)

        def counted(t: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            self.calls += 1
            return both(t, w)

        return counted


class Sde(NamedTuple):
    """The Ito equation dw = f(t, w) dt + P^T g(t, w) dB, with m noises driving the coordinates `noisy` out of d."""

    drift: Counted  # f, from (t, w) to (..., d)
    prior: Prior  # f_p and g, for the KL
    drift_and_gap: FieldAndGap  # f and the gap f - f_p, at the left end of each step, where the KL is summed
    diffusion: Field  # g on the noisy coordinates: scalar, (..., m) or (..., m, m)
    kind: Kind  # which of these three g is
    noisy: Tensor  # (m,) indices of the noisy coordinates
    additive: bool  # whether g does not depend on w

    @classmethod
    def of(cls, drift: Counted, prior: Prior, noisy: Tensor, w: Tensor) -> Self:
        """The posterior: drift f_q, and the prior's diffusion on the coordinates `noisy` of weights like w, (d,)."""
        t, start = w.new_zeros(()), w.detach()
        kind = diffusion.kind_of(prior.diffusion, t, start)
        everything = len(noisy) == len(w)

        def g(t: Tensor, w: Tensor) -> Tensor:
            value = prior.diffusion(t, w)
            return value if everything else diffusion.restrict(kind, value, noisy)

        if prior.constant_diffusion:
            constant = g(t, start)  # evaluated once for all steps
            return cls(drift, prior, drift.with_gap(prior), lambda t, w: constant, kind, noisy, additive=True)  # noqa: ARG005
        additive = not diffusion.depends_on_state(prior.diffusion, t, start)
        return cls(drift, prior, drift.with_gap(prior), g, kind, noisy, additive)

    def spread(self, x: Tensor, d: int) -> Tensor:
        """P^T x: the noisy coordinates x placed at their indices in a vector of size d, zero elsewhere."""
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
    """States at the grid points of a phase, (samples, n + 1, d), and its KL, (samples,)."""

    states: Tensor
    kl: Tensor

    @classmethod
    def of(
        cls, sde: Sde, states: Sequence[Tensor], ends: Sequence[tuple[Tensor, Tensor]], times: Sequence[float]
    ) -> Self:
        """Stack states (samples, d), and sum the KL from the gap f - f_p and g at the left end of every step.

        If w is not finite, the KL is not computed: the caller then reports the state rather than an error from g.
        """
        if not bool(torch.isfinite(states[-1].detach()).all()):
            return cls(torch.stack(list(states), 1), states[-1].sum(-1))
        us = [kl.control(sde.kind, sde.gather(gap), g) for gap, g in ends]
        return cls(torch.stack(list(states), 1), kl.energy(us, [b - a for a, b in itertools.pairwise(times)]))


class SdeSolver(Protocol):
    """A scheme for the stochastic phase.

    `noises` is 1 if the scheme only needs dB, and 2 if it also needs the time integrals. `order(additive)` is its
    strong order for additive noise, or otherwise for state-dependent noise that is elementwise or commutative.
    """

    @property
    def noises(self) -> int:
        """Number of standard normals drawn per step and coordinate."""

    def order(self, additive: bool) -> float:
        """Strong order."""

    def check(self, sde: Sde, t: Tensor, w: Tensor) -> None:
        """Raise ValueError if the scheme cannot solve the equation."""

    def solve(self, sde: Sde, w: Tensor, times: Sequence[float], noise: Increments) -> Solution:
        """States at all `times`, starting from w of shape (samples, d), and the KL."""


class OdeSolver(Protocol):
    """A scheme for deterministic phases; `order` is its order of convergence."""

    @property
    def order(self) -> float:
        """Order of convergence."""

    def solve(self, f: Field, w: Tensor, times: Sequence[float]) -> Tensor:
        """States at all `times`, (s, n + 1, d), starting from w of shape (s, d)."""


class OneStepSde(ABC):
    """A one-step scheme for SDEs: subclasses implement `step`."""

    noises: int = 1

    @abstractmethod
    def order(self, additive: bool) -> float:
        """Strong order."""

    @abstractmethod
    def step(self, sde: Sde, s: Step) -> Tensor:
        """The state at the end of a step."""

    def check(self, sde: Sde, t: Tensor, w: Tensor) -> None:  # noqa: B027 - optional: some schemes solve every equation
        """Raise ValueError if the scheme cannot solve the equation."""

    def solve(self, sde: Sde, w: Tensor, times: Sequence[float], noise: Increments) -> Solution:
        """Take the steps of a phase one by one, and sum the KL at their left ends."""
        ts = clock(times, w)
        dBs = noise.dB.unbind(1)
        Zs: Sequence[Tensor | None] = [None] * len(dBs) if noise.Z is None else noise.Z.unbind(1)
        states, ends = [w], []
        for k in range(len(times) - 1):
            (f, gap), g = sde.drift_and_gap(ts[k], w), sde.diffusion(ts[k], w)
            w = self.step(sde, Step(ts[k], ts[k + 1], times[k + 1] - times[k], w, f, g, dBs[k], Zs[k]))
            states.append(w)
            ends.append((gap, g))
        return Solution.of(sde, states, ends, times)


def clock(times: Sequence[float], like: Tensor) -> tuple[Tensor, ...]:
    """Grid points as 0-dimensional tensors with the dtype and device of `like`."""
    return torch.tensor(times, dtype=like.dtype, device=like.device).unbind()
