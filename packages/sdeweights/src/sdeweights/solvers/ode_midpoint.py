"""Explicit midpoint:  w1 = w + f(t + dt/2, w + f(t, w) dt/2) dt.  Order 2."""

from __future__ import annotations

from typing import final

from torch import Tensor

from sdeweights.diffusion import Field
from sdeweights.solvers.base import OneStepOde


@final
class OdeMidpoint(OneStepOde):
    """Two evaluations a step."""

    order = 2.0

    def step(self, f: Field, t: Tensor, t1: Tensor, dt: float, w: Tensor) -> Tensor:
        """The slope half-way, taken for the whole step."""
        return w + f((t + t1) / 2, w + f(t, w) * (dt / 2)) * dt
