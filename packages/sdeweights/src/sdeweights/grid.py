"""The time grid of a cut: every phase has an integer number of steps, so 0, t1, t2 and 1 are exact grid points.

Accumulating step lengths would miss t1 and t2 by rounding errors, and truncating, as in `int(steps * ratio)`, would
drop the stochastic phase entirely for a small ratio.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Literal, Self

from torch import Tensor

from sdeweights.cuts import Cut

Span = tuple[Literal["ode", "sde"], float, float]  # kind, start, stop


@dataclass(frozen=True)
class Phase:
    """`steps` equal steps from `start` to `stop`; `first` is the grid index of `start`."""

    kind: Literal["ode", "sde"]
    start: float
    stop: float
    steps: int
    first: int

    @property
    def last(self) -> int:
        """Grid index of `stop`."""
        return self.first + self.steps

    @property
    def times(self) -> tuple[float, ...]:
        """The `steps + 1` grid points; the ends are exactly `start` and `stop`."""
        inner = (self.start + (self.stop - self.start) * (k / self.steps) for k in range(1, self.steps))
        return (self.start, *inner, self.stop)


@dataclass(frozen=True)
class Grid:
    """Consecutive phases from 0 to 1.

    Example:
        >>> grid = Grid.of(Cut.vertical(0.3, 0.6), steps=10)
        >>> [(phase.kind, phase.steps) for phase in grid.phases]
        [('ode', 3), ('sde', 3), ('ode', 4)]
    """

    phases: tuple[Phase, ...]

    @classmethod
    def of(cls, cut: Cut, steps: int, sde_steps: int | None = None) -> Self:
        """Distribute `steps` steps over the phases of a cut in proportion to their lengths, with at least one in each.

        `sde_steps` sets the number of steps in the stochastic phase; the other phases share the rest.
        """
        spans = _spans(cut)
        if isinstance(steps, bool) or not isinstance(steps, Integral):
            raise ValueError(f"expected steps to be an integer, got {steps!r}")
        steps = int(steps)
        if steps < len(spans):
            raise ValueError(f"expected at least {len(spans)} steps, one for each phase of the cut, got {steps}")
        counts = _deal(steps, [stop - start for _, start, stop in spans])
        if sde_steps is not None:
            counts = _deal_around(steps, sde_steps, spans)
        phases: list[Phase] = []
        for (kind, start, stop), count in zip(spans, counts, strict=True):
            phases.append(Phase(kind, start, stop, count, phases[-1].last if phases else 0))
        return cls(tuple(phases))

    @property
    def steps(self) -> int:
        """Total number of steps."""
        return self.phases[-1].last

    @cached_property
    def times(self) -> tuple[float, ...]:
        """All `steps + 1` grid points as Python floats: first 0, last 1."""
        return (0.0, *(t for phase in self.phases for t in phase.times[1:]))

    @cached_property
    def sde(self) -> Phase | None:
        """The stochastic phase, if there is one."""
        return next((phase for phase in self.phases if phase.kind == "sde"), None)

    def checked(self, cut: Cut) -> Self:
        """Return this grid; raise ValueError if its phases do not match the cut."""
        spans, own = _spans(cut), [(phase.kind, phase.start, phase.stop) for phase in self.phases]
        if own != spans:
            raise ValueError(f"expected a grid with the phases {spans} of the cut, got {own}")
        return self

    def refine(self, factor: int) -> Self:
        """Divide every step into `factor` equal steps; the existing grid points stay exactly the same."""
        if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
            raise ValueError(f"expected factor to be an integer >= 1, got {factor!r}")
        phases = (replace(p, steps=p.steps * factor, first=p.first * factor) for p in self.phases)
        return replace(self, phases=tuple(phases))

    def index(self, t: float) -> int:
        """Index of the grid point `t`; raise ValueError if t is not a grid point."""
        return index_of(self.times, t)


def as_float(t: float | Tensor) -> float:
    """A time as a Python float, even if it requires gradients."""
    return float(t.detach()) if isinstance(t, Tensor) else float(t)


def index_of(times: tuple[float, ...], t: float, tolerance: float = 0.0) -> int:
    """Index of the grid point within `tolerance` of `t`."""
    k = min(range(len(times)), key=lambda k: abs(times[k] - t))
    if abs(times[k] - t) > tolerance:
        raise ValueError(f"expected a point of the grid, got t={t}; the nearest is {times[k]}")
    return k


def _spans(cut: Cut) -> list[Span]:
    if cut.deterministic:
        return [("ode", 0.0, 1.0)]
    spans: list[Span] = [("ode", 0.0, cut.t1), ("sde", cut.t1, cut.t2), ("ode", cut.t2, 1.0)]
    return [span for span in spans if span[1] < span[2]]


def _deal(steps: int, lengths: list[float]) -> list[int]:
    """Integers >= 1 that sum to `steps` and are as close as possible to `steps * length` (largest remainders)."""
    quotas = [steps * length for length in lengths]
    counts = [max(1, int(quota)) for quota in quotas]
    while sum(counts) < steps:
        neediest = max(range(len(counts)), key=lambda k: quotas[k] - counts[k])
        counts[neediest] += 1
    while sum(counts) > steps:
        richest = max((k for k in range(len(counts)) if counts[k] > 1), key=lambda k: counts[k] - quotas[k])
        counts[richest] -= 1
    return counts


def _deal_around(steps: int, sde_steps: int, spans: list[Span]) -> list[int]:
    """Step counts with `sde_steps` in the stochastic phase and the rest distributed over the other phases."""
    lengths = [stop - start for kind, start, stop in spans if kind == "ode"]
    most = steps - len(lengths)
    if len(lengths) == len(spans):
        raise ValueError(f"expected no sde_steps for a cut without a stochastic phase, got {sde_steps}")
    if isinstance(sde_steps, bool) or not isinstance(sde_steps, int) or not 1 <= sde_steps <= most:
        raise ValueError(f"expected sde_steps from 1 to {most}, so that every phase has a step, got {sde_steps!r}")
    if not lengths and sde_steps < steps:
        raise ValueError(f"expected sde_steps={steps}, as the whole depth is stochastic, got {sde_steps}")
    others = iter(_deal(steps - sde_steps, [length / sum(lengths) for length in lengths]) if lengths else ())
    return [sde_steps if kind == "sde" else next(others) for kind, _, _ in spans]
