"""Conditional laws with a continuous generator function, Section 4.2:  f~(x, eta) ~ Y | X = x  for eta ~ N(0, I_m).

X is [-1, 1], so d_x = 1. A law provides a generator f~, a sampler that does not use f~, and a transform of its samples
to uniforms. A smooth law also provides derivatives of f~ and a bound on its curvature, to bound f~ between grid points.
"""

import math
from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor

SQRT_2PI = math.sqrt(2 * math.pi)


class Law(ABC):
    """A conditional law on R^{d_y} and its generator on X x R^m."""

    name: str  # in tables and figures
    m: int = 1  # dimension of the noise eta
    d_y: int = 1  # dimension of y

    @abstractmethod
    def generator(self, x: Tensor, eta: Tensor) -> Tensor:
        """f~(x, eta), from x (..., 1) and eta (..., m) to (..., d_y)."""

    @abstractmethod
    def sample(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """y ~ Y | X = x, drawn from the definition of the law and not with f~: from (n, 1) to (n, d_y)."""

    @abstractmethod
    def uniforms(self, x: Tensor, y: Tensor) -> Tensor:
        """Rosenblatt's transform, (..., k): k independent uniforms if and only if y follows the law."""


class SmoothLaw(Law):
    """A law whose generator depends only on x and eta_1, with derivatives to bound it between grid points."""

    @abstractmethod
    def slopes(self, x: Tensor, eta: Tensor) -> Tensor:
        """df~ / d(x, eta_1), (..., d_y, 2)."""

    @abstractmethod
    def curvature(self, reach: float) -> float:
        """C with |D^2 f~ [v, v]| <= C |v|^2 for x in X and |eta| <= reach, in the variables (x, eta_1)."""


def Phi(z: Tensor) -> Tensor:
    """Distribution function of N(0, 1)."""
    value: Tensor = torch.special.ndtr(z)
    return value


def normals(x: Tensor, generator: torch.Generator) -> Tensor:
    """Independent N(0, 1) numbers with the shape of x."""
    return torch.randn(x.shape, generator=generator, dtype=x.dtype)


def mean(x: Tensor) -> Tensor:
    """0.8 sin(pi x), the regression function of two laws."""
    return 0.8 * torch.sin(math.pi * x)


@final
class Deterministic(SmoothLaw):
    """y = 0.8 sin(pi x): a law without noise."""

    name = "deterministic"

    def generator(self, x: Tensor, eta: Tensor) -> Tensor:
        return mean(x) + 0 * eta

    def sample(self, x: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002 - a point mass
        return mean(x)

    def uniforms(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - no noise, so nothing to transform
        return y[..., :0]

    def slopes(self, x: Tensor, eta: Tensor) -> Tensor:
        return torch.stack([0.8 * math.pi * torch.cos(math.pi * x), 0 * eta], -1)

    def curvature(self, reach: float) -> float:  # noqa: ARG002 - independent of eta
        return 0.8 * math.pi**2


@final
class HeteroscedasticGaussian(SmoothLaw):
    """y ~ N(0.8 sin(pi x), s(x)^2) with s(x) = 0.2 + 0.3 x^2."""

    name = "heteroscedastic Gaussian"

    @staticmethod
    def scale(x: Tensor) -> Tensor:
        """s(x)."""
        return 0.2 + 0.3 * x**2

    def generator(self, x: Tensor, eta: Tensor) -> Tensor:
        return mean(x) + self.scale(x) * eta

    def sample(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return mean(x) + self.scale(x) * normals(x, generator)

    def uniforms(self, x: Tensor, y: Tensor) -> Tensor:
        return Phi((y - mean(x)) / self.scale(x))

    def slopes(self, x: Tensor, eta: Tensor) -> Tensor:
        return torch.stack([0.8 * math.pi * torch.cos(math.pi * x) + 0.6 * x * eta, self.scale(x)], -1)

    def curvature(self, reach: float) -> float:
        """|f_xx| <= 0.8 pi^2 + 0.6 reach,  |f_x eta| <= 0.6,  f_eta eta = 0."""
        return 0.8 * math.pi**2 + 0.6 * reach + 0.6


@final
class Bimodal(SmoothLaw):
    """Half N(-a, s^2), half N(a, s^2) with s = 0.3 and a(x) = 0.6 + 0.1 x: two modes, since a > s.

    The generator is the inverse CDF, y = F_x^{-1}(Phi(eta)), computed by bisection. It is odd in eta. For eta >= 0 it
    lies between 0 and a + s eta, since the right mode alone has less mass to the left of every point.
    """

    name = "bimodal"
    s = 0.3

    @staticmethod
    def centre(x: Tensor) -> Tensor:
        """a(x)."""
        return 0.6 + 0.1 * x

    def generator(self, x: Tensor, eta: Tensor) -> Tensor:
        a, s = self.centre(x), self.s
        tail = Phi(-eta.abs())
        low, high = torch.zeros_like(a + eta), a + s * eta.abs()
        for _ in range(56):  # the bracket is shorter than 4, so y is exact to 4 / 2^56 < 1e-16
            y = (low + high) / 2
            beyond = (Phi((a - y) / s) + Phi((-a - y) / s)) / 2  # mass above y
            low, high = torch.where(beyond > tail, y, low), torch.where(beyond > tail, high, y)
        return torch.sign(eta) * (low + high) / 2

    def sample(self, x: Tensor, generator: torch.Generator) -> Tensor:
        side = 2.0 * torch.randint(0, 2, x.shape, generator=generator) - 1
        return side * self.centre(x) + self.s * normals(x, generator)

    def uniforms(self, x: Tensor, y: Tensor) -> Tensor:
        a, s = self.centre(x), self.s
        return (Phi((y - a) / s) + Phi((y + a) / s)) / 2

    def slopes(self, x: Tensor, eta: Tensor) -> Tensor:
        """f_x = a' tanh(y a / s^2) and f_eta = phi(eta) / p(y), from differentiating F_x(f~) = Phi(eta)."""
        a, s, y = self.centre(x), self.s, self.generator(x, eta)
        density = (torch.exp(-(((y - a) / s) ** 2) / 2) + torch.exp(-(((y + a) / s) ** 2) / 2)) / (2 * s)
        return torch.stack([0.1 * torch.tanh(y * a / s**2), torch.exp(-(eta**2) / 2) / density], -1)

    def curvature(self, reach: float) -> float:
        """From f_eta <= max(s phi(0) / phi(a / s), 2 s), |y| <= a + s reach and |(log p)'| <= max(a, |y|) / s^2.

        f_eta eta = f_eta (-eta - (log p)'(y) f_eta);  f_x eta <= a' a f_eta / s^2;  f_xx <= a'^2 (a + |y|) / s^2.
        """
        a, s = 0.7, self.s
        y = a + s * reach
        steepest = max(s * math.exp((a / s) ** 2 / 2), 2 * s)
        f_ee = steepest * (reach + y / s**2 * steepest)
        f_xe = 0.1 * a * steepest / s**2
        f_xx = 0.1**2 * (a + y) / s**2
        return f_xe + max(f_ee, f_xx)


@final
class Circle(SmoothLaw):
    """Uniform on the circle of radius 1 + 0.3 x in R^2: a law on a curve, without a density.

    f~ = radius (cos, sin)(2 pi Phi(eta_1)); the usual eta / |eta| is not continuous at eta = 0. The second noise exists
    only because Theorem 4.2 requires m >= d_y; nothing depends on it.
    """

    name = "circle"
    m = 2
    d_y = 2

    @staticmethod
    def radius(x: Tensor) -> Tensor:
        """1 + 0.3 x."""
        return 1 + 0.3 * x

    def generator(self, x: Tensor, eta: Tensor) -> Tensor:
        angle = 2 * math.pi * Phi(eta[..., :1])
        return self.radius(x) * torch.cat([torch.cos(angle), torch.sin(angle)], -1)

    def sample(self, x: Tensor, generator: torch.Generator) -> Tensor:
        plane = torch.cat([normals(x, generator), normals(x, generator)], -1)
        return self.radius(x) * torch.nn.functional.normalize(plane, dim=-1)

    def uniforms(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002 - the angle does not depend on the radius
        return torch.atan2(y[..., 1:], y[..., :1]).remainder(2 * math.pi) / (2 * math.pi)

    def slopes(self, x: Tensor, eta: Tensor) -> Tensor:
        first = eta[..., :1]
        angle = 2 * math.pi * Phi(first)
        unit = torch.cat([torch.cos(angle), torch.sin(angle)], -1)
        turned = torch.cat([-torch.sin(angle), torch.cos(angle)], -1)
        speed = SQRT_2PI * torch.exp(-(first**2) / 2)  # 2 pi phi(eta)
        return torch.stack([0.3 * unit, self.radius(x) * speed * turned], -1)

    def curvature(self, reach: float) -> float:  # noqa: ARG002 - bounded on all of R
        """|f_eta eta| <= 1.3 (speed^2 + |speed'|),  |f_x eta| <= 0.3 speed,  f_xx = 0;  |speed'| <= sqrt(2 pi / e)."""
        speed = SQRT_2PI
        return 1.3 * (speed**2 + SQRT_2PI * math.exp(-0.5)) + 0.3 * speed


@final
class Banana(Law):
    """y_1 ~ N(0, 1),  y_2 | y_1 ~ N(x y_1^2, 0.3^2): a law on the plane with dependent coordinates."""

    name = "banana"
    m = 2
    d_y = 2

    def generator(self, x: Tensor, eta: Tensor) -> Tensor:
        first, second = eta[..., :1], eta[..., 1:]
        return torch.cat([first + 0 * x, x * first**2 + 0.3 * second], -1)

    def sample(self, x: Tensor, generator: torch.Generator) -> Tensor:
        first = normals(x, generator)
        return torch.cat([first, x * first**2 + 0.3 * normals(x, generator)], -1)

    def uniforms(self, x: Tensor, y: Tensor) -> Tensor:
        first, second = y[..., :1], y[..., 1:]
        return Phi(torch.cat([first, (second - x * first**2) / 0.3], -1))


LAWS: tuple[Law, ...] = (Deterministic(), HeteroscedasticGaussian(), Bimodal(), Circle(), Banana())
APPROXIMATED: tuple[SmoothLaw, ...] = (HeteroscedasticGaussian(), Bimodal(), Circle())  # used in Theorem 4.2


def inputs(n: int, generator: torch.Generator) -> Tensor:
    """n values of X, uniform on [-1, 1]: (n, 1), float64."""
    return 2 * torch.rand(n, 1, generator=generator, dtype=torch.float64) - 1


def noise(n: int, law: Law, generator: torch.Generator) -> Tensor:
    """eta ~ N(0, I_m): (n, m), float64."""
    return torch.randn(n, law.m, generator=generator, dtype=torch.float64)
