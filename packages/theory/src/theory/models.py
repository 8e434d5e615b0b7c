"""Random models of Theorem 4.1: d_h = d_x, a(x) = x, and f_h, f_q, g_p within its assumptions."""

from typing import NamedTuple

import torch
from torch import Tensor

from sdeweights import Cut, Field, Functional, OrnsteinUhlenbeck, Prior, WeightPath, WeightProcess, flow
from sdeweights.testing import drift_for, seeded
from theory.equations import random_process
from theory.fields import LipschitzNet, step_condition

CUTS = (
    Cut.full(), Cut.vertical(0.3, 0.6), Cut.sde_first(0.5, at_t2="fixed"), Cut.ode_first(0.25), Cut.horizontal(0.5),
    Cut.both(0.25, 0.75, 0.5, at_t2="learned"),
)  # fmt: skip


class Model(NamedTuple):
    """A hidden drift, its weight process, and the solver for that process."""

    f_h: Functional
    process: WeightProcess
    solver: str = "euler"

    def paths(self, samples: int, generator: torch.Generator, steps: int = 32) -> WeightPath:
        """Sample weight paths; raises ValueError if an Euler step of f_h along them may not be a homeomorphism."""
        with torch.no_grad():
            path = self.process.sample(steps, samples, generator=generator, solver=self.solver, ode_solver=self.solver)
        worst = step_condition(self.f_h, path)
        if worst >= 1:
            raise ValueError(f"expected dt * Lip < 1, got {worst:.3g}; take more than {steps} steps")
        return path

    def images(self, x: Tensor, path: WeightPath) -> Tensor:
        """psi_1(omega, x) for every sample of a path, x of shape (n, d): (samples, n, d)."""
        with torch.no_grad():
            return flow(self.f_h, x, path, per_sample=False)


def random_model(
    d: int, seed: int, *, cut: Cut | None = None, cap: float = 12.0, width: int = 8, sigma: float = 0.5
) -> Model:
    """A model with random w0 and f_q, Lip f_h <= cap, state-dependent noise, and a random cut unless one is given."""
    f_h = Functional(LipschitzNet(d, width, cap))
    w0 = torch.randn(f_h.d, generator=seeded(seed), dtype=torch.float64)
    chosen = CUTS[seed % len(CUTS)] if cut is None else cut
    g: Field = lambda t, w: sigma * (1 + torch.sin(w + t) / 2)  # noqa: E731 - Lipschitz in w, bounded, never 0
    prior = Prior(lambda t, w: -w, g, coordinatewise=True)  # noqa: ARG005
    return Model(f_h, WeightProcess(w0, drift_for(chosen, f_h.d, seed), prior, chosen))


def random_bottleneck_model(d: int, seed: int, solver: str) -> Model:
    """The random model with the drift and constant noise that every Euler solver supports."""
    f_h, process, _ = random_model(d, seed)
    prior = OrnsteinUhlenbeck(sigma=0.5)
    return Model(f_h, random_process(process.cut, prior, process.w0.detach(), seed), solver)
