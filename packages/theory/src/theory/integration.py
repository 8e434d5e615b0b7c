"""What every other claim stands on: weights that reach t = 1, a KL with its 1/2, deterministic weights without noise.

    dw = f_q dt + 1[t1 < t < t2] P_S g P_S dB,      KL = E 1/2 int_{t1}^{t2} |g_SS^{-1} (f_q - f_p)_S|^2 dt

against closed forms, those of the paper's Figures 1 and 2 among them. The published code of the paper integrates its
weights over half of [0, 1] and has a KL without its 1/2, which hides the other mistake; so each is measured by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from sdeweights import Brownian, Cut, Prior, SplitDrift, WeightPath, WeightProcess, flow
from sdeweights.diffusion import Field
from sdeweights.testing import TanhDrift, seeded
from theory.certificate import Certificate

CLAIM = "Integration"
FIGURE_1, FIGURE_2 = "Figure 1", "Figure 2"
PATHS = 20_000
LUCK = 4.5  # standard errors; a normal error is larger with probability 7e-6
CUTS = (
    Cut.full(),
    Cut.none(),
    Cut.ode_first(0.1),
    Cut.sde_first(0.7),
    Cut.vertical(0.3, 0.6),
    Cut.horizontal([1, 2]),
    Cut.both(0.3, 0.6, [0, 3]),
)
GRIDS = (3, 29, 30, 60)
D = 4  # weights of the processes below


def constant_drift(cut: Cut, steps: int, sigma: float = 0.5, drift: float = 1.0, seed: int = 0) -> WeightPath:
    """Two paths of dw = drift dt + sigma dB from w0 = 0, against a Brownian prior."""
    f: Field = lambda t, w: drift + 0 * w  # noqa: ARG005, E731
    S = cut.indices(D)
    split = SplitDrift(f, f, S, D) if cut.splits(D) else f
    process = WeightProcess(torch.zeros(D, dtype=torch.float64), split, Brownian(sigma), cut)
    with torch.no_grad():
        return process.sample(steps, 2, generator=seeded(seed))


def figure_1(at_t2: str, samples: int, generator: torch.Generator, steps: int = 500) -> WeightPath:
    """Vertical cut: f_q = cos 20 t outside (0.3, 0.6) and 0 inside, g = 1.

    Exactly: w_0.3 = sin 6 / 20, Var w_1 = 0.3 where w_0.6 is kept and 0 where it is fixed.
    """
    drift: Field = lambda t, w: torch.where((t >= 0.3) & (t < 0.6), 0.0, torch.cos(20 * t)) + 0 * w  # noqa: E731
    process = WeightProcess(torch.zeros(1, dtype=torch.float64), drift, Brownian(), Cut.vertical(0.3, 0.6, at_t2))
    with torch.no_grad():
        # midpoint never looks at the end of a step, where the drift jumps
        return process.sample(steps, samples, generator=generator, ode_solver="midpoint")


def figure_2(separated: bool, samples: int, generator: torch.Generator, steps: int = 100) -> WeightPath:
    """Horizontal cut: f_q = [-w_S, t + w_D], or [-w_S, t + w_D + w_S] where it is not separated; g = [1, 0].

    Exactly: Var w_S(1) = (1 - e^-2) / 2; w_D(1) = e - 2 with variance 0, or sinh(2) / 4 - 1/2 where it leaks.
    """
    leaky: Field = lambda t, w: torch.stack([-w[..., 0], t + w[..., 1] + w[..., 0]], -1)  # noqa: E731
    drift = SplitDrift(lambda t, w: -w, lambda t, w: t + w, [0], 2) if separated else leaky  # noqa: ARG005
    prior = Prior(lambda t, w: 0 * w, 1.0)  # noqa: ARG005
    process = WeightProcess(
        torch.zeros(2, dtype=torch.float64), drift, prior, Cut.horizontal([0]), allow_leak=not separated
    )
    with torch.no_grad():
        return process.sample(steps, samples, generator=generator, solver="sra1", ode_solver="rk4")


def spread_on_D(path: WeightPath, cut: Cut) -> float:
    """How far the samples of a path ever lie apart on the deterministic coordinates."""
    w_D = path.w[..., cut.complement(path.d)]
    return float((w_D.amax(0) - w_D.amin(0)).abs().max()) if w_D.numel() else 0.0


def uncoupled_but_undeclared(cut: Cut, seed: int) -> WeightPath:
    """A horizontal cut whose drift could mix coordinates, and does not: the weights are integrated together."""
    drift: Field = lambda t, w: torch.sin(w) + t  # noqa: E731
    process = WeightProcess(torch.zeros(D, dtype=torch.float64), drift, Brownian(), cut, allow_leak=True)
    with torch.no_grad():
        return process.sample(30, 8, generator=seeded(seed))


def coupled_on_D(cut: Cut, seed: int) -> WeightPath:
    """A split drift that mixes within S and within D."""
    S, rest = cut.indices(D), cut.complement(D)
    drift = SplitDrift(TanhDrift(len(S), seed), TanhDrift(len(rest), seed + 1), S, D)
    process = WeightProcess(torch.ones(D, dtype=torch.float64), drift, Brownian(), cut)
    with torch.no_grad():
        return process.sample(30, 8, generator=seeded(seed))


def certify(seed: int = 0) -> list[Certificate]:
    """Final time, KL and noise on the cuts above; then the two figures."""
    return [
        *_final_time(seed),
        *_kl(seed),
        *_noise(seed),
        *_figure_1(seed),
        *_figure_2(seed),
    ]


def _all(sigma: float, seed: int) -> Iterator[tuple[Cut, WeightPath]]:
    return ((cut, constant_drift(cut, steps, sigma, seed=seed)) for cut in CUTS for steps in GRIDS)


def _final_time(seed: int) -> list[Certificate]:
    paths = [path for _, path in _all(1e-12, seed)]
    ends = max(paths, key=lambda path: abs(path.times[-1] - 1)).times[-1]
    weights = max((float((path.w[:, -1] - 1).abs().max()) for path in paths), default=math.nan)
    h0 = torch.zeros(1, 1, dtype=torch.float64)
    hidden = max(float((flow(lambda t, h, w: 1 + 0 * h, h0, path) - 1).abs().max()) for path in paths)  # noqa: ARG005
    cases = f"{len(CUTS)} cuts x {len(GRIDS)} grids"
    return [
        Certificate(CLAIM, f"last grid point, worst of {cases}", ends, "==", 1),
        Certificate(CLAIM, "|w_1 - w_0 - 1| for f_q = 1, noise 1e-12", weights, "==", 0, 1e-10, "noise and rounding"),
        Certificate(CLAIM, "|h_1 - h_0 - 1| for f_h = 1", hidden, "==", 0, 1e-12, "rounding of 60 additions"),
    ]


def _kl(seed: int) -> list[Certificate]:
    """A drift gap of 1 and sigma = 0.5 cost 1/2 * |S| * 4 * (t2 - t1), on any grid."""
    gaps = []
    for cut, path in _all(0.5, seed):
        exact = 0.5 * len(cut.indices(D)) * 4 * (cut.t2 - cut.t1)
        gaps.append(float((path.kl - exact).abs().max()))
    return [
        Certificate(
            CLAIM,
            "|kl - 1/2 |S| (gap / sigma)^2 (t2 - t1)|, worst",
            max(gaps),
            "==",
            0,
            1e-12,
            "rounding of 60 additions",
        )
    ]


def _noise(seed: int) -> list[Certificate]:
    horizontal = [cut for cut in CUTS if cut.splits(D)]
    apart = max(spread_on_D(coupled_on_D(cut, seed), cut) for cut in horizontal)
    together = max(spread_on_D(uncoupled_but_undeclared(cut, seed), cut) for cut in horizontal)
    return [
        Certificate(CLAIM, "spread of w_D over samples, split drift", apart, "==", 0),
        Certificate(CLAIM, "spread of w_D over samples, joint drift that does not mix", together, "==", 0),
    ]


def mean_and_variance(claim: str, name: str, x: Tensor, mean: float, variance: float) -> list[Certificate]:
    """Two certificates for normal samples x, (n,)."""
    n = len(x)
    luck = f"{LUCK} standard errors of {n} paths"
    return [
        Certificate(claim, f"E {name}", float(x.mean()), "==", mean, LUCK * math.sqrt(variance / n), luck),
        Certificate(claim, f"Var {name}", float(x.var()), "==", variance, LUCK * variance * math.sqrt(2 / n), luck),
    ]


def _figure_1(seed: int) -> list[Certificate]:
    kept, fixed = (figure_1(at_t2, PATHS, seeded(seed)) for at_t2 in ("continue", "fixed"))
    before = kept.w[0, kept.times.index(0.3), 0].item()
    after = (math.sin(20) - math.sin(12)) / 20
    quadrature = "midpoint rule: dt^2 / 24 * 400 * 0.7 = 5e-5"
    return [
        Certificate(FIGURE_1, "w_0.3, before the noise", before, "==", math.sin(6) / 20, 5e-5, quadrature),
        *mean_and_variance(FIGURE_1, "w_1, w_0.6 kept", kept.w[:, -1, 0], math.sin(6) / 20 + after, 0.3),
        Certificate(FIGURE_1, "w_1, w_0.6 fixed", fixed.w[0, -1, 0].item(), "==", after, 5e-5, quadrature),
        Certificate(
            FIGURE_1, "spread of w_1, w_0.6 fixed", float(fixed.w[:, -1].max() - fixed.w[:, -1].min()), "==", 0
        ),
    ]


def _figure_2(seed: int) -> list[Certificate]:
    apart, leaky = (figure_2(separated, PATHS, seeded(seed)) for separated in (True, False))
    w_S, w_D = apart.w[:, -1].unbind(-1)
    return [
        *mean_and_variance(FIGURE_2, "w_S(1)", w_S, 0.0, (1 - math.exp(-2)) / 2),
        Certificate(FIGURE_2, "w_D(1), f_q separated", w_D[0].item(), "==", math.e - 2, 1e-8, "Runge-Kutta, dt = 0.01"),
        Certificate(FIGURE_2, "spread of w_D, f_q separated", spread_on_D(apart, Cut.horizontal([0])), "==", 0),
        *mean_and_variance(
            FIGURE_2, "w_D(1), f_q not separated", leaky.w[:, -1, 1], math.e - 2, math.sinh(2) / 4 - 0.5
        ),
    ]
