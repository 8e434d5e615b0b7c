"""SRA1 of Roessler (2010), strong order 1.5 for additive noise, with Z = int (B - B(t)) ds over the step:

w^ = w + 3/4 f dt + 3/2 g(t1) Z / dt
w1 = w + (1/3 f(t, w) + 2/3 f(t + 3/4 dt, w^)) dt + g(t1) (dB - Z / dt) + g(t) Z / dt
"""

from typing import final

from torch import Tensor

from sdeweights.solvers.base import OneStepSde, Sde, Step


@final
class Sra1(OneStepSde):
    """Two drift evaluations per step and two normals per step and coordinate; g may depend on t but not on w."""

    noises = 2

    def order(self, additive: bool) -> float:
        return 1.5 if additive else float("nan")

    def check(self, sde: Sde, t: Tensor, w: Tensor) -> None:  # noqa: ARG002 - `sde.additive` is enough
        """Raise ValueError for noise that depends on the state."""
        if not sde.additive:
            raise ValueError("expected additive noise for sra1, got a diffusion that is computed from w")

    def step(self, sde: Sde, s: Step) -> Tensor:
        """One stage at three quarters of the step."""
        if s.Z is None:
            raise ValueError("expected increments with time integrals (noises=2) for sra1, got Z=None")
        d = s.w.shape[-1]
        g1 = sde.diffusion(s.t1, s.w)
        mean = s.Z / s.dt
        stage = s.w + 0.75 * s.f * s.dt + 1.5 * sde.push(g1, mean, d)
        f_stage = sde.drift(s.t + 0.75 * (s.t1 - s.t), stage)
        noise = sde.push(g1, s.dB - mean, d) + sde.push(s.g, mean, d)
        return s.w + (s.f + 2 * f_stage) / 3 * s.dt + noise
