"""The classical Runge-Kutta method.  Order 4."""

from __future__ import annotations

from typing import final

from torch import Tensor

from sdeweights.diffusion import Field
from sdeweights.solvers.base import OneStepOde


@final
class OdeRk4(OneStepOde):
    """Four evaluations a step."""

    order = 4.0

    def step(self, f: Field, t: Tensor, t1: Tensor, dt: float, w: Tensor) -> Tensor:
        """Simpson's weights 1, 2, 2, 1 on four slopes."""
        t_half = (t + t1) / 2
        k1 = f(t, w)
        k2 = f(t_half, w + k1 * (dt / 2))
        k3 = f(t_half, w + k2 * (dt / 2))
        k4 = f(t1, w + k3 * dt)
        return w + (k1 + 2 * (k2 + k3) + k4) * (dt / 6)
