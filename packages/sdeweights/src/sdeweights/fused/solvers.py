"""Fused Euler-Maruyama and Euler: the results of the plain schemes up to rounding, at about half the cost.

They only support the drift `PriorPlus(prior, BottleneckDrift)` and raise ValueError for any other. They read the
parameters of the drift directly, so module hooks are not called and autocast does not apply. Only first derivatives
are available.
"""

from collections.abc import Sequence
from typing import final

from torch import Tensor

from sdeweights.brownian import Increments
from sdeweights.diffusion import Field
from sdeweights.fused.equation import Equation
from sdeweights.fused.gradients import integrate
from sdeweights.solvers.base import Counted, Sde, Solution


@final
class FusedEuler:
    """w1 = w + f dt + sigma dB for the paper's drift and a constant sigma: one number, or one per coordinate."""

    noises = 1

    def order(self, additive: bool) -> float:
        """Strong order."""
        return 1.0 if additive else float("nan")

    def check(self, sde: Sde, t: Tensor, w: Tensor) -> None:
        """Do nothing: `solve` raises ValueError if the equation does not have the paper's form."""

    def solve(self, sde: Sde, w: Tensor, times: Sequence[float], noise: Increments) -> Solution:
        """States at all `times`, and the KL."""
        if noise.dB.requires_grad:
            raise ValueError("expected noise without gradients for fused-euler, got noise that requires them")
        states, kl = integrate(Equation.stochastic(sde, w.shape[-1]), w, times, noise.dB)
        _count(sde.drift, times)
        return Solution(states, kl)


@final
class FusedOdeEuler:
    """w1 = w + f dt for the paper's drift."""

    order = 1.0

    def solve(self, f: Field, w: Tensor, times: Sequence[float]) -> Tensor:
        """States at all `times`."""
        states, _ = integrate(Equation.deterministic(f), w, times, None)
        _count(f, times)
        return states


def _count(drift: Field, times: Sequence[float]) -> None:
    if isinstance(drift, Counted):
        drift.calls += len(times) - 1
