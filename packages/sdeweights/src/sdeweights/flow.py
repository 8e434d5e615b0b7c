"""Hidden states along weight paths, eq. (9):  dh = f_h(t, h; w_t) dt  on all of [0, 1].

While the weights of all samples agree, their hidden states do too, so this shared prefix is computed only once.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from sdeweights.errors import NonFiniteState, norm
from sdeweights.functional import Functional, HiddenDrift, OverSamples, as_hidden_drift
from sdeweights.gradients import MODES
from sdeweights.grid import as_float
from sdeweights.hidden import SCHEMES, HiddenScheme, PathStep, ReversibleScheme, State
from sdeweights.path import WeightPath
from sdeweights.solvers.torchdiffeq_adapter import Torchdiffeq


class Prefix(NamedTuple):
    """The part of a flow that all weight samples share: the first `steps` steps.

    Attributes:
        state: state of the scheme after these steps; its first tensor is h, (batch, ...).
        steps: number of steps.
    """

    state: State
    steps: int


def flow(
    f_h: HiddenDrift | nn.Module,
    h0: Tensor | Prefix,
    path: WeightPath,
    method: str | None = None,
    gradient: str = "backprop",
    *,
    per_sample: bool | None = None,
    vectorize: bool = False,
) -> Tensor:
    """Hidden states at t = 1 for every sample of a path: (samples, batch, ...).

    Args:
        f_h: f_h(t, h, w) for one sample, with h (batch, ...) and w (d,); or a module of (h) or (t, h), which is called
            with w in place of its parameters.
        h0: (batch, ...), or (samples, batch, ...) with one initial state per sample; or a `Prefix` returned by
            `shared_prefix` for a path that agrees with this one on its steps.
        path: weights.
        method: "euler", "euler-mean", "euler-right" (weights at the left end of a step, the mean of both ends, or at
            the right end), "midpoint", "rk4", "reversible_heun", one step each between grid points, or
            "torchdiffeq:dopri5" and the like (with backprop only). The default is "euler", or "reversible_heun" with
            the adjoint; the adjoint accepts no other method, since only this one can recompute its states backward.
        gradient: "backprop", "checkpoint" or "adjoint"; see `sdeweights.gradients`.
        per_sample: whether h0 has a sample axis. By default it does not, and an h0 whose first axis is as long as the
            number of samples, if there are at least two, is a ValueError: it may be a batch or one start per sample.
            Pass it if a batch may be as large as the number of samples.
        vectorize: integrate all samples at once with `torch.vmap` instead of looping over them.

    Example: for f_h(t, h, w) = w h with w = 1 throughout, Euler with n steps gives (1 + 1/n)^n h0.
    """
    _check_start(h0.state[0] if isinstance(h0, Prefix) else h0, path)
    run = _runner(f_h, path, method, gradient, vectorize)
    if isinstance(h0, Tensor) and _has_samples(h0, path, per_sample):
        return run.finite([run.start(i, h) for i, h in enumerate(h0)], 0)
    prefix = h0 if isinstance(h0, Prefix) else run.prefix(h0)
    if prefix.steps == 0 and path.shared < 0:  # the first state of a scheme may depend on w_0
        return run.finite([run.start(i, prefix.state[0]) for i in range(path.samples)], 0)
    return run.finite([prefix.state] * path.samples, prefix.steps)


def shared_prefix(
    f_h: HiddenDrift | nn.Module, h0: Tensor, path: WeightPath, method: str | None = None, gradient: str = "backprop"
) -> Prefix:
    """The steps of `flow` that all samples share, to be reused with this path and others that agree on them.

    An Euler step only uses the weights at its left end, so samples share one step more than with other methods.

    Example: the first nine of ten steps are deterministic.
        >>> from sdeweights import Brownian, Cut, WeightProcess
        >>> path = WeightProcess(torch.zeros(1), lambda t, w: -w, Brownian(), Cut.ode_first(0.1)).sample(10, samples=2)
        >>> f_h, h0 = (lambda t, h, w: w * h), torch.ones(3)
        >>> shared_prefix(f_h, h0, path).steps, shared_prefix(f_h, h0, path, "rk4").steps
        (10, 9)
    """
    _check_start(h0, path)
    return _runner(f_h, path, method, gradient).prefix(h0)


def _check_start(h0: Tensor, path: WeightPath) -> None:
    if not isinstance(path, WeightPath) or not isinstance(h0, Tensor):
        raise ValueError(
            f"expected h0 as a Tensor and path as a WeightPath, got {type(h0).__name__} and {type(path).__name__}"
        )
    same = h0.dtype in (path.w.dtype, torch.bfloat16, torch.float16)  # f_h may compute in a lower precision
    if h0.ndim < 1 or not h0.is_floating_point() or not same or h0.device != path.w.device:
        raise ValueError(
            f"expected h0 of shape (batch, ...), {path.w.dtype} on {path.w.device} like the path, "
            f"got {tuple(h0.shape)}, {h0.dtype} on {h0.device}"
        )


def _has_samples(h0: Tensor, path: WeightPath, per_sample: bool | None) -> bool:
    if per_sample is None and path.samples > 1 and len(h0) == path.samples:
        raise ValueError(
            f"expected per_sample=True or False for h0 of shape {tuple(h0.shape)} and {path.samples} samples, got "
            f"None: it may be a batch of {len(h0)} or a start for each sample"
        )
    if per_sample and (h0.ndim < 2 or len(h0) != path.samples):
        raise ValueError(f"expected h0 of shape ({path.samples}, batch, ...), got {tuple(h0.shape)}")
    return bool(per_sample)


def _runner(
    f_h: HiddenDrift | nn.Module, path: WeightPath, method: str | None, gradient: str, vectorize: bool = False
) -> _Run:
    if gradient not in MODES:
        raise ValueError(f"expected gradient to be one of {', '.join(MODES)}, got {gradient!r}")
    drift = f_h if isinstance(f_h, Functional) else as_hidden_drift(f_h)
    if method is None:
        method = "reversible_heun" if gradient == "adjoint" else "euler"
    if method in SCHEMES:
        if gradient == "adjoint" and not isinstance(SCHEMES[method], ReversibleScheme):
            raise ValueError(
                f'expected method="reversible_heun" with gradient="adjoint", got {method!r}, which cannot recompute '
                'its states backward; gradient="checkpoint" takes any method'
            )
        return _Stepwise(drift, path, method, gradient, vectorize)
    if not isinstance(method, str) or not method.startswith("torchdiffeq:"):
        raise ValueError(f"expected method to be one of {', '.join(SCHEMES)}, torchdiffeq:METHOD, got {method!r}")
    if gradient != "backprop" or vectorize:
        raise ValueError(
            f'expected gradient="backprop" and vectorize=False with {method}, got {gradient!r}, {vectorize}'
        )
    return _Adaptive(drift, path, method)


class _Run(ABC):
    """Integrate h along the samples of a path, in `end` steps."""

    shared: int  # number of steps that all samples share

    def __init__(self, f_h: HiddenDrift, path: WeightPath, method: str) -> None:
        self.f_h, self.path, self.method, self.end = f_h, path, method, path.steps

    def start(self, sample: int, h: Tensor) -> State:  # noqa: ARG002 - for most schemes the state is (h,)
        """The state before the first step."""
        return (h,)

    @abstractmethod
    def between(self, sample: int, state: State, first: int, last: int) -> State:
        """The state at grid point `last`, from that at grid point `first`."""

    def prefix(self, h0: Tensor) -> Prefix:
        """The steps that all samples share."""
        return Prefix(self.between(0, self.start(0, h0), 0, self.shared), self.shared)

    def to_end(self, states: Sequence[State], first: int) -> Tensor:
        """h at t = 1 of every sample, from its state at grid point `first`."""
        ends = [self.between(i, state, first, self.end)[0] for i, state in enumerate(states)]
        if len(ends) == 1:
            return ends[0][None]
        if first == self.end:  # all samples agree
            return ends[0].expand(len(ends), *ends[0].shape)
        return torch.cat(ends).view(len(ends), *ends[0].shape)  # unlike stack, cat keeps the layout of images

    def finite(self, states: Sequence[State], first: int) -> Tensor:
        """`to_end`; raises NonFiniteState if h is not finite."""
        h1 = self.to_end(states, first)
        if not _is_finite(h1.detach()):
            self.explain(states, first)
        return h1

    def explain(self, states: Sequence[State], first: int) -> None:
        """Integrate again, without gradients, to find the step at which the state became non-finite."""
        path, scheme = self.path, SCHEMES.get(self.method, SCHEMES["euler"])
        with torch.no_grad():
            for i, (steps, state) in enumerate(zip(steps_of(path, scheme.fraction), states, strict=True)):
                for k, step in enumerate(steps[first:], first):
                    before, state = state, scheme.forward(self.f_h, step, state)
                    if not bool(torch.isfinite(state[0]).all()):
                        raise NonFiniteState(
                            f"h became non-finite in sample {i}, {_phase(path, k)}step {k + 1} of {path.steps}, "
                            f"t={path.times[k + 1]:.6g}; norm of h one step before: {norm(before[0].flatten()):.6g}, "
                            f"norm of w: {norm(step.w0):.6g}"
                        )
        raise NonFiniteState(f"h became non-finite with {self.method}; largest norm of w: {norm(path.w):.6g}")


@final
class _Stepwise(_Run):
    """One step between grid points."""

    def __init__(self, f_h: HiddenDrift, path: WeightPath, method: str, gradient: str, vectorize: bool) -> None:
        super().__init__(f_h, path, method)
        self.scheme, self.mode, self.vectorize = SCHEMES[method], MODES[gradient], vectorize
        self.shared = shared_steps(path, self.scheme)
        self.steps = steps_of(path, self.scheme.fraction, None if vectorize else f_h)

    def start(self, sample: int, h: Tensor) -> State:
        return self.scheme.start(self.f_h, self.steps[sample][0], h)

    def between(self, sample: int, state: State, first: int, last: int) -> State:
        return self.mode(self.f_h, self.scheme, self.steps[sample][first:last], state)

    def to_end(self, states: Sequence[State], first: int) -> Tensor:
        if not self.vectorize or first == self.end:
            return super().to_end(states, first)
        stacked = tuple(torch.stack(parts) for parts in zip(*states, strict=True))
        return self.mode(OverSamples(self.f_h), self.scheme, _stacked(self.steps)[first:], stacked)[0]


@final
class _Adaptive(_Run):
    """Steps chosen by a method of torchdiffeq, called separately on each interval between jumps of the weights."""

    def __init__(self, f_h: HiddenDrift, path: WeightPath, method: str) -> None:
        super().__init__(f_h, path, method)
        self.solver = Torchdiffeq(method.partition(":")[2])
        self.shared = max(path.shared, 0)

    def between(self, sample: int, state: State, first: int, last: int) -> State:
        reset = self.path.reset
        inside = [] if reset is None or not first < reset < last else [reset]
        for a, b in itertools.pairwise([first, *inside, last]):
            state = (self._piece(self.path[sample], state[0], a, b),) if a < b else state
        return state

    def _piece(self, path: WeightPath, h: Tensor, first: int, last: int) -> Tensor:
        end = path.times[last]

        def field(t: Tensor, h: Tensor) -> Tensor:
            time = min(max(as_float(t), path.times[first]), end)
            return self.f_h(t, h, path.at(time, left=time == end)[0])

        return self.solver.states(field, h, (path.times[first], end))[-1]


def _is_finite(h: Tensor) -> bool:
    """Whether all values are finite: a single pass in memory order, ten times faster than `torch.isfinite`."""
    in_memory_order = h.permute(sorted(range(h.ndim), key=h.stride, reverse=True))
    return h.numel() == 0 or all(math.isfinite(end.item()) for end in in_memory_order.aminmax())


def _phase(path: WeightPath, k: int) -> str:
    """The phase of step k in words, if the path records its phases."""
    return next((f"{p.kind} phase ({p.start:g}, {p.stop:g}), " for p in path.phases if p.first <= k < p.last), "")


def shared_steps(path: WeightPath, scheme: HiddenScheme) -> int:
    """Number of steps that all samples share; at fraction 0, a step only uses the weights at its left end."""
    return min(max(path.shared + (scheme.fraction == 0), 0), path.steps)


def steps_of(path: WeightPath, fraction: float | None, f_h: HiddenDrift | None = None) -> list[list[PathStep]]:
    """The steps of every sample; with a fraction, time and weights of a step are those at that fraction of it.

    If `f_h` is given too, they are in the form that is fastest for it.
    """
    ts, reset, steps = path.ts.unbind(), path.reset, range(path.steps)
    starts = ts if not fraction else torch.lerp(path.ts[:-1], path.ts[1:], fraction).unbind()
    dts = [b - a for a, b in itertools.pairwise(path.times)]
    left, right = _ends(path) if fraction is None else (_rows(_inside(path, fraction), f_h),) * 2
    return [
        [PathStep(starts[k], ts[k + 1], dts[k], w0[k], w1[k], k == reset, k + 1 == reset) for k in steps]
        for w0, w1 in zip(left, right, strict=True)
    ]


def _ends(path: WeightPath) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    """Weights of each sample at the left and at the right end of every step."""
    left = [list(w.unbind()) for w in path.w.unbind()]
    right = [w[1:] for w in left]
    if path.reset is not None and path.after_reset is not None:
        for w, after in zip(left, path.after_reset.unbind(), strict=True):
            w[path.reset] = after
    return left, right


def _inside(path: WeightPath, fraction: float) -> Tensor:
    """Weights at a fraction of every step, (samples, steps, d); at 0 also those at t = 1, which saves a copy."""
    left, k = path.w, path.reset
    if k is not None and path.after_reset is not None and fraction < 1:
        left = torch.cat([left[:, :k], path.after_reset[:, None], left[:, k + 1 :]], 1)
    return left if fraction == 0 else torch.lerp(left[:, :-1], path.w[:, 1:], fraction)


def _rows(w: Tensor, f_h: HiddenDrift | None) -> list[Sequence[Any]]:
    """Weights (samples, n, d) of each step of each sample; their gradients are assembled once, not per row."""
    if not isinstance(f_h, Functional) or not (w.requires_grad and torch.is_grad_enabled()):
        return [sample.unbind() for sample in w.unbind()]
    rows, n = f_h.parts(w.flatten(0, 1)), w.shape[1]
    return [rows[i : i + n] for i in range(0, len(rows), n)]


def _stacked(steps: list[list[PathStep]]) -> list[PathStep]:
    """The steps of all samples at once, weights (samples, d)."""
    return [
        column[0]._replace(w0=torch.stack([s.w0 for s in column]), w1=torch.stack([s.w1 for s in column]))
        for column in zip(*steps, strict=True)
    ]
