"""Fit shallow networks by Levenberg-Marquardt, with sample weights that grow where the errors are largest.

Each round minimises  sum_i omega_i |F(z_i) - y_i|^2 + ridge^2 |gamma|^2  and then updates the weights,
omega_i <- omega_i (|F(z_i) - y_i| / mean + 0.05),  which reduces the largest error (Lawson's algorithm).
"""

import torch
from torch import Tensor

from theory.networks import Family, Shallow

RIDGE = 1e-3  # keeps the parameters small, and therefore the curvature of F
ROUNDS = (60, 15, 15, 15)  # Levenberg-Marquardt steps per round; the first round has equal weights


def fit(family: Family, z: Tensor, y: Tensor, units: int, generator: torch.Generator) -> Shallow:
    """A network of `units` hidden units with F(z_i) close to y_i, z (n, d_in), y (n, d_out)."""
    net = _start(family, z, y, units, generator)
    weights = torch.ones(len(z)).to(z)
    for steps in ROUNDS:
        net = _levenberg_marquardt(net, z, y, weights, steps)
        errors = (net(z) - y).norm(dim=-1)
        weights = weights * (errors / errors.mean() + 0.05)
        weights = weights / weights.mean()
    return net


def _start(family: Family, z: Tensor, y: Tensor, units: int, generator: torch.Generator) -> Shallow:
    """Random units with kinks inside the bounding box of the data; the outer layer by least squares."""
    d_in = z.shape[1]
    A = 1.5 * torch.randn(units, d_in, generator=generator, dtype=z.dtype)
    low, high = z.amin(0), z.amax(0)
    kinks = low + (high - low) * torch.rand(units, d_in, generator=generator, dtype=z.dtype)
    net = Shallow(family, A, -(A * kinks).sum(1), y.new_zeros(y.shape[1], units), y.new_zeros(y.shape[1]))
    X = torch.cat([net.features(z), torch.ones(len(z), 1).to(z)], 1)
    outer = torch.linalg.solve(X.T @ X + RIDGE**2 * torch.eye(units + 1).to(z), X.T @ y).T
    return Shallow(family, net.A, net.b, outer[:, :-1], outer[:, -1])


def _levenberg_marquardt(net: Shallow, z: Tensor, y: Tensor, weights: Tensor, steps: int) -> Shallow:
    gamma, damping = _pack(net), 0.1
    cost = _cost(net, z, y, weights)
    for _ in range(steps):
        J, r = _jacobian(net, z) * weights.sqrt()[:, None, None], (net(z) - y) * weights.sqrt()[:, None]
        J, r = J.flatten(0, 1), r.flatten()
        normal, gradient = J.T @ J, J.T @ r + RIDGE**2 * gamma
        while True:
            shifted = normal + (damping + RIDGE**2) * torch.eye(len(gamma)).to(z)
            trial = gamma - torch.cholesky_solve(gradient[:, None], torch.linalg.cholesky(shifted))[:, 0]
            candidate = _unpack(net, trial)
            reached = _cost(candidate, z, y, weights)
            if reached < cost:
                net, gamma, cost, damping = candidate, trial, reached, max(damping / 3, 1e-9)
                break
            damping *= 4
            if damping > 1e6:
                return net
    return net


def _cost(net: Shallow, z: Tensor, y: Tensor, weights: Tensor) -> float:
    return float((weights * ((net(z) - y) ** 2).sum(-1)).sum() + RIDGE**2 * (_pack(net) ** 2).sum())


def _jacobian(net: Shallow, z: Tensor) -> Tensor:
    """dF / d(A, b, V, c), (n, d_out, parameters), in the order of `_pack`."""
    n, d_out = len(z), len(net.c)
    back = net.feature_slopes(z)[:, None] * net.V  # (n, d_out, units): dF / db
    eye = torch.eye(d_out).to(z)
    inner = torch.einsum("noh,ni->nohi", back, z).flatten(2)
    outer = torch.einsum("nh,op->noph", net.features(z), eye).flatten(2)
    return torch.cat([inner, back, outer, eye.expand(n, -1, -1)], 2)


def _pack(net: Shallow) -> Tensor:
    return torch.cat([net.A.flatten(), net.b, net.V.flatten(), net.c])


def _unpack(like: Shallow, gamma: Tensor) -> Shallow:
    A, b, V, c = torch.split(gamma, [like.A.numel(), len(like.b), like.V.numel(), len(like.c)])
    return Shallow(like.family, A.view_as(like.A), b, V.view_as(like.V), c)
