"""Maps of R^d to itself: Jacobians, winding numbers, and the Euler map of the counterexample `theory.fields.fold`."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from sdeweights.testing import seeded
from theory.annulus import directions
from theory.fields import fold

Map = Callable[[Tensor], Tensor]  # (n, d) -> (n, d)


def jacobians(psi: Map, x: Tensor) -> Tensor:
    """D psi at the points x, (n, d): (n, d, d). Points are independent, so summing psi over them is enough."""
    with torch.enable_grad():
        start = x.detach().requires_grad_()
        rows = [torch.autograd.grad(y.sum(), start, retain_graph=True)[0] for y in psi(start).unbind(-1)]
    return torch.stack(rows, 1)


def winding_number(curve: Tensor, point: Tensor) -> int:
    """Winding number of a closed polygon, (n, 2), around a point, (2,); raises ValueError if a turn is too large."""
    spokes = torch.view_as_complex((curve - point).contiguous())
    turns = torch.angle(spokes.roll(-1) / spokes)
    if not bool((turns.abs() < math.pi / 2).all()):
        raise ValueError(f"expected turns below 90 degrees, got {math.degrees(float(turns.abs().max())):.0f}; refine")
    return round(float(turns.sum()) / (2 * math.pi))


def winding_of_image(psi: Map, radius: float) -> int:
    """Winding number of psi(|x| = radius) around psi(0); the circle is refined until every turn is small."""
    n = 256
    while True:
        circle = radius * directions(2, n, seeded())
        try:
            return winding_number(psi(circle), psi(torch.zeros(1, 2, dtype=torch.float64))[0])
        except ValueError:
            if n >= 2**16:
                raise
            n *= 4


def euler_fold(n: int) -> Map:
    """The Euler map of the field `fold` with n steps: a homeomorphism only if 2 / n < 1."""

    def psi(x: Tensor) -> Tensor:
        for _ in range(n):
            x = x + fold(x.new_zeros(()), x, x) / n
        return x

    return psi
