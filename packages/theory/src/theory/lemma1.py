"""Lemma 1: unequal diffusions make the path-space KL infinite.

On a grid of n steps both processes are Markov chains with transitions N(w + f dt, sigma sigma^T dt), and for f_q = f_p

    KL_n = n R,   R = 1/2 (tr M - d - ln det M),   M = (sigma_p sigma_p^T)^{-1} sigma_q sigma_q^T,

in one dimension R = 1/2 (rho^2 - 1 - ln rho^2), rho = sigma_q / sigma_p. For constant coefficients these chains are the
processes observed at n times, so KL >= n R for every n. The paper's condition sigma_q != sigma_p is not quite right:
only sigma sigma^T matters. If sigma_q is -sigma_p, or sigma_p times an orthogonal matrix on the right, then R = 0.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from sdeweights import Cut, OrnsteinUhlenbeck, WeightPath
from sdeweights.diffusion import Field
from sdeweights.testing import seeded
from theory.certificate import Certificate
from theory.equations import SOLVERS, affine_process, random_process, sample
from theory.statistics import STANDARD_ERRORS

CLAIM = "Lemma 1"
STEPS = (8, 16, 32, 64)
PATHS = 8_000  # per solver, diffusion and number of steps


class Chain(NamedTuple):
    """w_{k+1} ~ N(w_k + drift dt, sigma sigma^T dt), with sigma of shape (d, d)."""

    drift: Field
    sigma: Tensor


def rate(sigma_q: Tensor, sigma_p: Tensor) -> float:
    """R, the KL added by each step, however short; sigma_q and sigma_p are (d, d) matrices.

    Example:
        >>> rate(torch.tensor([[2.0]]), torch.tensor([[1.0]]))  # 1/2 (4 - 1 - ln 4)
        0.8068...
    """
    M = torch.linalg.solve(sigma_p @ sigma_p.T, sigma_q @ sigma_q.T)
    return 0.5 * float(torch.trace(M) - len(M) - torch.linalg.slogdet(M).logabsdet)


def log_ratio(path: WeightPath, q: Chain, p: Chain, cut: Cut) -> Tensor:
    """log dq/dp of the transitions of w_S in the window of a cut, (samples,); its mean over paths of q is their KL."""
    first, last = path.times.index(cut.t1), path.times.index(cut.t2)
    S = cut.indices(path.d)
    total = path.w.new_zeros(path.samples)
    for k in range(first, last):
        now, then, dt = path.start(k), path.w[:, k + 1], path.times[k + 1] - path.times[k]
        log_q, log_p = (_log_density(chain, path.ts[k], now, dt, S, then) for chain in (q, p))
        total = total + log_q - log_p
    return total


def _log_density(chain: Chain, t: Tensor, now: Tensor, dt: float, S: Tensor, then: Tensor) -> Tensor:
    """log N(then_S; (now + drift dt)_S, sigma_SS sigma_SS^T dt): (samples,)."""
    sigma = chain.sigma[S][:, S]
    mean = (now + chain.drift(t, now) * dt)[:, S]
    # validation would factorise the same matrix once per sample
    law = MultivariateNormal(mean, sigma @ sigma.T * dt, validate_args=False)
    density: Tensor = law.log_prob(then[:, S])  # type: ignore[no-untyped-call]
    return density


def sampled_log_ratios(
    sigma_q: Tensor, sigma_p: Tensor, steps: int, paths: int, seed: int, solver: str = "euler"
) -> Tensor:
    """log dq/dp along sampled paths of the process with sigma_q, (paths,); both drifts are 1 - t/2 - w."""
    diagonal = torch.equal(sigma_q, torch.diag(sigma_q.diagonal()))
    prior = OrnsteinUhlenbeck(1.0, 0.0, sigma_q.diagonal() if diagonal else sigma_q)
    process = affine_process(Cut.full(), prior, torch.zeros_like(sigma_q[0]), constant=1.0, slope=-0.5)
    path = sample(process, steps, paths, solver, seed)
    with torch.no_grad():
        return log_ratio(path, Chain(process.drift, sigma_q), Chain(process.drift, sigma_p), Cut.full())


def slope_in_steps(
    sigma_q: Tensor, sigma_p: Tensor, steps: Sequence[int], paths: int, seed: int, solver: str = "euler"
) -> tuple[float, float]:
    """Growth of the sampled KL per step: the least-squares slope and its standard error."""
    ratios = [sampled_log_ratios(sigma_q, sigma_p, n, paths, seed + n, solver) for n in steps]
    centre = sum(steps) / len(steps)
    weights = [(n - centre) / sum((m - centre) ** 2 for m in steps) for n in steps]
    value = sum(weight * float(ratio.mean()) for weight, ratio in zip(weights, ratios, strict=True))
    variance = sum(weight**2 * float(ratio.var()) / paths for weight, ratio in zip(weights, ratios, strict=True))
    return value, math.sqrt(variance)


def certify(seed: int = 0) -> list[Certificate]:
    """Check the predicted slopes, the slopes measured with each solver, and unequal diffusions with slope 0."""
    return [
        *[c for rho, known in ((0.9, 0.0103605), (2.0, 0.8068528)) for c in _slopes(rho, known, seed)],
        *[_opposite_signs(seed, solver) for solver in SOLVERS],
        *_orthogonal_factors(seed),
        *[_finite_for_equal_diffusions(seed, solver) for solver in SOLVERS],
    ]


def _slopes(rho: float, known: float, seed: int) -> list[Certificate]:
    one = torch.eye(1, dtype=torch.float64)
    R = rate(rho * one, one)
    rows = [Certificate(CLAIM, f"KL per step, rho = {rho}", R, "==", known, 1e-7, "seven digits given")]
    for solver in SOLVERS:
        slope, error = slope_in_steps(rho * one, one, STEPS, PATHS, seed, solver)
        what = f"slope of KL in the number of steps, rho = {rho}, {PATHS} paths, {solver}"
        why = f"{STANDARD_ERRORS} standard errors"
        rows.append(Certificate(CLAIM, what, slope, "==", R, STANDARD_ERRORS * error, why))
    return rows


def _opposite_signs(seed: int, solver: str) -> Certificate:
    sigma = torch.diag(torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64))
    ratios = sampled_log_ratios(-sigma, sigma, 64, 100, seed, solver)
    what = f"largest |log dq/dp|, sigma_q = -sigma_p, {solver}"
    return Certificate(CLAIM, what, float(ratios.abs().max()), "==", 0)


def _orthogonal_factors(seed: int) -> list[Certificate]:
    """Dense diffusions, which only the plain solver supports."""
    generator = seeded(seed)
    sigma = torch.randn(3, 3, generator=generator, dtype=torch.float64) + 2 * torch.eye(3, dtype=torch.float64)
    R = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    left = rate(R @ sigma, sigma)
    rotated = float(sampled_log_ratios(sigma @ R, sigma, 64, 100, seed).abs().max())
    what, why = "largest |log dq/dp|, sigma_q = sigma_p R, R orthogonal, euler", "rounding of 64 log-densities"
    return [
        Certificate(CLAIM, what, rotated, "==", 0, 1e-9, why),
        Certificate(CLAIM, "KL per step, sigma_q = R sigma_p: not 0, R is on the left", left, ">=", 0.01),
    ]


def _finite_for_equal_diffusions(seed: int, solver: str) -> Certificate:
    """If both processes have the same diffusion, log dq/dp = path.kl + int u dB for every path, on any grid."""
    sigma, cut = torch.tensor([0.3, 0.5, 0.8], dtype=torch.float64), Cut.vertical(0.25, 0.75)
    prior = OrnsteinUhlenbeck(sigma=sigma)
    process = random_process(cut, prior, torch.ones_like(sigma), seed)
    path = sample(process, 64, 200, solver, seed)
    with torch.no_grad():
        q, p = Chain(process.drift, torch.diag(sigma)), Chain(prior.drift, torch.diag(sigma))
        gap = log_ratio(path, q, p, cut) - path.kl_stl
    what = f"equal diffusions: |log dq/dp - (KL + int u dB)| along 200 paths, {solver}"
    return Certificate(CLAIM, what, float(gap.abs().max()), "==", 0, 1e-9, "rounding of 32 log-densities")
