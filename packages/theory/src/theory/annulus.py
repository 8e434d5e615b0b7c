"""A function no flow can represent, eq. (13):  z = -1 on the ball |x| <= r1,  z = +1 on the ring r2 <= |x| <= r3."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Sample(NamedTuple):
    """Points sampled from A: those in the ball, where z = -1, and those in the ring, where z = +1."""

    ball: Tensor
    ring: Tensor

    @property
    def x(self) -> Tensor:
        """All points, (n, d)."""
        return torch.cat([self.ball, self.ring])

    @property
    def z(self) -> Tensor:
        """z at all points, (n,)."""
        return torch.cat([-torch.ones_like(self.ball[:, 0]), torch.ones_like(self.ring[:, 0])])


@dataclass(frozen=True)
class Annulus:
    """The domain A of z: a ball and a ring around it."""

    r1: float = 1.0
    r2: float = 2.0
    r3: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.r1 < self.r2 < self.r3 < math.inf:
            raise ValueError(f"expected 0 < r1 < r2 < r3, got {self.r1}, {self.r2}, {self.r3}")

    def sample(self, d: int, n: int, generator: torch.Generator) -> Sample:
        """About 5 n points: n on each of the spheres r1, r2, r3, n inside the ball (its centre first), n in the ring.

        The spheres come first because no hyperplane can separate the ball from the sphere r2 around it.
        """
        sphere = directions(d, n, generator)
        inner = self.r1 * torch.rand(n, 1, generator=generator, dtype=torch.float64) ** (1 / d)
        inner[0] = 0
        ring = self.r2 + (self.r3 - self.r2) * torch.rand(n, 1, generator=generator, dtype=torch.float64)
        in_ball, in_ring = (radius * _at_random(d, n, generator) for radius in (inner, ring))
        rims = (self.r2 * sphere, self.r3 * sphere)
        return Sample(torch.cat([self.r1 * sphere, in_ball]), torch.cat([*rims, in_ring]))


def directions(d: int, n: int, generator: torch.Generator) -> Tensor:
    """Points on the unit sphere of R^d: both of them for d = 1, n equally spaced for d = 2, n random for d >= 3."""
    if d == 1:
        return torch.tensor([[-1.0], [1.0]], dtype=torch.float64)
    if d == 2:
        angle = torch.arange(n, dtype=torch.float64) * (2 * math.pi / n)
        return torch.stack([torch.cos(angle), torch.sin(angle)], -1)
    return _at_random(d, n, generator)


def _at_random(d: int, n: int, generator: torch.Generator) -> Tensor:
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(x, dim=-1)
