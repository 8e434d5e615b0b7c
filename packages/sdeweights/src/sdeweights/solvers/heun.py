"""Stratonovich-Heun: uses the mean of the slopes at both ends, with the drift corrected from Ito to Stratonovich.

w^ = w + f~ dt + g dB
w1 = w + 1/2 (f~(t, w) + f~(t1, w^)) dt + 1/2 (g(t, w) + g(t1, w^)) dB,     f~ = f - 1/2 g g'
"""

from typing import final

from torch import Tensor

from sdeweights.solvers import stratonovich
from sdeweights.solvers.base import OneStepSde, Sde, Step


@final
class Heun(OneStepSde):
    """Strong order 1 for additive and for diagonal (or otherwise commutative) noise; 1/2 for other dense noise."""

    def order(self, additive: bool) -> float:  # noqa: ARG002 - the same for both
        return 1.0

    def check(self, sde: Sde, t: Tensor, w: Tensor) -> None:
        """Raise ValueError for diagonal noise that mixes coordinates."""
        stratonovich.require_correctable(sde, t, w, "heun")

    def step(self, sde: Sde, s: Step) -> Tensor:
        """One predictor, one corrector."""
        d = s.w.shape[-1]
        f = s.f - sde.correction(s.t, s.w)
        predicted = s.w + f * s.dt + sde.push(s.g, s.dB, d)
        f1, g1 = stratonovich.drift(sde, s.t1, predicted), sde.diffusion(s.t1, predicted)
        return s.w + 0.5 * (f + f1) * s.dt + 0.5 * (sde.push(s.g, s.dB, d) + sde.push(g1, s.dB, d))
