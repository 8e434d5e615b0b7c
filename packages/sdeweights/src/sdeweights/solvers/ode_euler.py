"""Euler:  w1 = w + f(t, w) dt.  Order 1."""

from __future__ import annotations

from typing import final

from torch import Tensor

from sdeweights.diffusion import Field
from sdeweights.solvers.base import OneStepOde


@final
class OdeEuler(OneStepOde):
    """A residual network: one layer a step."""

    order = 1.0

    def step(self, f: Field, t: Tensor, t1: Tensor, dt: float, w: Tensor) -> Tensor:  # noqa: ARG002 - left point only
        """w1 = w + f dt."""
        return w + f(t, w) * dt
