"""Lemma 1: unequal diffusions make the path-space KL infinite.

On a grid of n steps both processes are Markov chains with transitions N(w + f dt, sigma sigma^T dt), and for f_q = f_p

    KL_n = n R,   R = 1/2 (tr M - d - ln det M),   M = (sigma_p sigma_p^T)^{-1} sigma_q sigma_q^T,

in one dimension R = 1/2 (rho^2 - 1 - ln rho^2), rho = sigma_q / sigma_p. For constant coefficients these chains are the
processes seen at n times, so that KL >= n R for every n. The paper's condition sigma_q != sigma_p is not the right one:
only sigma sigma^T enters, and sigma_q = -sigma_p, or sigma_p times an orthogonal matrix on the right, gives R = 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from sdeweights import Cut, OrnsteinUhlenbeck, Prior, WeightPath, WeightProcess
from sdeweights.diffusion import Field
from sdeweights.testing import TanhDrift, seeded
from theory.certificate import Certificate

CLAIM = "Lemma 1"
STEPS = (8, 16, 32, 64)
PATHS = 16_000
LUCK = 4.5  # standard errors; a normal error is larger with probability 7e-6


class Chain(NamedTuple):
    """w_{k+1} ~ N(w_k + drift dt, sigma sigma^T dt), with sigma of shape (d, d)."""

    drift: Field
    sigma: Tensor


def rate(sigma_q: Tensor, sigma_p: Tensor) -> float:
    """R, the KL that one step adds however short it is; matrices (d, d).

    Example:
        >>> rate(torch.tensor([[2.0]]), torch.tensor([[1.0]]))  # 1/2 (4 - 1 - ln 4)
        0.8068...
    """
    M = torch.linalg.solve(sigma_p @ sigma_p.T, sigma_q @ sigma_q.T)
    return 0.5 * float(torch.trace(M) - len(M) - torch.linalg.slogdet(M).logabsdet)


def log_ratio(path: WeightPath, q: Chain, p: Chain, cut: Cut) -> Tensor:
    """log dq/dp of the transitions of w_S in the window of a cut, read off the path alone: (samples,).

    Its mean over paths of q is the KL of the two chains.
    """
    first, last = path.times.index(cut.t1), path.times.index(cut.t2)
    S = cut.indices(path.d)
    total = path.w.new_zeros(path.samples)
    for k in range(first, last):
        now, then, dt = path.start(k), path.w[:, k + 1], path.times[k + 1] - path.times[k]
        log_q, log_p = (_log_density(chain, path.ts[k], now, dt, S, then) for chain in (q, p))
        total = total + log_q - log_p
    return total


def _log_density(chain: Chain, t: Tensor, now: Tensor, dt: float, S: Tensor, then: Tensor) -> Tensor:
    """log N(then_S; (now + drift dt)_S, (sigma sigma^T)_SS dt), with sigma_SS as the cut leaves it: (samples,)."""
    sigma = chain.sigma[S][:, S]
    law = MultivariateNormal((now + chain.drift(t, now) * dt)[:, S], sigma @ sigma.T * dt)
    density: Tensor = law.log_prob(then[:, S])  # type: ignore[no-untyped-call]
    return density


def sampled_log_ratios(sigma_q: Tensor, sigma_p: Tensor, steps: int, paths: int, generator: torch.Generator) -> Tensor:
    """log dq/dp of paths that the process with sigma_q takes, drifts equal: (paths,)."""
    drift: Field = lambda t, w: torch.cos(t) - w  # noqa: E731
    process = WeightProcess(torch.zeros_like(sigma_q[0]), drift, Prior(drift, sigma_q), Cut.full())
    with torch.no_grad():
        path = process.sample(steps, paths, generator=generator)
        return log_ratio(path, Chain(drift, sigma_q), Chain(drift, sigma_p), Cut.full())


class Slope(NamedTuple):
    """A least-squares slope and its standard error."""

    value: float
    error: float


def slope_in_steps(sigma_q: Tensor, sigma_p: Tensor, steps: Sequence[int], paths: int, seed: int) -> Slope:
    """Growth of the sampled KL a step."""
    generator = seeded(seed)
    ratios = [sampled_log_ratios(sigma_q, sigma_p, n, paths, generator) for n in steps]
    centre = sum(steps) / len(steps)
    weights = [(n - centre) / sum((m - centre) ** 2 for m in steps) for n in steps]
    value = sum(weight * float(ratio.mean()) for weight, ratio in zip(weights, ratios, strict=True))
    variance = sum(weight**2 * float(ratio.var()) / paths for weight, ratio in zip(weights, ratios, strict=True))
    return Slope(value, math.sqrt(variance))


def certify(seed: int = 0) -> list[Certificate]:
    """The predicted slopes, their appearance in sampled paths, and the diffusions for which there is none."""
    return [
        *(c for rho, known in ((0.9, 0.0103605), (2.0, 0.8068528)) for c in _slopes(rho, known, seed)),
        *_equal_covariances(seed),
        _finite_where_diffusions_agree(seed),
    ]


def _slopes(rho: float, known: float, seed: int) -> list[Certificate]:
    one = torch.eye(1, dtype=torch.float64)
    slope = slope_in_steps(rho * one, one, STEPS, PATHS, seed)
    return [
        Certificate(CLAIM, f"KL a step, rho = {rho}", rate(rho * one, one), "==", known, 1e-7, "seven digits given"),
        Certificate(
            CLAIM,
            f"slope of KL in the number of steps, rho = {rho}, {PATHS} paths",
            slope.value,
            "==",
            rate(rho * one, one),
            LUCK * slope.error,
            f"{LUCK} standard errors",
        ),
    ]


def _equal_covariances(seed: int) -> list[Certificate]:
    generator = seeded(seed)
    sigma = torch.randn(3, 3, generator=generator, dtype=torch.float64) + 2 * torch.eye(3, dtype=torch.float64)
    R = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    negative = sampled_log_ratios(-sigma, sigma, 64, 100, generator)
    rotated = sampled_log_ratios(sigma @ R, sigma, 64, 100, generator)
    mirrored = rate(R @ sigma, sigma)
    return [
        Certificate(CLAIM, "largest |log dq/dp|, sigma_q = -sigma_p", float(negative.abs().max()), "==", 0),
        Certificate(
            CLAIM,
            "largest |log dq/dp|, sigma_q = sigma_p R, R orthogonal",
            float(rotated.abs().max()),
            "==",
            0,
            1e-9,
            "rounding of 64 log-densities",
        ),
        Certificate(CLAIM, "KL a step, sigma_q = R sigma_p: on the left R does matter", mirrored, ">=", 0.01),
    ]


def _finite_where_diffusions_agree(seed: int) -> Certificate:
    """With one diffusion log dq/dp is path.kl + int u dB, path by path, on any grid."""
    prior, cut = OrnsteinUhlenbeck(sigma=0.5), Cut.vertical(0.25, 0.75)
    drift = TanhDrift(3, seed)
    with torch.no_grad():
        process = WeightProcess(torch.ones(3, dtype=torch.float64), drift, prior, cut)
        path = process.sample(64, 200, generator=seeded(seed))
        sigma = 0.5 * torch.eye(3, dtype=torch.float64)
        gap = log_ratio(path, Chain(drift, sigma), Chain(prior.drift, sigma), cut) - path.kl_stl
    return Certificate(
        CLAIM,
        "equal diffusions: |log dq/dp - (kl + int u dB)| along 200 paths",
        float(gap.abs().max()),
        "==",
        0,
        1e-9,
        "rounding of 32 log-densities",
    )
