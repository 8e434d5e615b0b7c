"""Explicit Runge-Kutta schemes:  k_i = f(c_i, x + dt sum_j a_ij k_j),   x1 = x + dt sum_i b_i k_i.

The same schemes integrate the weights, dw = f(t, w) dt, and the hidden state along them, dh = f(t, h, w) dt. The other
arguments of f are given at both ends of a step, and interpolated linearly at the fraction c_i of the step.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sdeweights.diffusion import Field
from sdeweights.functional import slope

Ends = tuple[Any, Any]  # an argument of f at both ends of a step


@dataclass(frozen=True)
class RungeKutta:
    """An explicit scheme, given by its coefficients."""

    order: float  # of convergence
    c: tuple[float, ...]  # fractions of the step at which f is evaluated
    a: tuple[tuple[float, ...], ...]  # for each stage, the coefficients of the earlier stages
    b: tuple[float, ...]  # coefficients of the stages in the final step

    def step(self, f: Callable[..., Tensor], x: Tensor, dt: float, t: Ends, *along: Ends) -> Tensor:
        """Take one step of length dt of  dx = f(t, x, *along) dt,  and return x at its end."""
        slopes: list[Tensor] = []
        for c, row in zip(self.c, self.a, strict=True):
            at = _moved(x, slopes, row, dt)
            slopes.append(slope(f, between(*t, c), at, *(between(*ends, c) for ends in along)))
        return _moved(x, slopes, self.b, dt)

    def solve(self, f: Field, w: Tensor, times: Sequence[float]) -> Tensor:
        """Solve dw = f(t, w) dt from w, (s, d), and return the states at all `times`, (s, n + 1, d)."""
        states = [w]
        ts = torch.tensor(times, dtype=w.dtype, device=w.device).unbind()
        for (t0, t1), (start, stop) in zip(itertools.pairwise(ts), itertools.pairwise(times), strict=True):
            states.append(self.step(f, states[-1], stop - start, (t0, t1)))
        return torch.stack(states, 1)


def between(x0: Any, x1: Any, c: float) -> Any:
    """Linear interpolation; returns x0 and x1 themselves at c = 0 and c = 1."""
    return x0 if c == 0 else x1 if c == 1 else (x0 + x1) / 2 if c == 0.5 else torch.lerp(x0, x1, c)


def _moved(x: Tensor, slopes: Sequence[Tensor], weights: Sequence[float], dt: float) -> Tensor:
    """x + dt sum_i weights_i slopes_i."""
    for k, weight in zip(slopes, weights, strict=True):
        x = x + k * (weight * dt) if weight else x
    return x


EULER = RungeKutta(1.0, (0.0,), ((),), (1.0,))
MIDPOINT = RungeKutta(2.0, (0.0, 0.5), ((), (0.5,)), (0.0, 1.0))
RK4 = RungeKutta(4.0, (0.0, 0.5, 0.5, 1.0), ((), (0.5,), (0.0, 0.5), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6))
RUNGE_KUTTA = {"euler": EULER, "midpoint": MIDPOINT, "rk4": RK4}
