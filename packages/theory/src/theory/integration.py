"""What all other claims rely on: weights are integrated up to t = 1, the KL has its 1/2, and w_D has no noise.

    dw = f_q dt + 1[t1 < t < t2] P_S g P_S dB,      KL = E 1/2 int_{t1}^{t2} |g_SS^{-1} (f_q - f_p)_S|^2 dt

Each solver is compared with closed forms of its own chain, w_{k+1} = w_k + f_q dt + sigma dB_k, so the tolerances only
cover rounding. The code published with the paper integrates its weights over half of [0, 1] and omits the 1/2 of the
KL, and the two mistakes hide each other. We therefore measure the final time, the KL and the gradients separately.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from sdeweights import Brownian, Cut, OrnsteinUhlenbeck, WeightPath, WeightProcess, flow
from sdeweights.diffusion import Field
from theory import closed_forms, figure_paths
from theory.certificate import Certificate
from theory.closed_forms import MU, SIGMA, SIGMAS, THETA, D
from theory.equations import SOLVERS, affine_process, random_process, sample
from theory.statistics import STANDARD_ERRORS, mean_and_variance, sup

CLAIM = "Integration"
PATHS = 20_000
CUTS = (
    Cut.full(), Cut.none(), Cut.ode_first(0.1), Cut.sde_first(0.7), Cut.vertical(0.3, 0.6), Cut.horizontal([1, 2]),
    Cut.both(0.3, 0.6, [0, 3]),
)  # fmt: skip
GRIDS = (3, 29, 30, 60)
CASES = tuple(itertools.product(CUTS, GRIDS))
ROUNDING = "rounding of 60 steps"


def spread_on_D(path: WeightPath, cut: Cut) -> float:
    """The largest difference between samples of a path in the deterministic coordinates."""
    w_D = path.w[..., cut.complement(path.d)]
    return float((w_D.amax(0) - w_D.amin(0)).abs().max()) if w_D.numel() else 0.0


def uncoupled_but_undeclared(cut: Cut, seed: int) -> WeightPath:
    """A path on a horizontal cut, with a joint drift that does not mix: all weights are integrated together."""
    drift: Field = lambda t, w: torch.sin(w) + t  # noqa: E731
    process = WeightProcess(torch.zeros(D, dtype=torch.float64), drift, Brownian(), cut, allow_leak=True)
    return sample(process, 30, 8, "euler", seed)


def coupled_on_D(cut: Cut, seed: int, solver: str = "euler") -> WeightPath:
    """A path with a split drift that mixes coordinates within S and within D."""
    prior = OrnsteinUhlenbeck(sigma=SIGMA)
    return sample(random_process(cut, prior, torch.ones(D, dtype=torch.float64), seed), 30, 8, solver, seed)


def certify(seed: int = 0) -> list[Certificate]:
    """Check the final time, KL, noise and gradients of each solver, then the two figures."""
    return [
        *[certificate for solver in SOLVERS for certificate in _of_solver(seed, solver)],
        _noise_on_D("joint drift that does not mix, euler", uncoupled_but_undeclared, seed),
        *figure_paths.certify(seed, PATHS),
    ]


def _of_solver(seed: int, solver: str) -> list[Certificate]:
    return [
        *_constant_drift(seed, solver),
        *_mean_reversion(seed, solver),
        *_theta_3_against_theta_1(seed, solver),
        _noise_on_D(f"split drift, {solver}", partial(coupled_on_D, solver=solver), seed),
    ]


def _exact(statement: str, solver: str, gaps: Sequence[float]) -> Certificate:
    return Certificate(CLAIM, f"{statement}, worst, {solver}", max(gaps), "==", 0, 1e-12, ROUNDING)


def _constant_drift(seed: int, solver: str) -> list[Certificate]:
    """w_1 = 1 + sigma B, the KL is 1/2 sum_S (1 / sigma)^2 (t2 - t1), and d KL / d drift is twice the KL."""
    # one sigma for all coordinates, or one per coordinate
    values: tuple[float | Tensor, ...] = (SIGMA, SIGMAS, SIGMA, SIGMAS)
    sigmas = dict(zip(GRIDS, values, strict=True))
    driven = [closed_forms.constant_drift(cut, n, solver, sigma=sigmas[n], seed=seed) for cut, n in CASES]
    ends = max((d.path.times[-1] for d in driven), key=lambda end: abs(end - 1))
    h0 = torch.zeros(1, 1, dtype=torch.float64)
    with torch.no_grad():
        hidden = [sup(flow(lambda t, h, w: 1 + 0 * h, h0, d.path) - 1) for d in driven]  # noqa: ARG005
    weights = [sup(d.path.w[:, -1] - closed_forms.end_of_constant_drift(d)) for d in driven]
    # int |u|^2 dt
    energies = [float((1 / d.sigma**2).sum()) * (cut.t2 - cut.t1) for d, (cut, _) in zip(driven, CASES, strict=True)]
    kls = [sup(d.path.kl - energy / 2) for d, energy in zip(driven, energies, strict=True)]
    slopes = [abs(closed_forms.slope_of_kl(d) - energy) for d, energy in zip(driven, energies, strict=True)]
    return [
        Certificate(CLAIM, f"last grid point, worst of {len(CUTS)} cuts x {len(GRIDS)} grids, {solver}", ends, "==", 1),
        _exact("|w_1 - w_0 - 1 - sigma B| for f_q = 1", solver, weights),
        _exact("|h_1 - h_0 - 1| for f_h = 1", solver, hidden),
        _exact("|KL - 1/2 sum_S (gap / sigma)^2 (t2 - t1)|", solver, kls),
        _exact("|dKL/dgap - sum_S gap / sigma^2 (t2 - t1)|", solver, slopes),
    ]


def _mean_reversion(seed: int, solver: str) -> list[Certificate]:
    driven = [closed_forms.mean_reversion(cut, steps, solver, seed) for cut, steps in CASES]
    ends = [sup(d.path.w[:, -1] - closed_forms.end_of_mean_reversion(d)) for d in driven]
    gradients = [torch.autograd.grad(d.path.w[:, -1].mean(0).sum(), d.process.w0)[0] for d in driven]
    slopes = [sup(gradient - closed_forms.decay(d.path)[0]) for gradient, d in zip(gradients, driven, strict=True)]
    return [
        _exact(f"|w_1 - closed form| for theta = {THETA:g}, mu = {MU:g}", solver, ends),
        _exact(f"|dw_1/dw_0 - prod (1 - theta dt)| for theta = {THETA:g}", solver, slopes),
    ]


def _theta_3_against_theta_1(seed: int, solver: str) -> list[Certificate]:
    """OU with theta 3 against OU with theta 1:  E KL = 1/2 (2 / sigma)^2 sum_k E w_k^2 dt  along the Euler chain."""
    steps, dt = 20, 1 / 20
    prior, w0 = OrnsteinUhlenbeck(1.0, 0.0, SIGMA), torch.ones(1, dtype=torch.float64)
    path = sample(affine_process(Cut.full(), prior, w0, matrix=-2.0), steps, PATHS, solver, seed)
    means = [(1 - 3 * dt) ** k for k in range(steps + 1)]
    variances = [SIGMA**2 * dt * sum(mean**2 for mean in means[:k]) for k in range(steps + 1)]
    exact = 0.5 * (2 / SIGMA) ** 2 * dt * sum(m**2 + v for m, v in zip(means[:-1], variances[:-1], strict=True))
    error = STANDARD_ERRORS * float(path.kl.std()) / math.sqrt(PATHS)
    what, why = f"theta = 3 against 1, {steps} steps, {solver}", f"{STANDARD_ERRORS} standard errors of {PATHS} paths"
    return [
        *mean_and_variance(CLAIM, f"w_1, {what}", path.w[:, -1, 0], means[-1], variances[-1]),
        Certificate(CLAIM, f"E KL, {what}", float(path.kl.mean()), "==", exact, error, why),
    ]


def _noise_on_D(drift: str, path: Callable[[Cut, int], WeightPath], seed: int) -> Certificate:
    spread = max(spread_on_D(path(cut, seed), cut) for cut in CUTS if cut.splits(D))
    return Certificate(CLAIM, f"spread of w_D over samples, {drift}", spread, "==", 0)
