"""Linear regression on the weights at t = 1. The law, the costs and the best drift of the Euler chain are closed forms.

    w_{k+1} = (1 - dt) w_k + z_k + noisy_k dB_k,    z_k = (f_q - f_p) dt = b_k - A_k w_k,    f_p = -w,  g = 1
    cost of step k = 1/2 E |z_k|^2 / dt             the path KL if the step is stochastic, the action if it is not
    y = X w_1 + e,  e ~ N(0, I)

The best drift at given prices of the steps maximises E log p(y | w_1) - sum_k price_k cost_k. As the log-likelihood is
quadratic, dynamic programming finds it exactly: it is affine, and no other drift is better, affine or not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor

from sdeweights import Cut, Grid, OrnsteinUhlenbeck

PRIOR = OrnsteinUhlenbeck()  # theta = 1, mu = 0, sigma = 1
FREE, KEPT = 1e-12, 1e12  # prices of a drift that costs nothing, or is not used; 0 and inf would be singular


class Law(NamedTuple):
    """A normal law of the weights: mean (d,) and covariance (d, d)."""

    mean: Tensor
    cov: Tensor


class Regression(NamedTuple):
    """Inputs X, (n, d), and outputs y, (n,), with noise of variance 1."""

    X: Tensor
    y: Tensor

    @property
    def information(self) -> Tensor:
        """X^T X, (d, d)."""
        return self.X.T @ self.X

    @property
    def most_likely(self) -> Tensor:
        """The maximum-likelihood weights, (d,)."""
        solution: Tensor = torch.linalg.lstsq(self.X, self.y).solution
        return solution

    def log_likelihood(self, w: Tensor) -> Tensor:
        """log p(y | w), (..., d) -> (...)."""
        return -0.5 * (self.y - w @ self.X.T).square().sum(-1) - len(self.y) / 2 * math.log(2 * math.pi)

    def expected(self, law: Law) -> float:
        """E log p(y | w)."""
        return float(self.log_likelihood(law.mean) - 0.5 * torch.trace(self.information @ law.cov))

    def log_evidence(self, law: Law) -> float:
        """log E p(y | w) = log N(y; X mean, I + X cov X^T)."""
        K = torch.eye(len(self.y), dtype=self.y.dtype) + self.X @ law.cov @ self.X.T
        residual = self.y - self.X @ law.mean
        return -0.5 * float(residual @ torch.linalg.solve(K, residual) + torch.logdet(2 * math.pi * K))

    def posterior(self, law: Law) -> Law:
        """The law of w given y; the covariance of `law` has to be invertible."""
        cov = torch.linalg.inv(torch.linalg.inv(law.cov) + self.information)
        return Law(cov @ (torch.linalg.solve(law.cov, law.mean) + self.X.T @ self.y), cov)

    def before(self, decay: float, variance: float) -> Regression:
        """The regression of y on the weights at an earlier time, from which w_1 ~ N(decay w, variance I)."""
        K = torch.eye(len(self.y), dtype=self.y.dtype) + variance * self.X @ self.X.T
        whiten = torch.linalg.inv(torch.linalg.cholesky(K))
        return Regression(decay * whiten @ self.X, whiten @ self.y)


class Drift(NamedTuple):
    """z_k = b_k - A_k w_k, the displacement by f_q - f_p in step k: b (steps, d) and A (steps, d, d)."""

    b: Tensor
    A: Tensor


@dataclass(frozen=True)
class Chain:
    """The Euler chain from w0, (d,), on steps of equal length, of which some are `noisy`, (steps,) of 0 and 1."""

    w0: Tensor
    noisy: Tensor

    @classmethod
    def of(cls, cut: Cut, w0: Tensor, steps: int) -> Self:
        """The chain of a vertical cut; t1 and t2 have to be multiples of 1 / steps."""
        phases = Grid.of(cut, steps).phases
        return cls(w0, w0.new_tensor([float(p.kind == "sde") for p in phases for _ in range(p.steps)]))

    @property
    def dt(self) -> float:
        """Length of a step."""
        return 1 / len(self.noisy)

    @property
    def prior_drift(self) -> Drift:
        """f_q = f_p."""
        d, steps = len(self.w0), len(self.noisy)
        return Drift(self.w0.new_zeros(steps, d), self.w0.new_zeros(steps, d, d))

    def laws(self, drift: Drift) -> list[Law]:
        """The laws of w at all grid points."""
        eye = torch.eye(len(self.w0), dtype=self.w0.dtype)
        laws = [Law(self.w0, 0 * eye)]
        for noisy, b, A in zip(self.noisy, *drift, strict=True):
            F, (mean, cov) = (1 - self.dt) * eye - A, laws[-1]
            laws.append(Law(F @ mean + b, F @ cov @ F.T + noisy * self.dt * eye))
        return laws

    def prior(self) -> Law:
        """The law of w_1 under the prior drift."""
        return self.laws(self.prior_drift)[-1]

    def costs(self, drift: Drift) -> Tensor:
        """1/2 E |z_k|^2 / dt, (steps,)."""
        laws = self.laws(drift)[:-1]
        mean, cov = (torch.stack(parts) for parts in zip(*laws, strict=True))
        z = drift.b - (drift.A @ mean[..., None])[..., 0]
        spread = torch.einsum("kij,kjl,kil->k", drift.A, cov, drift.A)
        return 0.5 * (z.square().sum(-1) + spread) / self.dt

    def objective(self, data: Regression, drift: Drift, prices: Tensor) -> float:
        """E log p(y | w_1) - sum_k price_k cost_k; the paper's objective if the prices are `noisy`."""
        return data.expected(self.laws(drift)[-1]) - float(prices @ self.costs(drift))

    def best(self, data: Regression, prices: Tensor) -> Drift:
        """The drift that maximises `objective`, from the last step to the first.

        The value of being at w after step k is -1/2 w^T P w + q^T w + constant.
        """
        eye = torch.eye(len(self.w0), dtype=self.w0.dtype)
        P, q, decay = data.information, data.X.T @ data.y, 1 - self.dt
        steps = []
        for price in prices.to(self.w0).flip(0) / self.dt:
            B = torch.linalg.inv(price * eye + P)
            steps.append((B @ q, decay * B @ P))
            P, q = decay**2 * price * B @ P, decay * price * B @ q
        b, A = (torch.stack(parts[::-1]) for parts in zip(*steps, strict=True))
        return Drift(b, A)

    def with_feedback(self, drift: Drift, A: Tensor) -> Drift:
        """A drift with another A, (steps, d, d), and the same mean path."""
        means = torch.stack([law.mean for law in self.laws(drift)[:-1]])
        return Drift(drift.b - ((drift.A - A) @ means[..., None])[..., 0], A)
