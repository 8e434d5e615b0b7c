"""Milstein:  w1 = w + f dt + g dB + 1/2 g g' (dB^2 - dt).  Strong order 1 for additive and for diagonal noise."""

from typing import final

from torch import Tensor

from sdeweights.diffusion import Kind, own_slope, require_elementwise
from sdeweights.solvers.base import OneStepSde, Sde, Step


@final
class Milstein(OneStepSde):
    """Ito-Milstein for diffusions whose g_i depends only on w_i; other diffusions would need Levy areas."""

    def order(self, additive: bool) -> float:  # noqa: ARG002 - the same for both
        return 1.0

    def check(self, sde: Sde, t: Tensor, w: Tensor) -> None:
        """Raise ValueError for state-dependent noise that mixes coordinates."""
        if sde.additive:
            return
        if sde.kind is Kind.DENSE:
            raise ValueError("expected a diagonal diffusion for milstein, got a dense one that depends on w")
        require_elementwise(sde.diffusion, t, w, sde.noisy, "milstein")

    def step(self, sde: Sde, s: Step) -> Tensor:
        """w1 = w + f dt + g dB + 1/2 g g' (dB^2 - dt)."""
        d = s.w.shape[-1]
        w1 = s.w + s.f * s.dt + sde.push(s.g, s.dB, d)
        if sde.additive:
            return w1
        slope = own_slope(sde.diffusion, s.t, s.w, sde.noisy)
        return w1 + sde.spread(0.5 * s.g * slope * (s.dB**2 - s.dt), d)
