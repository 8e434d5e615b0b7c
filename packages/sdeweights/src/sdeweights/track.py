"""One group of weights followed through the phases of a grid, as one state while it is deterministic."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sdeweights import diffusion, kl
from sdeweights.brownian import Increments
from sdeweights.diffusion import Field, FieldAndGap
from sdeweights.drifts import with_gap
from sdeweights.errors import NonFiniteState
from sdeweights.grid import Grid, Phase, as_float
from sdeweights.priors import Prior
from sdeweights.solvers.base import OdeSolver, Sde, SdeSolver, Solution


class Plan(NamedTuple):
    """How a path is integrated."""

    grid: Grid
    scheme: SdeSolver
    ode: OdeSolver
    noise: Increments | None


class Reset(NamedTuple):
    """The values that the coordinates ``places`` take after the stochastic phase."""

    value: Tensor
    places: Tensor

    def after(self, w: Tensor) -> Tensor:
        """The right limit; one state again where every coordinate is reset."""
        if len(self.places) == w.shape[-1]:
            return self.value.clone().unsqueeze(0)  # a view of a parameter would keep its gradient under no_grad
        return w.index_copy(-1, self.places, self.value.expand(len(w), -1))


class Group(NamedTuple):
    """Weights that are integrated together: their start, drift, and, unless deterministic, equation and reset."""

    w0: Tensor
    drift: Field
    sde: Sde | None = None
    reset: Reset | None = None


class Track(NamedTuple):
    """States at the grid points, each (1, d) or (samples, d); KL; and the right limit at a reset."""

    states: list[Tensor]
    kl: Tensor | None
    after: Tensor | None

    def stacked(self, samples: int) -> Tensor:
        """(samples, steps + 1, d)."""
        return torch.stack([w.expand(samples, -1) for w in self.states], 1)


@dataclass
class Counted:
    """A drift that counts its evaluations."""

    field: Field
    calls: int = 0

    def __call__(self, t: Tensor, w: Tensor) -> Tensor:
        self.calls += 1
        return self.field(t, w)

    def with_gap(self, prior: Prior) -> FieldAndGap:
        """(t, w) -> (f_q, f_q - f_p), counted like the drift alone."""
        both = with_gap(self.field, prior)

        def counted(t: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
            self.calls += 1
            return both(t, w)

        return counted


def stochastic(w0: Tensor, drift: Counted, prior: Prior, noisy: Tensor, reset: Reset | None) -> Group:
    """A group whose coordinates ``noisy`` follow the posterior: drift f_q, and the prior's diffusion."""
    t, start = w0.new_zeros(()), w0.detach()
    kind = diffusion.kind_of(prior.diffusion, t, start)
    everything = len(noisy) == len(w0)

    def g(t: Tensor, w: Tensor) -> Tensor:
        value = prior.diffusion(t, w)
        return value if everything else diffusion.restrict(kind, value, noisy)

    additive = not diffusion.depends_on_state(prior.diffusion, t, start)
    constant = g(t, start) if prior.constant_diffusion else None
    sde = Sde(
        drift,
        drift.with_gap(prior),
        g if constant is None else lambda t, w: constant,  # noqa: ARG005 - once for all steps
        kind,
        noisy,
        additive,
    )
    return Group(w0, drift, sde, reset)


def beside(prior: Prior, S: Tensor, D: Tensor, grid: Grid, track: Track) -> Prior:
    """A prior that may mix coordinates, as a prior of w_S beside the deterministic path of w_D.

    Between grid points w_D is interpolated linearly, an error of order dt^2.
    """
    times, states = grid.times, track.states

    def whole(t: Tensor, w_S: Tensor) -> Tensor:
        time = as_float(t)
        k = min(bisect_right(times, time) - 1, grid.steps - 1)
        w_D = torch.lerp(states[k], states[k + 1], (time - times[k]) / (times[k + 1] - times[k]))[0]
        w = w_S.new_empty(*w_S.shape[:-1], len(S) + len(D))
        return w.index_copy(-1, S, w_S).index_copy(-1, D, w_D.expand(*w_S.shape[:-1], -1))

    zero = states[0].new_zeros(())
    kind = diffusion.kind_of(prior.diffusion, zero, whole(zero, zero.new_zeros(len(S))).detach())
    return Prior(
        lambda t, w_S: prior.drift(t, whole(t, w_S))[..., S],
        lambda t, w_S: diffusion.restrict(kind, prior.diffusion(t, whole(t, w_S)), S),
    )


def follow(group: Group, plan: Plan) -> Track:
    """Follow a group of weights from 0 to 1."""
    states, total, after = [group.w0.unsqueeze(0)], None, None
    for phase in plan.grid.phases:
        start = states[-1] if after is None else after
        if phase.kind == "ode" or group.sde is None or plan.noise is None:
            reached = _deterministic(group.drift, start, phase, plan.ode)
        else:
            plan.scheme.check(group.sde, start.new_tensor(phase.start), start)
            solution = plan.scheme.solve(group.sde, start.expand(len(plan.noise.dB), -1), phase.times, plan.noise)
            reached = solution.states
            # where w is not finite, that is what sample() will say, and not what became of g
            broken = not bool(torch.isfinite(reached[-1].detach()).all())
            total = reached[-1].sum(-1) if broken else _kl(group.sde, solution, phase)
            after = None if group.reset is None else group.reset.after(reached[-1])
        states.extend(reached[1:])
    return Track(states, total, after)


def _deterministic(drift: Field, start: Tensor, phase: Phase, scheme: OdeSolver) -> list[Tensor]:
    try:
        return scheme.solve(drift, start, phase.times)
    except NonFiniteState as error:
        raise NonFiniteState(f"in the {phase.kind} phase ({phase.start:g}, {phase.stop:g}): {error}") from None


def _kl(sde: Sde, solution: Solution, phase: Phase) -> Tensor:
    us = [kl.control(sde.kind, sde.gather(gap), g) for gap, g in zip(solution.gaps, solution.diffusions, strict=True)]
    return kl.energy(us, [b - a for a, b in itertools.pairwise(phase.times)])
