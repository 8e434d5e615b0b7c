"""Groups of weights followed through the phases of a grid, each as one state while it is deterministic."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sdeweights import bottleneck_steps, bottleneck_walk, diffusion, kl
from sdeweights.brownian import Increments
from sdeweights.diffusion import Field, FieldAndGap
from sdeweights.drifts import with_gap
from sdeweights.errors import NonFiniteState
from sdeweights.grid import Grid, Phase, as_float
from sdeweights.priors import Prior
from sdeweights.solvers.base import OdeSolver, Sde, SdeSolver, Solution
from sdeweights.solvers.euler_maruyama import EulerMaruyama
from sdeweights.solvers.ode_euler import OdeEuler


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


class Group(NamedTuple):
    """Weights that are integrated together: their start, drift, and, unless deterministic, equation and reset.

    ``prior`` is that of the KL where all of the group is noisy, else None.
    """

    w0: Tensor
    drift: Counted
    sde: Sde | None = None
    reset: Reset | None = None
    prior: Prior | None = None

    def shape(self, plan: Plan) -> bottleneck_steps.Shape | None:
        """What groups have in common that can take their steps side by side; None for one that cannot."""
        euler = isinstance(plan.ode, OdeEuler)
        if self.sde is None or plan.noise is None:
            return bottleneck_steps.shape_of(self.drift.field) if euler else None
        euler = euler and isinstance(plan.scheme, EulerMaruyama)
        if not euler or self.prior is None or plan.noise.dB.requires_grad:
            return None
        return bottleneck_steps.shape_of(self.drift.field, self.prior)


@dataclass
class Track:
    """States, KL, and the right limit at a reset.

    Attributes:
        pieces: states at consecutive grid points, each (1, n, d) or (samples, n, d).
        end: where the next phase starts, (1, d) or (samples, d).
        kl: (samples,), or None where there was no noise.
        after: (1, d) or (samples, d), or None.
    """

    pieces: list[Tensor]
    end: Tensor
    kl: Tensor | None = None
    after: Tensor | None = None

    def add(self, pieces: list[Tensor]) -> None:
        """The states of another phase, which starts with the last one of the phase before, or with the reset there."""
        first, *rest = pieces
        self.pieces += [first, *rest] if not self.pieces else [first[:, 1:], *rest]
        self.end = pieces[-1][:, -1]

    @property
    def states(self) -> list[Tensor]:
        """At each grid point, (1, d) or (samples, d)."""
        return [w for piece in self.pieces for w in piece.unbind(1)]

    def stacked(self, samples: int) -> Tensor:
        """(samples, steps + 1, d)."""
        if len(self.pieces) == 1 and len(self.pieces[0]) == samples:
            return self.pieces[0]
        return torch.cat([piece.expand(samples, -1, -1) for piece in self.pieces], 1)


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
    return Group(w0, drift, sde, reset, prior if everything else None)


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


def follow(groups: Sequence[Group], plans: Sequence[Plan]) -> list[Track]:
    """Follow groups from 0 to 1, all on the grid of the first plan; several have to be of one `shape`."""
    tracks = [Track([], end=group.w0[None]) for group in groups]
    together = groups[0].shape(plans[0]) is not None
    for phase in plans[0].grid.phases:
        noises = [_noise(group, phase, plan) for group, plan in zip(groups, plans, strict=True)]
        starts = [track.end for track in tracks]
        if together:
            moves = _side_by_side(groups, starts, phase, noises)
        else:
            moves = [_move(groups[0], starts[0], phase, plans[0], noises[0])]
        for group, track, move in zip(groups, tracks, moves, strict=True):
            track.add(move.pieces)
            if move.kl is not None:
                track.kl = move.kl
                track.after = None if group.reset is None else group.reset.after(track.end)
                track.end = track.end if track.after is None else track.after
    return tracks


def _noise(group: Group, phase: Phase, plan: Plan) -> Increments | None:
    return plan.noise if phase.kind == "sde" and group.sde is not None else None


class _Move(NamedTuple):
    """A phase: states at its grid points, (s, n, d) each, and its KL where it was noisy."""

    pieces: list[Tensor]
    kl: Tensor | None = None


def _side_by_side(
    groups: Sequence[Group], starts: Sequence[Tensor], phase: Phase, noises: Sequence[Increments | None]
) -> list[_Move]:
    """A phase of groups of one shape, in one computation."""
    increments = [noise.dB for noise in noises if noise is not None]
    dB = bottleneck_walk.beside(increments) if increments else None
    w = bottleneck_walk.beside(starts)
    drifts = [group.drift.field for group in groups]
    states, total = bottleneck_steps.take(drifts, w if dB is None else w.expand(-1, dB.shape[1], -1), phase.times, dB)
    for group in groups:
        group.drift.calls += phase.steps
    each = enumerate(bottleneck_walk.each(states))
    return [_Move([w], None if total is None else total[b]) for b, w in each]


def _move(group: Group, start: Tensor, phase: Phase, plan: Plan, noise: Increments | None) -> _Move:
    """A phase of any group."""
    if group.sde is None or noise is None:
        return _Move([w[:, None] for w in _deterministic(group.drift, start, phase, plan.ode)])
    plan.scheme.check(group.sde, start.new_tensor(phase.start), start)
    solution = plan.scheme.solve(group.sde, start.expand(len(noise.dB), -1), phase.times, noise)
    reached = solution.states
    # where w is not finite, that is what sample() will say, and not what became of g
    broken = not bool(torch.isfinite(reached[-1].detach()).all())
    total = reached[-1].sum(-1) if broken else _kl(group.sde, solution, phase)
    return _Move([w[:, None] for w in reached], total)


def _deterministic(drift: Field, start: Tensor, phase: Phase, scheme: OdeSolver) -> list[Tensor]:
    try:
        return scheme.solve(drift, start, phase.times)
    except NonFiniteState as error:
        raise NonFiniteState(f"in the {phase.kind} phase ({phase.start:g}, {phase.stop:g}): {error}") from None


def _kl(sde: Sde, solution: Solution, phase: Phase) -> Tensor:
    us = [kl.control(sde.kind, sde.gather(gap), g) for gap, g in zip(solution.gaps, solution.diffusions, strict=True)]
    return kl.energy(us, [b - a for a, b in itertools.pairwise(phase.times)])
