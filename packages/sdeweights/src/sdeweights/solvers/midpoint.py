"""Stratonovich midpoint: uses the slope at the midpoint, with the drift corrected from Ito to Stratonovich.

w^ = w + 1/2 (f~ dt + g dB)
w1 = w + f~(t + dt/2, w^) dt + g(t + dt/2, w^) dB,     f~ = f - 1/2 g g'
"""

from typing import final

from torch import Tensor

from sdeweights.solvers import stratonovich
from sdeweights.solvers.base import OneStepSde, Sde, Step


@final
class Midpoint(OneStepSde):
    """Strong order 1 for additive and for diagonal (or otherwise commutative) noise; 1/2 for other dense noise."""

    def order(self, additive: bool) -> float:  # noqa: ARG002 - the same for both
        return 1.0

    def check(self, sde: Sde, t: Tensor, w: Tensor) -> None:
        """Raise ValueError for diagonal noise that mixes coordinates."""
        stratonovich.require_correctable(sde, t, w, "midpoint")

    def step(self, sde: Sde, s: Step) -> Tensor:
        """A half step to find the slope, then the whole step along it."""
        d = s.w.shape[-1]
        f = s.f - sde.correction(s.t, s.w)
        half = s.w + 0.5 * (f * s.dt + sde.push(s.g, s.dB, d))
        t_half = (s.t + s.t1) / 2
        return s.w + stratonovich.drift(sde, t_half, half) * s.dt + sde.push(sde.diffusion(t_half, half), s.dB, d)
