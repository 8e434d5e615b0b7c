"""Euler-Maruyama:  w1 = w + f dt + g dB.  Strong order 1 for additive noise, 1/2 otherwise."""

from typing import final

from torch import Tensor

from sdeweights.solvers.base import OneStepSde, Sde, Step


@final
class EulerMaruyama(OneStepSde):
    """The scheme of the paper; accepts any diffusion."""

    def order(self, additive: bool) -> float:
        return 1.0 if additive else 0.5

    def step(self, sde: Sde, s: Step) -> Tensor:
        """w1 = w + f dt + g dB."""
        return s.w + s.f * s.dt + sde.push(s.g, s.dB, s.w.shape[-1])
