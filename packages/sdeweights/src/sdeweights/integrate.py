"""Integrate weights through the phases of a grid.

Weights that do not depend on noise (all weights before t1, and w_D of a split drift) are integrated once rather than
once per sample.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from sdeweights import diffusion, kl
from sdeweights.brownian import Increments
from sdeweights.diffusion import Field
from sdeweights.drifts import PriorPlus
from sdeweights.errors import NonFiniteState
from sdeweights.grid import Grid, Phase, as_float
from sdeweights.path import WeightPath
from sdeweights.priors import Prior
from sdeweights.solvers.base import Counted, OdeSolver, Sde, SdeSolver, clock

if TYPE_CHECKING:
    from sdeweights.process import WeightProcess


class Plan(NamedTuple):
    """How to integrate a path: grid, schemes, number of samples, and the noise if the grid has a stochastic phase."""

    grid: Grid
    sde: SdeSolver
    ode: OdeSolver
    samples: int
    noise: Increments | None


class Reset(NamedTuple):
    """The values that the coordinates `indices` take after the stochastic phase."""

    value: Tensor
    indices: Tensor

    def after(self, w: Tensor) -> Tensor:
        """The right limit at the reset: a single state for all samples if every coordinate is reset."""
        if len(self.indices) == w.shape[-1]:
            return self.value.clone().unsqueeze(0)  # a view of a parameter would keep its gradient under no_grad
        return w.index_copy(-1, self.indices, self.value.expand(len(w), -1))


class Track(NamedTuple):
    """States (samples, steps + 1, d), KL (samples,), and right limit at the reset (samples, d) of some of the weights.

    The first axis of `w` and `after` has length 1 if all samples are equal.
    """

    w: Tensor
    kl: Tensor | None
    after: Tensor | None


def follow(w0: Tensor, drift: Counted, sde: Sde | None, reset: Reset | None, plan: Plan) -> Track:
    """Integrate dw = drift dt, with the noise of `sde` in the stochastic phase, from 0 to 1."""
    w, total, after = w0[None], None, None
    pieces: list[Tensor] = []
    for phase in plan.grid.phases:
        if phase.kind == "sde" and sde is not None and plan.noise is not None:
            plan.sde.check(sde, w.new_tensor(phase.start), w)
            states, total = plan.sde.solve(sde, w.expand(plan.samples, -1), phase.times, plan.noise)
            after = None if reset is None else reset.after(states[:, -1])
        else:
            states = _deterministic(plan.ode, drift, w, phase)
        pieces.append(states[:, 1:] if pieces else states)
        w = after if after is not None and phase is plan.grid.sde else states[:, -1]
    samples = max(map(len, pieces))
    whole = pieces[0] if len(pieces) == 1 else torch.cat([piece.expand(samples, -1, -1) for piece in pieces], 1)
    return Track(whole, total, after)


def _deterministic(scheme: OdeSolver, drift: Field, w: Tensor, phase: Phase) -> Tensor:
    try:
        return scheme.solve(drift, w, phase.times)
    except NonFiniteState as error:
        raise NonFiniteState(f"in the {phase.kind} phase ({phase.start:g}, {phase.stop:g}): {error}") from None


def integrate(process: WeightProcess, plan: Plan) -> WeightPath:
    """Integrate a weight process from 0 to 1."""
    track, evaluations = (_split if process.separate else _whole)(process, plan)
    grid, noise, cut = plan.grid, plan.noise, process.cut
    w = track.w.expand(plan.samples, -1, -1)
    return WeightPath(
        ts=torch.stack(clock(grid.times, w)),
        w=w,
        kl=w.new_zeros(plan.samples) if track.kl is None else track.kl,
        times=grid.times,
        reset=None if track.after is None or grid.sde is None else grid.sde.last,
        after_reset=None if track.after is None else track.after.expand(plan.samples, -1),
        shared=grid.steps if grid.sde is None else grid.sde.first,
        evaluations=evaluations,
        gaussians=0 if noise is None else noise.gaussians,
        phases=grid.phases,
        _girsanov=lambda detached, path: (kl.sticking_the_landing if detached else kl.log_ratio)(
            process.drift, process.prior, path, cut, None if noise is None else noise.dB
        ),
    )


def _whole(process: WeightProcess, plan: Plan) -> tuple[Track, int]:
    """Integrate all weights together."""
    drift = Counted(process.drift)
    sde = None if plan.noise is None else Sde.of(drift, process.prior, process.S, process.w0)
    return follow(process.w0, drift, sde, _reset(process, process.S), plan), drift.calls


def _split(process: WeightProcess, plan: Plan) -> tuple[Track, int]:
    """Integrate w_D once, then w_S for every sample."""
    S, D = process.S, process.D
    restrict: Callable[[Tensor], Field] = process.drift.restrict  # type: ignore[attr-defined]
    f_S, f_D = Counted(restrict(S)), Counted(restrict(D))
    track_D = follow(process.w0[D], f_D, None, None, plan)
    indices = torch.arange(len(S), device=S.device)
    sde = Sde.of(f_S, _prior_of_S(process, f_S.field, plan.grid, track_D.w[0]), indices, process.w0[S])
    track_S = follow(process.w0[S], f_S, sde, _reset(process, indices), plan)
    w = _merged(process, track_S.w, track_D.w)
    after = track_S.after
    if after is not None and plan.grid.sde is not None:
        after = _merged(process, after, track_D.w[:, plan.grid.sde.last])
    return Track(w, track_S.kl, after), max(f_S.calls, f_D.calls)


def _reset(process: WeightProcess, indices: Tensor) -> Reset | None:
    value = process.w_t2
    if value is None:
        return None
    return Reset(value if len(value) == len(process.S) else value[process.S], indices)


def _merged(process: WeightProcess, w_S: Tensor, w_D: Tensor) -> Tensor:
    """w (..., d), assembled from its noisy and deterministic coordinates."""
    w = torch.cat([w_S, w_D.expand(*w_S.shape[:-1], -1)], -1)
    order = torch.cat([process.S, process.D])
    in_order = bool((order.diff() > 0).all())  # true if the noisy coordinates come first
    return w if in_order else w.index_select(-1, order.argsort())


def _prior_of_S(process: WeightProcess, f_S: Field, grid: Grid, w_D: Tensor) -> Prior:
    if isinstance(process.drift, PriorPlus) and isinstance(f_S, PriorPlus) and process.drift.prior is process.prior:
        return f_S.prior  # the same object, so `with_gap` recognises that the gap is the net
    if process.prior.coordinatewise:
        return process.prior.restrict(process.S)
    return _prior_along(process.prior, process.S, process.D, grid, w_D)


def _prior_along(prior: Prior, S: Tensor, D: Tensor, grid: Grid, w_D: Tensor) -> Prior:
    """A prior of w_S alone, from a prior that mixes coordinates and the deterministic path w_D, (steps + 1, d_D).

    w_D is interpolated linearly between grid points, which causes an error of order dt^2.
    """
    times = grid.times

    def whole(t: Tensor, w_S: Tensor) -> Tensor:
        time = as_float(t)
        k = min(bisect_right(times, time) - 1, grid.steps - 1)
        at_t = torch.lerp(w_D[k], w_D[k + 1], (time - times[k]) / (times[k + 1] - times[k]))
        w = w_S.new_empty(*w_S.shape[:-1], len(S) + len(D))
        return w.index_copy(-1, S, w_S).index_copy(-1, D, at_t.expand(*w_S.shape[:-1], -1))

    zero = w_D.new_zeros(())
    kind = diffusion.kind_of(prior.diffusion, zero, whole(zero, zero.new_zeros(len(S))).detach())
    return Prior(
        lambda t, w_S: prior.drift(t, whole(t, w_S))[..., S],
        lambda t, w_S: diffusion.restrict(kind, prior.diffusion(t, whole(t, w_S)), S),
    )
