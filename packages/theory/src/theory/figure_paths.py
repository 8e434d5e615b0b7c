"""Sample paths of the paper's Figures 1 and 2, compared with closed forms.

Figure 1 is a vertical cut with noise on (0.3, 0.6): weights stay random afterwards unless w_0.6 is fixed. Figure 2 is a
horizontal cut with noise on w_S: w_D stays deterministic only if the drift is separated.

Both figures are integrated with higher-order schemes, since their drifts are not constant during a step. In addition,
each Euler solver integrates both cuts with a drift that it supports, and is compared with the closed form of its chain.
"""

import math

import torch

from sdeweights import Brownian, Cut, Prior, PriorPlus, SplitDrift, WeightPath, WeightProcess
from sdeweights.diffusion import Field
from sdeweights.testing import affine_bottleneck, seeded
from theory.certificate import Certificate
from theory.equations import SOLVERS, affine_process, sample
from theory.statistics import mean_and_variance

FIGURE_1, FIGURE_2 = "Figure 1", "Figure 2"
FEW = 100  # number of paths, for cases in which all paths end at the same point
STEPS = 100  # steps of the Euler solvers: 0.3 and 0.6 are grid points, and every step has length 1/100


def figure_1(at_t2: str, samples: int, generator: torch.Generator, steps: int = 500) -> WeightPath:
    """Vertical cut: f_q = cos 20 t outside (0.3, 0.6) and 0 inside, g = 1.

    Exactly: w_0.3 = sin 6 / 20; Var w_1 = 0.3 if w_0.6 is kept and 0 if it is fixed.
    """
    drift: Field = lambda t, w: torch.where((t >= 0.3) & (t < 0.6), 0.0, torch.cos(20 * t)) + 0 * w  # noqa: E731
    process = WeightProcess(torch.zeros(1, dtype=torch.float64), drift, Brownian(), Cut.vertical(0.3, 0.6, at_t2))
    with torch.no_grad():
        # midpoint never evaluates the end of a step, where the drift jumps
        return process.sample(steps, samples, generator=generator, ode_solver="midpoint")


def figure_2(separated: bool, samples: int, generator: torch.Generator, steps: int = 100) -> WeightPath:
    """Horizontal cut: f_q = [-w_S, t + w_D], or [-w_S, t + w_D + w_S] if it is not separated; g = [1, 0].

    Exactly: Var w_S(1) = (1 - e^-2) / 2; w_D(1) = e - 2 with variance 0, or sinh(2) / 4 - 1/2 if the noise leaks.
    """
    leaky: Field = lambda t, w: torch.stack([-w[..., 0], t + w[..., 1] + w[..., 0]], -1)  # noqa: E731
    drift = SplitDrift(lambda t, w: -w, lambda t, w: t + w, [0], 2) if separated else leaky  # noqa: ARG005
    prior = Prior(lambda t, w: 0 * w, 1.0)  # noqa: ARG005
    zero = torch.zeros(2, dtype=torch.float64)
    process = WeightProcess(zero, drift, prior, Cut.horizontal([0]), allow_leak=not separated)
    with torch.no_grad():
        return process.sample(steps, samples, generator=generator, solver="sra1", ode_solver="rk4")


def polynomial_figure_1(at_t2: str, samples: int, solver: str, seed: int) -> WeightPath:
    """Figure 1 with f_q = 1 - 3 t on all of [0, 1]; the Euler sums of this drift are known exactly."""
    zero = torch.zeros(1, dtype=torch.float64)
    process = affine_process(Cut.vertical(0.3, 0.6, at_t2), Brownian(), zero, constant=1.0, slope=-3.0)
    return sample(process, STEPS, samples, solver, seed)


def euler_sum(a: float, b: float) -> float:
    """Euler's sum of 1 - 3 t over the steps from a to b:  (b - a) (1 - 3 (a + b - dt) / 2)."""
    return (b - a) * (1 - 1.5 * (a + b - 1 / STEPS))


def separated_figure_2(samples: int, solver: str, seed: int) -> WeightPath:
    """Figure 2 with the separated drift of `figure_2`, written as a pair of bottleneck nets."""
    prior = Brownian()
    nets = SplitDrift(affine_bottleneck(1, matrix=-1.0), affine_bottleneck(1, slope=1.0, matrix=1.0), [0], 2)
    process = WeightProcess(torch.zeros(2, dtype=torch.float64), PriorPlus(prior, nets), prior, Cut.horizontal([0]))
    return sample(process, STEPS, samples, solver, seed)


