"""Theorem A.1 (Sharma et al., 2023):  |f_theta(V eta + u, x) - f~(x, eta)| < eps for all x in X and |eta| <= lambda.

The network is fitted, and its error e = f_theta - f~ is bounded everywhere, not only on a grid: X x [-lambda, lambda]
is divided into cells of half-diagonal rho, and in the cell with centre z

    |e| <= |e(z)| + rho |e'(z)| + (deviation of f_theta from its tangent within rho) + 1/2 rho^2 (curvature of f~).

Only floating-point rounding is not accounted for. Both universal families of the paper are fitted, with V = I and u = 0
as in Theorem 4.2. The first layer can absorb any invertible V; a singular V loses noise.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from scipy import stats
from torch import Tensor

from theory import fitting
from theory.certificate import Certificate
from theory.laws import APPROXIMATED, Deterministic, Law, SmoothLaw
from theory.networks import Family, Shallow

CLAIM = "Theorem A.1"
EPSILONS = (0.2, 0.1)
UNITS = {Family.WIDE: 12, Family.DEEP: 56}


class Sup(NamedTuple):
    """The largest error on a grid, and a bound on the error everywhere."""

    on_grid: float
    everywhere: float


def noise_radius(law: Law, epsilon: float) -> float:
    """lambda of Theorem 4.2's event A_1:  P(|eta| <= lambda) = 1 - epsilon / 2;  1.95996 for m = 1, epsilon = 0.1."""
    return float(stats.chi.ppf(1 - epsilon / 2, law.m))


def cells(radius: float, counts: tuple[int, int]) -> tuple[Tensor, float]:
    """Centres (n, 2) of the cells of [-1, 1] x [-radius, radius], and their half-diagonal."""
    sides = [2 / counts[0], 2 * radius / counts[1]]
    axes = [
        -half + side * (torch.arange(count, dtype=torch.float64) + 0.5)
        for half, side, count in zip((1.0, radius), sides, counts, strict=True)
    ]
    return torch.cartesian_prod(*axes), math.hypot(*sides) / 2


def sup_error(net: Shallow, law: SmoothLaw, radius: float, counts: tuple[int, int] = (400, 800)) -> Sup:
    """sup |F(x, eta_1) - f~(x, eta)| over x in [-1, 1] and |eta_1| <= radius; neither depends on the other noises."""
    centres, rho = cells(radius, counts)
    on_grid = everywhere = 0.0
    for z in torch.split(centres, 40_000):
        x, eta = z[:, :1], _padded(z[:, 1:], law)
        error = (net(z) - law.generator(x, eta)).norm(dim=-1)
        slope = (net.slopes(z) - law.slopes(x, eta)).flatten(1).norm(dim=-1)
        bound = error + rho * slope + net.remainder(z, rho) + rho**2 / 2 * law.curvature(radius)
        on_grid, everywhere = max(on_grid, float(error.max())), max(everywhere, float(bound.max()))
    return Sup(on_grid, everywhere)


def _padded(eta: Tensor, law: Law) -> Tensor:
    return torch.cat([eta, eta.new_zeros(len(eta), law.m - 1)], 1)


@lru_cache(maxsize=64)
def approximation(law: SmoothLaw, family: Family, epsilon: float) -> Shallow:
    """f_theta(x, eta_1) fitted on |eta| <= lambda(epsilon).

    The theorem only claims that such a network exists, so it does not matter how we find it; the fit's seed is fixed.
    """
    end = noise_radius(law, epsilon)
    x, eta = (torch.linspace(-r, r, n, dtype=torch.float64) for r, n in ((1, 33), (end, 45)))
    z = torch.cartesian_prod(x, eta)
    y = law.generator(z[:, :1], _padded(z[:, 1:], law))
    return fitting.fit(family, z, y, UNITS[family], torch.Generator().manual_seed(0))


@lru_cache(maxsize=64)
def bounded(law: SmoothLaw, family: Family, epsilon: float) -> Sup:
    """The error of that network on |eta| <= lambda(epsilon)."""
    return sup_error(approximation(law, family, epsilon), law, noise_radius(law, epsilon))


def certify(seed: int = 0) -> list[Certificate]:  # noqa: ARG001 - nothing is drawn
    """Check sup error < eps / 2 on |eta| <= lambda, which Theorem 4.2 needs, for four laws and both families.

    Deep networks are only checked for the smaller eps, which is the stronger statement because its lambda is larger.
    """
    models = [(Family.WIDE, epsilon) for epsilon in EPSILONS] + [(Family.DEEP, min(EPSILONS))]
    laws = (Deterministic(), *APPROXIMATED)
    return [_certificate(law, family, epsilon) for law in laws for family, epsilon in models]


def _certificate(law: SmoothLaw, family: Family, epsilon: float) -> Certificate:
    sup = bounded(law, family, epsilon)
    where = f"{law.name}, {family}, |eta| <= {noise_radius(law, epsilon):.3f}"
    what = f"{where}: sup |f_theta - f~|, proved between grid points"
    return Certificate(CLAIM, f"{what} (on the grid {sup.on_grid:.4f})", sup.everywhere, "<=", epsilon / 2)
