"""Weight paths of processes on one grid. Those of one shape take their steps side by side, in one computation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from sdeweights import kl
from sdeweights.bottleneck_steps import shape_of
from sdeweights.brownian import Increments
from sdeweights.drifts import PriorPlus
from sdeweights.path import WeightPath
from sdeweights.priors import Prior
from sdeweights.solvers.base import clock
from sdeweights.solvers.euler_maruyama import EulerMaruyama
from sdeweights.solvers.ode_euler import OdeEuler
from sdeweights.track import Counted, Group, Plan, Reset, Track, beside, follow, stochastic

if TYPE_CHECKING:
    from sdeweights.diffusion import Field
    from sdeweights.process import WeightProcess


class Job(NamedTuple):
    """A process, how its path is integrated, and of how many samples."""

    process: WeightProcess
    plan: Plan
    samples: int


def paths(jobs: Sequence[Job]) -> list[WeightPath]:
    """The paths of all jobs, in their order."""
    alike: defaultdict[Hashable, list[int]] = defaultdict(list)
    for i, job in enumerate(jobs):
        shape = _shape(job)
        alike[i if shape is None else shape].append(i)
    found: dict[int, WeightPath] = {}
    for members in alike.values():
        group = [jobs[i] for i in members]
        found |= zip(members, (_apart if group[0].process.separate else _whole)(group), strict=True)
    return [found[i] for i in range(len(jobs))]


def _shape(job: Job) -> Hashable | None:
    """What jobs have in common that can be done in one; None for one that has to be done by itself."""
    process, plan, samples = job
    euler = isinstance(plan.ode, OdeEuler) and (plan.noise is None or isinstance(plan.scheme, EulerMaruyama))
    own = isinstance(process.drift, PriorPlus) and process.drift.prior is process.prior
    mixed = not process.separate and process.cut.splits(process.d)
    if not euler or not own or mixed:
        return None
    fields = _halves(process) if process.separate else (process.drift,)
    shapes = [shape_of(f, None if plan.noise is None else getattr(f, "prior", None)) for f in fields]
    return None if None in shapes else (plan.grid, process.w_t2 is None, samples, *shapes)


def _whole(jobs: Sequence[Job]) -> list[WeightPath]:
    """All weights of a process integrated together."""
    groups = []
    for process, plan, _ in jobs:
        drift = Counted(process.drift)
        if plan.noise is None:
            groups.append(Group(process.w0, drift))
        else:
            groups.append(stochastic(process.w0, drift, process.prior, process.S, _reset(process, process.S)))
    tracks = follow(groups, [job.plan for job in jobs])
    made = []
    for job, group, track in zip(jobs, groups, tracks, strict=True):
        after = None if track.after is None else track.after.expand(job.samples, -1)
        made.append(_path(job, track.stacked(job.samples), track.kl, after, group.drift.calls))
    return made


def _apart(jobs: Sequence[Job]) -> list[WeightPath]:
    """w_D integrated once, w_S for every sample."""
    plans = [job.plan for job in jobs]
    halves = [tuple(Counted(field) for field in _halves(job.process)) for job in jobs]
    of_D = [Group(job.process.w0[job.process.D], f_D) for job, (_, f_D) in zip(jobs, halves, strict=True)]
    tracks_D = follow(of_D, plans)
    of_S = []
    for job, (f_S, _), track_D in zip(jobs, halves, tracks_D, strict=True):
        process = job.process
        places = torch.arange(len(process.S), device=process.S.device)
        prior = _prior_of_S(job, f_S.field, track_D)
        of_S.append(stochastic(process.w0[process.S], f_S, prior, places, _reset(process, places)))
    tracks_S = follow(of_S, plans)
    made = []
    for job, (f_S, f_D), track_S, track_D in zip(jobs, halves, tracks_S, tracks_D, strict=True):
        w = merged(job.process, track_S.stacked(job.samples), track_D.stacked(job.samples))
        after, sde = None, job.plan.grid.sde
        if track_S.after is not None and sde is not None:
            w_D = track_D.states[sde.last]
            after = merged(job.process, track_S.after.expand(job.samples, -1), w_D.expand(job.samples, -1))
        made.append(_path(job, w, track_S.kl, after, max(f_S.calls, f_D.calls)))
    return made


def _halves(process: WeightProcess) -> tuple[Field, Field]:
    restrict: Callable[[Tensor], Field] = process.drift.restrict  # type: ignore[attr-defined]
    return restrict(process.S), restrict(process.D)


def _prior_of_S(job: Job, f_S: Field, track_D: Track) -> Prior:
    process = job.process
    if isinstance(process.drift, PriorPlus) and isinstance(f_S, PriorPlus) and process.drift.prior is process.prior:
        return f_S.prior  # the very object, so that the gap is known to be the net
    if process.prior.coordinatewise:
        return process.prior.restrict(process.S)
    return beside(process.prior, process.S, process.D, job.plan.grid, track_D)


def merged(process: WeightProcess, w_S: Tensor, w_D: Tensor) -> Tensor:
    """w (..., d) from its noisy and its deterministic coordinates."""
    w, order = torch.cat([w_S, w_D], -1), torch.cat([process.S, process.D])
    in_order = bool((order.diff() > 0).all())  # as they are where the first coordinates are the noisy ones
    return w if in_order else w.index_select(-1, order.argsort())


def _reset(process: WeightProcess, places: Tensor) -> Reset | None:
    w_t2 = process.w_t2
    if w_t2 is None:
        return None
    return Reset(w_t2 if len(w_t2) == len(process.S) else w_t2[process.S], places)


def _path(job: Job, w: Tensor, kl_sum: Tensor | None, after: Tensor | None, evaluations: int) -> WeightPath:
    process, plan, _ = job
    grid, sde, noise = plan.grid, plan.grid.sde, plan.noise
    return WeightPath(
        ts=torch.stack(clock(grid.times, w)),
        w=w,
        kl=w.new_zeros(len(w)) if kl_sum is None else kl_sum,
        times=grid.times,
        reset=None if after is None or sde is None else sde.last,
        after_reset=after,
        shared=grid.steps if sde is None else sde.first,
        evaluations=evaluations,
        gaussians=0 if noise is None else noise.gaussians,
        phases=grid.phases,
        _martingale=lambda path: _martingale(process, path, noise),
    )


def _martingale(process: WeightProcess, path: WeightPath, noise: Increments | None) -> Tensor:
    """int u dB with the parameters of f_q held fixed, so that the path alone carries the gradient."""
    if noise is None:
        return path.w.new_zeros(path.samples)
    us, _ = kl.controls(_with_parameters_detached(process.drift, path), process.prior, path, process.cut)
    return kl.martingale(us, noise.dB)


def _with_parameters_detached(drift: Field, path: WeightPath) -> Field:
    if isinstance(drift, nn.Module):
        frozen = {name: p.detach() for name, p in drift.named_parameters()}
        fixed: Field = lambda t, w: torch.func.functional_call(drift, frozen, (t, w))  # noqa: E731
    else:
        fixed = drift
    with torch.enable_grad():
        if fixed(path.ts[0], path.w[:, 0].detach()).requires_grad:
            raise ValueError(
                "expected a drift whose parameters belong to an nn.Module for kl_stl, got one that hides some"
            )
    return fixed
