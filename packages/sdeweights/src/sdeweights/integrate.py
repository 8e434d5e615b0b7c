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
from sdeweights.start import Start, start_of

if TYPE_CHECKING:
    from sdeweights.process import WeightProcess


class Plan(NamedTuple):
    """How to integrate a path: grid, schemes, number of samples, and all random numbers.

    `noise` is None if the grid has no stochastic phase. `normals`, (samples, n), determine w_0 and the random
    coefficients of the prior; None if these are fixed.
    """

    grid: Grid
    sde: SdeSolver
    ode: OdeSolver
    samples: int
    noise: Increments | None
    normals: Tensor | None = None


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
    """Integrate dw = drift dt from w0, (1 or samples, d), with the noise of `sde` in the stochastic phase, to t = 1."""
    w, total, after = w0, None, None
    pieces: list[Tensor] = []
    for phase in plan.grid.phases:
        if phase.kind == "sde" and sde is not None and plan.noise is not None:
            plan.sde.check(sde, w.new_tensor(phase.start), w)
            states, total = plan.sde.solve(sde, w.expand(plan.samples, -1), phase.times, plan.noise)
            after = None if reset is None else reset.after(states[:, -1])
            after = after.expand(len(w0), -1) if after is not None and len(after) < len(w0) else after
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
    fixed = Start(process.w0[None], process.drift, process.prior)
    start = fixed if plan.normals is None else start_of(process, plan.normals)
    track, evaluations = (_split if process.separate else _whole)(process, start, plan)
    grid, noise, agree = plan.grid, plan.noise, plan.grid.steps if plan.grid.sde is None else plan.grid.sde.first
    w = track.w.expand(plan.samples, -1, -1)
    along = w.new_zeros(plan.samples) if track.kl is None else track.kl
    at_start = start.kl if start.variables else None
    drawn = (0 if noise is None else noise.gaussians) + (0 if plan.normals is None else plan.normals.numel())
    return WeightPath(
        ts=torch.stack(clock(grid.times, w)),
        w=w,
        kl=along if at_start is None else along + at_start,
        times=grid.times,
        reset=None if track.after is None or grid.sde is None else grid.sde.last,
        after_reset=None if track.after is None else track.after.expand(plan.samples, -1),
        shared=agree if start.shared is None else start.shared,
        evaluations=evaluations,
        gaussians=drawn,
        phases=grid.phases,
        kl_start=at_start,
        latents=start.latents,
        _girsanov=lambda detached, path: _noise_term(
            start, process, None if noise is None else noise.dB, detached, path
        ),
    )


def _noise_term(start: Start, process: WeightProcess, dB: Tensor | None, detached: bool, path: WeightPath) -> Tensor:
    """log dQ/dP, or its part with mean zero and the parameters of f_q detached: (samples,)."""
    along = (kl.sticking_the_landing if detached else kl.log_ratio)(start.drift, start.prior, path, process.cut, dB)
    return along + start.log_ratio(detached) if start.variables else along


def _whole(process: WeightProcess, start: Start, plan: Plan) -> tuple[Track, int]:
    """Integrate all weights together."""
    drift = Counted(start.drift)
    sde = None if plan.noise is None else Sde.of(drift, start.prior, process.S, process.w0)
    return follow(start.w0, drift, sde, _reset(process, process.S), plan), drift.calls


def _split(process: WeightProcess, start: Start, plan: Plan) -> tuple[Track, int]:
    """Integrate w_D once, or once per sample if w_D starts at random, then w_S for every sample."""
    S, D = process.S, process.D
    restrict: Callable[[Tensor], Field] = start.drift.restrict  # type: ignore[attr-defined]
    f_S, f_D = Counted(restrict(S)), Counted(restrict(D))
    track_D = follow(start.w0[:, D], f_D, None, None, plan)
    indices = torch.arange(len(S), device=S.device)
    sde = Sde.of(f_S, _prior_of_S(process, start, f_S.field, plan.grid, track_D.w), indices, process.w0[S])
    track_S = follow(start.w0[:, S], f_S, sde, _reset(process, indices), plan)
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


def _prior_of_S(process: WeightProcess, start: Start, f_S: Field, grid: Grid, w_D: Tensor) -> Prior:
    drift, prior = start.drift, start.prior
    if isinstance(drift, PriorPlus) and isinstance(f_S, PriorPlus) and drift.prior is prior:
        return f_S.prior  # the same object, so `with_gap` recognises that the gap is the net
    if prior.coordinatewise:
        return prior.restrict(process.S)
    return _prior_along(prior, process.S, process.D, grid, w_D)


def _prior_along(prior: Prior, S: Tensor, D: Tensor, grid: Grid, w_D: Tensor) -> Prior:
    """A prior of w_S alone, from a prior that mixes coordinates and the paths w_D, (1 or samples, steps + 1, d_D).

    w_D is interpolated linearly between grid points, which causes an error of order dt^2.
    """
    times = grid.times

    def whole(t: Tensor, w_S: Tensor) -> Tensor:
        time = as_float(t)
        k = min(bisect_right(times, time) - 1, grid.steps - 1)
        at_t = torch.lerp(w_D[:, k], w_D[:, k + 1], (time - times[k]) / (times[k + 1] - times[k]))
        w = w_S.new_empty(*w_S.shape[:-1], len(S) + len(D))
        some = at_t[0] if w_S.ndim == 1 else at_t  # a single w_S asks for the shape of g only
        return w.index_copy(-1, S, w_S).index_copy(-1, D, some.expand(*w_S.shape[:-1], -1))

    zero = w_D.new_zeros(())
    kind = diffusion.kind_of(prior.diffusion, zero, whole(zero, zero.new_zeros(len(S))).detach())
    return Prior(
        lambda t, w_S: prior.drift(t, whole(t, w_S))[..., S],
        lambda t, w_S: diffusion.restrict(kind, prior.diffusion(t, whole(t, w_S)), S),
    )
