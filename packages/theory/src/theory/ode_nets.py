"""Lemmas 3 and 4 (Zhang et al., 2020): maps that ordinary differential equations with extra dimensions can realise.

Lemma 3: a homeomorphism h of R^p, as [x, 0] -> [h(x), 0] in 2p dimensions, by three shears in a row:

    [x, y] -> [x, y + h(x)] -> [x + y - h^{-1}(y), y] -> [x, y - x]

The coordinates that drive a shear stay constant while it acts, so Euler's method is exact. h may even reverse
orientation, which no flow on R^p can do. For linear h this is Whitehead's lemma: diag(A, A^{-1}) is a product of
shears.

Lemma 4: a network F: R^p -> R^r in p + r dimensions,  dz = [0, F(x)] dt  on z = [x, y], read by the cap [x, y] -> y.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sdeweights import Brownian, Cut, WeightProcess, flow
from sdeweights.functional import HiddenDrift
from theory.certificate import Certificate
from theory.maps import Map
from theory.statistics import sup

LEMMA_3, LEMMA_4 = "Lemma 3", "Lemma 4"


@dataclass(frozen=True)
class Homeomorphism:
    """h and its inverse on R^p, from (..., p) to (..., p)."""

    p: int
    forward: Map
    inverse: Map


def affine(A: Tensor, b: Tensor) -> Homeomorphism:
    """h(x) = A x + b; reverses orientation if det A < 0."""
    if A.shape != (len(b), len(b)) or float(torch.linalg.det(A)) == 0:
        raise ValueError(f"expected an invertible matrix of shape ({len(b)}, {len(b)}), got {tuple(A.shape)}")
    return Homeomorphism(len(b), lambda x: x @ A.T + b, lambda y: torch.linalg.solve(A, (y - b).unsqueeze(-1))[..., 0])


def hyperbolic(slope: float, shift: float) -> Homeomorphism:
    """h(x) = sinh(slope x) + shift on the line: increasing for slope > 0, decreasing for slope < 0."""
    if slope == 0:
        raise ValueError("expected a slope other than 0, got 0: a constant map is not a homeomorphism")
    return Homeomorphism(1, lambda x: torch.sinh(slope * x) + shift, lambda y: torch.asinh(y - shift) / slope)


def cubic() -> Homeomorphism:
    """h(x) = x^3: a homeomorphism but not a diffeomorphism, since its inverse is not differentiable at 0."""
    return Homeomorphism(1, lambda x: x**3, lambda y: torch.sign(y) * y.abs() ** (1 / 3))


def shears(h: Homeomorphism) -> HiddenDrift:
    """The 2p-dimensional field: [0, 4 h(x)], then [2 (y - h^{-1}(y)), 0] from t = 1/4, then [0, -4 x] from 3/4."""

    def field(t: Tensor, z: Tensor, w: Tensor) -> Tensor:  # noqa: ARG001 - no weights
        x, y = z.chunk(2, -1)
        if t < 0.25:
            return torch.cat([torch.zeros_like(x), 4 * h.forward(x)], -1)
        if t < 0.75:
            return torch.cat([2 * (y - h.inverse(y)), torch.zeros_like(y)], -1)
        return torch.cat([torch.zeros_like(x), -4 * x], -1)

    return field


def half_turn(t: Tensor, z: Tensor, w: Tensor) -> Tensor:  # noqa: ARG001 - autonomous, without weights
    """pi [-y, x]: a single linear field that rotates every plane (x_i, y_i) by pi, so [x, 0] -> [-x, 0]."""
    x, y = z.chunk(2, -1)
    return math.pi * torch.cat([-y, x], -1)


def capped(F: Map, p: int, start: float = 0.0) -> HiddenDrift:
    """Lemma 4's field: [0, F(x)] / (1 - start) on [start, 1], and zero before `start`.

    The paper uses f_gamma itself on R_3 = [3/4, 1]; without the factor 4 the output is F / 4.
    """
    speed = 1 / (1 - start)

    def field(t: Tensor, z: Tensor, w: Tensor) -> Tensor:  # noqa: ARG001 - no weights
        if t < start:
            return torch.zeros_like(z)
        x = z[..., :p]
        return torch.cat([torch.zeros_like(x), speed * F(x)], -1)

    return field


def carried(field: HiddenDrift, x: Tensor, extra: int, steps: int = 4, method: str = "euler") -> Tensor:
    """The flow at time 1 of the points [x, 0]: from (n, p) to (n, p + extra). The field ignores its one weight, 0."""
    zero = torch.zeros(1, dtype=torch.float64)
    with torch.no_grad():
        path = WeightProcess(zero, lambda t, w: 0 * w, Brownian(), Cut.none()).sample(steps)  # noqa: ARG005
        return flow(field, torch.cat([x, x.new_zeros(len(x), extra)], -1), path, method)[0]


def lemma3_error(h: Homeomorphism, x: Tensor, steps: int = 4, method: str = "euler") -> float:
    """sup |phi_1([x, 0]) - [h(x), 0]| over the rows of x, (n, p)."""
    wanted = torch.cat([h.forward(x), torch.zeros_like(x)], -1)
    return sup(carried(shears(h), x, h.p, steps, method) - wanted)


def orientation_gap(field: HiddenDrift, steps: int = 64) -> float:
    """sup over [-1, 1] of |psi_1(x) + x|, the distance of a flow from h(x) = -x: at least 1, as psi is increasing."""
    x = torch.linspace(-1, 1, 201, dtype=torch.float64)[:, None]
    return sup(carried(field, x, 0, steps, "rk4") + x)


def certify(seed: int = 0) -> list[Certificate]:
    """Check affine maps of both orientations, maps of the line, the half turn, and networks on [0, 1] and [3/4, 1]."""
    generator = torch.Generator().manual_seed(seed)
    return [*_affine(generator), *_line(), *_turn(generator), *_networks(generator)]


def _affine(generator: torch.Generator) -> list[Certificate]:
    errors = {True: 0.0, False: 0.0}
    for p in (1, 2, 3, 5) * 5:
        A = torch.randn(p, p, generator=generator, dtype=torch.float64) + 0.5 * torch.eye(p, dtype=torch.float64)
        b = torch.randn(p, generator=generator, dtype=torch.float64)
        for flip in (1.0, -1.0):
            A[0] *= flip
            x = torch.randn(100, p, generator=generator, dtype=torch.float64)
            keeps = bool(torch.linalg.det(A) > 0)
            errors[keeps] = max(errors[keeps], lemma3_error(affine(A, b), x))
    why = "the lemma is exact; 1e-6 is rounding, magnified by A^{-1}"
    return [
        Certificate(LEMMA_3, "20 affine maps that keep orientation, 2p dimensions", errors[True], "==", 0, 1e-6, why),
        Certificate(LEMMA_3, "20 affine maps that reverse it, 2p dimensions", errors[False], "==", 0, 1e-6, why),
    ]


def _line() -> list[Certificate]:
    x = torch.linspace(-1.5, 1.5, 301, dtype=torch.float64)[:, None]
    maps = {"sinh 2x": hyperbolic(2, 0), "sinh(-2x) + 1": hyperbolic(-2, 1), "x^3": cubic()}
    why = "the lemma is exact; 1e-6 is rounding"
    return [
        Certificate(LEMMA_3, f"h(x) = {name} on [-1.5, 1.5], 2 dimensions", lemma3_error(h, x), "==", 0, 1e-6, why)
        for name, h in maps.items()
    ]


def _turn(generator: torch.Generator) -> list[Certificate]:
    x = torch.randn(100, 2, generator=generator, dtype=torch.float64)
    turned = carried(half_turn, x, 2, 64, "rk4")
    error = sup(turned - torch.cat([-x, torch.zeros_like(x)], -1))
    gap = orientation_gap(lambda t, h, w: -20 * h)  # noqa: ARG005 - contracts to 0, the best that a flow on the line can do
    why = "Runge-Kutta with 64 steps: dt^4 pi^5 / 120 |x|"
    return [
        Certificate(LEMMA_3, "h(x) = -x by one linear field in 2p dimensions", error, "==", 0, 1e-6, why),
        Certificate(LEMMA_3, "h(x) = -x by a flow in p = 1 dimensions: sup error", gap, ">=", 1),
    ]


def _networks(generator: torch.Generator) -> list[Certificate]:
    F = torch.nn.Sequential(torch.nn.Linear(3, 20), torch.nn.Tanh(), torch.nn.Linear(20, 2)).double()
    with torch.no_grad():
        for parameter in F.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    x = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        wanted = F(x)
    one = carried(capped(F, 3), x, 2, steps=1)[:, 3:]
    late = carried(capped(F, 3, start=0.75), x, 2, steps=16)[:, 3:]
    why = "rounding of 4 additions"
    return [
        Certificate(LEMMA_4, "one Euler step over [0, 1]: |cap - F|", sup(one - wanted), "==", 0, 1e-14, why),
        Certificate(LEMMA_4, "on [3/4, 1] with the factor 4: |cap - F|", sup(late - wanted), "==", 0, 1e-12, why),
    ]