def certify(seed: int, paths: int) -> list[Certificate]:
    """Check both figures as in the paper, then both figures with each Euler solver."""
    return [
        *_figure_1(seed, paths),
        *_figure_2(seed, paths),
        *[certificate for solver in SOLVERS for certificate in _euler_figure_1(seed, paths, solver)],
        *[certificate for solver in SOLVERS for certificate in _euler_figure_2(seed, paths, solver)],
    ]


def _spread(path: WeightPath, coordinate: int = 0) -> float:
    end = path.w[:, -1, coordinate]
    return float(end.max() - end.min())


def _figure_1(seed: int, paths: int) -> list[Certificate]:
    kept, fixed = figure_1("continue", paths, seeded(seed)), figure_1("fixed", FEW, seeded(seed))
    before = kept.w[0, kept.times.index(0.3), 0].item()
    after = (math.sin(20) - math.sin(12)) / 20
    quadrature = "midpoint rule: dt^2 / 24 * 400 * 0.7 = 5e-5"
    return [
        Certificate(FIGURE_1, "w_0.3, before the noise", before, "==", math.sin(6) / 20, 5e-5, quadrature),
        *mean_and_variance(FIGURE_1, "w_1, w_0.6 kept", kept.w[:, -1, 0], math.sin(6) / 20 + after, 0.3),
        Certificate(FIGURE_1, "w_1, w_0.6 fixed", fixed.w[0, -1, 0].item(), "==", after, 5e-5, quadrature),
        Certificate(FIGURE_1, "spread of w_1, w_0.6 fixed", _spread(fixed), "==", 0),
    ]


def _euler_figure_1(seed: int, paths: int, solver: str) -> list[Certificate]:
    kept, fixed = polynomial_figure_1("continue", paths, solver, seed), polynomial_figure_1("fixed", FEW, solver, seed)
    before, after = kept.w[0, kept.times.index(0.3), 0].item(), fixed.w[0, -1, 0].item()
    what = f"f_q = 1 - 3 t, {solver}"
    why = f"rounding of {STEPS} steps"
    energy = sum((1 - 3 * k / STEPS) ** 2 / STEPS for k in range(30, 60))
    return [
        Certificate(FIGURE_1, f"w_0.3, before the noise, {what}", before, "==", euler_sum(0, 0.3), 1e-12, why),
        *mean_and_variance(FIGURE_1, f"w_1, w_0.6 kept, {what}", kept.w[:, -1, 0], euler_sum(0, 1), 0.3),
        Certificate(FIGURE_1, f"w_1, w_0.6 fixed, {what}", after, "==", euler_sum(0.6, 1), 1e-12, why),
        Certificate(FIGURE_1, f"spread of w_1, w_0.6 fixed, {what}", _spread(fixed), "==", 0),
        Certificate(FIGURE_1, f"KL, {what}", float(kept.kl.max()), "==", energy / 2, 1e-12, why),
    ]


def _figure_2(seed: int, paths: int) -> list[Certificate]:
    apart, leaky = (figure_2(separated, paths, seeded(seed)) for separated in (True, False))
    w_S, w_D = apart.w[:, -1].unbind(-1)
    leaked = math.sinh(2) / 4 - 0.5
    return [
        *mean_and_variance(FIGURE_2, "w_S(1)", w_S, 0.0, (1 - math.exp(-2)) / 2),
        Certificate(FIGURE_2, "w_D(1), f_q separated", w_D[0].item(), "==", math.e - 2, 1e-8, "Runge-Kutta, dt = 0.01"),
        Certificate(FIGURE_2, "spread of w_D, f_q separated", _spread(apart, 1), "==", 0),
        *mean_and_variance(FIGURE_2, "w_D(1), f_q not separated", leaky.w[:, -1, 1], math.e - 2, leaked),
    ]


def _euler_figure_2(seed: int, paths: int, solver: str) -> list[Certificate]:
    """Euler's chains: Var w_S = (1 - (1 - dt)^2n) / (2 - dt), and w_D + t + 1 grows by the factor 1 + dt per step."""
    path = separated_figure_2(paths, solver, seed)
    w_S, w_D = path.w[:, -1].unbind(-1)
    dt = 1 / STEPS
    exact, why = (1 + dt) ** STEPS - 2, f"rounding of {STEPS} steps"
    return [
        *mean_and_variance(FIGURE_2, f"w_S(1), {solver}", w_S, 0.0, (1 - (1 - dt) ** (2 * STEPS)) / (2 - dt)),
        Certificate(FIGURE_2, f"w_D(1), f_q separated, {solver}", w_D[0].item(), "==", exact, 1e-12, why),
        Certificate(FIGURE_2, f"spread of w_D, f_q separated, {solver}", _spread(path, 1), "==", 0),
    ]
