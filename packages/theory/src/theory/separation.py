"""Whether a hyperplane separates two finite sets of points, by linear programming.

For points y_i (images of the ball, z = -1) and y_j (images of the ring, z = +1) in R^d, exactly one of these exists:

    a common point of their convex hulls    sum mu_i y_i = sum lambda_j y_j,   mu, lambda >= 0, each of sum 1
    a hyperplane                            a . y_i + c <= -1,   a . y_j + c >= 1

A common point proves sup |L - z| >= 1 for **every** affine L at once: if s is the supremum over these points, then
s - 1 >= sum mu_i L(y_i) = sum lambda_j L(y_j) >= 1 - s. It is verified by multiplication, independently of the LP
solver.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

LP_TOLERANCE = 1e-7  # HiGHS' default feasibility tolerance


class CommonPoint(NamedTuple):
    """Convex weights under which both sets of points have the same mean."""

    mu: Tensor
    lam: Tensor

    def residual(self, ball: Tensor, ring: Tensor) -> float:
        """|sum mu_i y_i - sum lambda_j y_j| relative to the size of the points; infinite if the weights are invalid."""
        for weights in (self.mu, self.lam):
            if bool((weights < 0).any()) or abs(float(weights.sum()) - 1) > 1e-12:
                return float("inf")
        size = float(torch.cat([ball, ring]).abs().max())
        return float((self.mu @ ball - self.lam @ ring).norm()) / size


class Hyperplane(NamedTuple):
    """The affine map y -> a . y + c."""

    a: Tensor
    c: float

    def __call__(self, y: Tensor) -> Tensor:
        return y @ self.a + self.c


def common_point(ball: Tensor, ring: Tensor) -> CommonPoint | None:
    """A common point of the convex hulls of (m, d) and (n, d) points, or None if the hulls are disjoint."""
    m, n, d = len(ball), len(ring), ball.shape[1]
    scaled_ball, scaled_ring = _scaled(ball, ring)
    equations = np.zeros((d + 2, m + n))
    equations[:d, :m], equations[:d, m:] = scaled_ball.T, -scaled_ring.T
    equations[d, :m] = equations[d + 1, m:] = 1
    right = np.array([0.0] * d + [1.0, 1.0])
    found = linprog(np.zeros(m + n), A_eq=equations, b_eq=right, bounds=(0, None), method="highs")
    if found.status == 2:
        return None
    _require(found, "a common point")
    weights = torch.from_numpy(_polished(equations, right, found.x))
    return CommonPoint(weights[:m], weights[m:])


def _polished(equations: np.ndarray, right: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The vertex found by the solver, with its few positive weights solved for again in full precision."""
    support = np.flatnonzero(x > LP_TOLERANCE)
    exact = np.linalg.lstsq(equations[:, support], right, rcond=None)[0]
    better = np.zeros_like(x)
    better[support] = exact
    return better if bool((exact >= 0).all()) else x


def best_output(ball: Tensor, ring: Tensor) -> Hyperplane:
    """The affine L with the smallest sup |L - z| over the points."""
    scaled_ball, scaled_ring = _scaled(ball, ring)
    y = np.concatenate([scaled_ball, scaled_ring])
    z = np.concatenate([-np.ones(len(ball)), np.ones(len(ring))])
    d = y.shape[1]
    columns = np.hstack([y, np.ones((len(y), 1))])
    minus_s = -np.ones((len(y), 1))
    inequalities = np.vstack([np.hstack([columns, minus_s]), np.hstack([-columns, minus_s])])  # |L(y) - z| <= s
    cost = np.zeros(d + 2)
    cost[-1] = 1
    bounds = [(None, None)] * (d + 1) + [(0, None)]
    found = linprog(cost, A_ub=inequalities, b_ub=np.concatenate([z, -z]), bounds=bounds, method="highs")
    _require(found, "an output layer")
    centre, size = _frame(ball, ring)
    a = torch.from_numpy(found.x[:d]) / size
    return Hyperplane(a, float(found.x[d]) - float(a @ centre))


def sup_error(L: Hyperplane, ball: Tensor, ring: Tensor) -> float:
    """sup |L - z| over the points."""
    return max(float((L(ball) + 1).abs().max()), float((L(ring) - 1).abs().max()))


def best_sup(ball: Tensor, ring: Tensor) -> float:
    """The smallest sup |L - z| over all affine L; 1 if the convex hulls meet."""
    return sup_error(best_output(ball, ring), ball, ring)


def _frame(ball: Tensor, ring: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and half-width per coordinate, used for scaling: the solver's tolerances assume numbers near 1."""
    y = torch.cat([ball, ring])
    low, high = y.amin(0), y.amax(0)
    return (low + high) / 2, ((high - low) / 2).clamp(min=1e-12)


def _scaled(ball: Tensor, ring: Tensor) -> tuple[np.ndarray, np.ndarray]:
    centre, size = _frame(ball, ring)
    return ((ball - centre) / size).numpy(), ((ring - centre) / size).numpy()


def _require(found: Any, what: str) -> None:
    if found.status != 0:
        raise RuntimeError(f"expected the linear programme to find {what}, got status {found.status}: {found.message}")
