"""Hidden states along weight paths, eq. (9):  dh = f_h(t, h; w_t) dt  on all of [0, 1].

While the weights of all samples agree, so do the hidden states: that prefix is computed once.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sdeweights.errors import NonFiniteState, norm
from sdeweights.functional import Functional, HiddenDrift, OverSamples, as_hidden_drift
from sdeweights.gradients import MODES
from sdeweights.grid import as_float
from sdeweights.hidden import SCHEMES, HiddenScheme, Leg, State
from sdeweights.path import WeightPath
from sdeweights.solvers.torchdiffeq_adapter import Torchdiffeq

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import nn


def flow(
    f_h: HiddenDrift | nn.Module,
    h0: Tensor,
    path: WeightPath,
    method: str = "euler",
    gradient: str = "backprop",
    *,
    per_sample: bool | None = None,
    vectorize: bool = False,
    between: tuple[int, int] | None = None,
) -> Tensor:
    """Hidden states at t = 1 for every sample of a path: (samples, batch, ...).

    Args:
        f_h: f_h(t, h, w) for one sample, h (batch, ...) and w (d,); or a module of (h) or (t, h), called with w in
            place of its parameters.
        h0: (batch, ...), or (samples, batch, ...) with a start for each sample.
        path: weights.
        method: "euler", "midpoint", "rk4", "reversible_heun", one step each between grid points, or
            "torchdiffeq:dopri5" and the like (with backprop only).
        gradient: "backprop", "checkpoint" or "adjoint"; see `sdeweights.gradients`.
        per_sample: whether h0 has a sample axis. Where None, it has one if there are two samples or more, and h0 has
            three axes or more of which the first is as long as there are samples; with four axes, which may be as many
            images, that is a ``ValueError``. Say it where a batch may be as large as the number of samples.
        vectorize: carry all samples at once by ``torch.vmap`` instead of one after the other.
        between: go from one grid point to another, by their indices, instead of from the first to the last; h0 is then
            the state at the first of them. For schemes whose state is h alone: not reversible_heun, not torchdiffeq.

    Example: for f_h(t, h, w) = w h with w = 1 throughout, Euler with n steps gives (1 + 1/n)^n h0.
    """
    if not isinstance(path, WeightPath) or not isinstance(h0, Tensor):
        raise ValueError(f"expected h0 as a Tensor and path as a WeightPath, got {_name(h0)} and {_name(path)}")
    has_samples = _has_samples(h0, path, per_sample)
    ends = (0, path.steps) if between is None else between
    job = _Job.checked(as_hidden_drift(f_h), h0, path, method, gradient, has_samples, vectorize, ends)
    h1 = job.run()
    if not bool(torch.isfinite(h1.detach()).all()):
        job.explain()
    return h1


def agreeing(path: WeightPath, method: str = "euler") -> int:
    """How many steps of h all samples take together: the weights agree that long.

    A step of Euler looks at the weights at its left end alone, so it goes one step further than the others.

    Example: the first nine of ten steps are deterministic.
        >>> from sdeweights import Brownian, Cut, WeightProcess
        >>> process = WeightProcess(torch.zeros(1), lambda t, w: -w, Brownian(), Cut.ode_first(0.1))
        >>> agreeing(process.sample(10, samples=2)), agreeing(process.sample(10, samples=2), "rk4")
        (10, 9)
    """
    left_only = method in SCHEMES and SCHEMES[method].left_only
    return min(max(path.shared + left_only, 0), path.steps)


def _name(value: object) -> str:
    return type(value).__name__


def _has_samples(h0: Tensor, path: WeightPath, per_sample: bool | None) -> bool:
    if per_sample is None:
        fits = h0.ndim >= 3 and path.samples > 1 and len(h0) == path.samples
        if fits and h0.ndim == 4:
            raise ValueError(
                f"expected per_sample=True or False for h0 of shape {tuple(h0.shape)} and {path.samples} samples, got "
                f"None: it may be {len(h0)} images or a start for each sample"
            )
        return fits
    if per_sample and (h0.ndim < 2 or len(h0) != path.samples):
        raise ValueError(f"expected h0 of shape ({path.samples}, batch, ...), got {tuple(h0.shape)}")
    return per_sample


@dataclass(frozen=True)
class _Job:
    """A flow whose arguments have been checked."""

    f_h: HiddenDrift
    h0: Tensor
    path: WeightPath
    method: str
    gradient: str
    per_sample: bool
    vectorize: bool
    ends: tuple[int, int]

    @classmethod
    def checked(
        cls,
        f_h: HiddenDrift,
        h0: Tensor,
        path: WeightPath,
        method: str,
        gradient: str,
        per_sample: bool,
        vectorize: bool,
        ends: tuple[int, int],
    ) -> _Job:
        if h0.ndim < 1 or not h0.is_floating_point() or h0.dtype != path.w.dtype or h0.device != path.w.device:
            raise ValueError(
                f"expected h0 of shape (batch, ...), {path.w.dtype} on {path.w.device} like the path, "
                f"got {tuple(h0.shape)}, {h0.dtype} on {h0.device}"
            )
        if gradient not in MODES:
            raise ValueError(f"expected gradient to be one of {', '.join(MODES)}, got {gradient!r}")
        adaptive = isinstance(method, str) and method.startswith("torchdiffeq:")
        if method not in SCHEMES and not adaptive:
            raise ValueError(f"expected method to be one of {', '.join(SCHEMES)}, torchdiffeq:METHOD, got {method!r}")
        if adaptive and (gradient != "backprop" or vectorize):
            raise ValueError(
                f'expected gradient="backprop" and vectorize=False with {method}, got {gradient!r}, {vectorize}'
            )
        if ends != (0, path.steps):
            first, last = ends
            if not 0 <= first < last <= path.steps:
                raise ValueError(f"expected grid points 0 <= first < last <= {path.steps} in between, got {ends}")
            if adaptive or method == "reversible_heun":
                raise ValueError(f"expected euler, midpoint or rk4 between two grid points, got {method}")
        return cls(f_h, h0, path, method, gradient, per_sample, vectorize, ends)

    def run(self) -> Tensor:
        """h1, (samples, batch, ...)."""
        if self.method in SCHEMES:
            return self._stepwise(SCHEMES[self.method](), MODES[self.gradient])
        return self._adaptive(Torchdiffeq(self.method.partition(":")[2]))

    def _stepwise(self, scheme: HiddenScheme, mode: Callable[..., State]) -> Tensor:
        path, f_h = self.path, self.f_h
        first, last = self.ends
        steps = last - first
        whole = self.gradient == "adjoint" or self.vectorize or not scheme.left_only
        legs = [sample[first:last] for sample in _legs(path, None if whole else f_h)]
        if self.per_sample:
            begun, states = 0, [scheme.start(f_h, legs[i][0], h) for i, h in enumerate(self.h0)]
        else:
            # Going back a step needs the weights at its end, which for Euler's last shared step differ.
            begun = agreeing(path, self.method) if self.gradient != "adjoint" else path.shared
            begun = min(max(begun - first, 0), steps) if path.samples > 1 else 0
            state = mode(f_h, scheme, legs[0][:begun], scheme.start(f_h, legs[0][0], self.h0))
            if begun == steps:
                return state[0].expand(path.samples, *self.h0.shape)
            states = [state] * path.samples
        if self.vectorize:
            stacked = tuple(torch.stack(parts) for parts in zip(*states, strict=True))
            return mode(OverSamples(f_h), scheme, _stacked(legs)[begun:], stacked)[0]
        return torch.stack([mode(f_h, scheme, legs[i][begun:], state)[0] for i, state in enumerate(states)])

    def _adaptive(self, solver: Torchdiffeq) -> Tensor:
        """Pieces between the points where the weights stop agreeing, are reset, or end."""
        path = self.path
        apart = 0 if self.per_sample else max(path.shared, 0)
        h = self.h0
        if apart > 0:
            h = self._piece(solver, path[0], h, 0, apart)
        starts = h if self.per_sample else h.expand(path.samples, *h.shape)
        ends = [apart, *([path.reset] if path.reset is not None else []), path.steps]
        out = []
        for i, state in enumerate(starts):
            for first, last in itertools.pairwise(ends):
                state = self._piece(solver, path[i], state, first, last) if first < last else state
            out.append(state)
        return torch.stack(out)

    def _piece(self, solver: Torchdiffeq, path: WeightPath, h: Tensor, first: int, last: int) -> Tensor:
        end = path.times[last]

        def field(t: Tensor, h: Tensor) -> Tensor:
            time = min(max(as_float(t), path.times[first]), end)
            return self.f_h(t, h, path.at(time, left=time == end)[0])

        return solver.solve(field, h, (path.times[first], end))[-1]

    def explain(self) -> None:
        """Integrate once more, without gradients, to name the step at which the state left the finite numbers."""
        path = self.path
        scheme = SCHEMES[self.method]() if self.method in SCHEMES else SCHEMES["euler"]()
        with torch.no_grad():
            for i, legs in enumerate(_legs(path)):
                first, last = self.ends
                state = scheme.start(self.f_h, legs[first], self.h0[i] if self.per_sample else self.h0)
                for k, leg in enumerate(legs[first:last], first):
                    before, state = state, scheme.step(self.f_h, leg, state)
                    if not bool(torch.isfinite(state[0]).all()):
                        raise NonFiniteState(
                            f"h became non-finite in sample {i}, {_phase(path, k)}step {k + 1} of {path.steps}, "
                            f"t={path.times[k + 1]:.6g}; norm of h one step before: {norm(before[0].flatten()):.6g}, "
                            f"norm of w: {norm(leg.w0):.6g}"
                        )
        raise NonFiniteState(f"h became non-finite with {self.method}; largest norm of w: {norm(path.w):.6g}")


def _phase(path: WeightPath, k: int) -> str:
    """The phase of step k in words, where the path knows its phases."""
    return next((f"{p.kind} phase ({p.start:g}, {p.stop:g}), " for p in path.phases if p.first <= k < p.last), "")


def _legs(path: WeightPath, f_h: HiddenDrift | None = None) -> list[list[Leg]]:
    """The steps of every sample, with weights in the form that f_h takes them in fastest, where it is given."""
    ts = path.ts.unbind()
    dts = [b - a for a, b in zip(path.times, path.times[1:], strict=False)]
    after: Sequence[Tensor] = () if path.after_reset is None else path.after_reset.unbind(0)
    all_legs = []
    for i, w in enumerate(_rows(path.w, f_h)):
        all_legs.append(
            [
                Leg(
                    ts[k],
                    ts[k + 1],
                    dts[k],
                    after[i] if k == path.reset else w[k],
                    w[k + 1],
                    starts_at_reset=k == path.reset,
                    ends_at_reset=k + 1 == path.reset,
                )
                for k in range(path.steps)
            ]
        )
    return all_legs


def _rows(w: Tensor, f_h: HiddenDrift | None) -> list[Sequence[Any]]:
    """Weights (samples, n, d) as those of each sample at each grid point, whose gradients are put together once."""
    if not w.is_contiguous():  # one sample seen many times
        return [sample.unbind() for sample in w.unbind()]
    flat, n = w.flatten(0, 1), w.shape[1]
    trained = w.requires_grad and torch.is_grad_enabled()
    rows = f_h.parts(flat) if trained and isinstance(f_h, Functional) else flat.unbind()
    return [rows[i : i + n] for i in range(0, len(rows), n)]


def _stacked(legs: list[list[Leg]]) -> list[Leg]:
    """The steps of all samples side by side, weights (samples, d)."""
    return [
        column[0]._replace(w0=torch.stack([leg.w0 for leg in column]), w1=torch.stack([leg.w1 for leg in column]))
        for column in zip(*legs, strict=True)
    ]
