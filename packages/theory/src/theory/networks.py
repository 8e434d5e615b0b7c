"""Networks with the universal approximation property, Section 4.2: wide with fixed depth, or deep with fixed width.

    wide   F(z) = V tanh(A z + b) + c,  one hidden layer                                (Leshno et al., 1993)
    deep   ReLU layers of d_in + d_out + 1 neurons each, one layer for every unit of V relu(A z + b) + c

The deep network passes z and the partial sum from layer to layer, both shifted to be positive so relu leaves them
unchanged, and each layer adds one unit. On |z_i| <= reach it equals the shallow network.
"""

import itertools
import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self, final

import torch
from torch import Tensor, nn


class Family(StrEnum):
    """The two universal families."""

    WIDE = "wide tanh"
    DEEP = "deep ReLU"


@final
@dataclass(frozen=True, eq=False)
class Shallow:
    """V act(A z + b) + c with A (units, d_in), b (units,), V (d_out, units), c (d_out,); act is tanh or relu."""

    family: Family
    A: Tensor
    b: Tensor
    V: Tensor
    c: Tensor

    def __call__(self, z: Tensor) -> Tensor:
        """F(z), from (..., d_in) to (..., d_out)."""
        return self.features(z) @ self.V.T + self.c

    def features(self, z: Tensor) -> Tensor:
        """act(A z + b), (..., units)."""
        u = z @ self.A.T + self.b
        return torch.tanh(u) if self.family is Family.WIDE else torch.relu(u)

    def feature_slopes(self, z: Tensor) -> Tensor:
        """act'(A z + b), (..., units)."""
        u = z @ self.A.T + self.b
        return 1 - torch.tanh(u) ** 2 if self.family is Family.WIDE else (u > 0).to(u)

    def slopes(self, z: Tensor) -> Tensor:
        """dF / dz, (..., d_out, d_in)."""
        return torch.einsum("...h,oh,hi->...oi", self.feature_slopes(z), self.V, self.A)

    def remainder(self, z: Tensor, radius: float) -> Tensor:
        """Bound on the deviation of F from its tangent at z within `radius`, (...,).

        tanh: 1/2 radius^2 sum |V_j| |A_j|^2 times |tanh''| <= 4 / (3 sqrt 3). relu: a unit equals its tangent unless
        its kink lies within the radius, in which case it deviates by at most |V_j| |A_j| radius.
        """
        V, A = self.V.norm(dim=0), self.A.norm(dim=1)
        if self.family is Family.WIDE:
            bend = float((V * A**2).sum()) * 4 / (3 * math.sqrt(3))
            return z.new_full(z.shape[:-1], bend * radius**2 / 2)
        near = ((z @ self.A.T + self.b).abs() <= A * radius).to(z)
        return torch.mv(near.flatten(0, -2), V * A).view(z.shape[:-1]) * radius

    def ignoring(self, extra: int) -> Self:
        """The same function of z, with `extra` more inputs that it ignores."""
        return replace(self, A=torch.cat([self.A, self.A.new_zeros(len(self.A), extra)], 1))

    def module(self, reach: float) -> nn.Sequential:
        """The network as torch layers; a deep network equals F only on |z_i| <= reach."""
        if self.family is Family.DEEP:
            return _deep(self, reach)
        return nn.Sequential(_linear(self.A, self.b), nn.Tanh(), _linear(self.V, self.c))


def _linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


def _deep(F: Shallow, reach: float) -> nn.Sequential:
    """Layer j holds [z + reach, sum of the units before j plus shift, unit j]."""
    units, d_in = F.A.shape
    d_out = len(F.c)
    largest = F.A.abs().sum(1) * reach + F.b.abs()  # upper bound on each unit over the box
    shift = F.V.abs() @ largest  # per output: no partial sum is below -shift
    eye_in, eye_out = torch.eye(d_in).to(F.A), torch.eye(d_out).to(F.A)

    first = torch.cat([eye_in, F.A.new_zeros(d_out, d_in), F.A[:1]])
    layers: list[nn.Module] = [_linear(first, torch.cat([F.A.new_full((d_in,), reach), shift, F.b[:1]])), nn.ReLU()]
    for j in range(1, units):
        weight = F.A.new_zeros(d_in + d_out + 1, d_in + d_out + 1)
        weight[:d_in, :d_in] = eye_in
        weight[d_in:-1, d_in:-1] = eye_out
        weight[d_in:-1, -1] = F.V[:, j - 1]
        weight[-1, :d_in] = F.A[j]
        bias = torch.cat([F.A.new_zeros(d_in + d_out), (F.b[j] - F.A[j].sum() * reach)[None]])
        layers += [_linear(weight, bias), nn.ReLU()]
    last = torch.cat([F.A.new_zeros(d_out, d_in), eye_out, F.V[:, -1:]], 1)
    return nn.Sequential(*layers, _linear(last, F.c - shift))


def sensitivity(net: nn.Sequential, reach: float, rho: float) -> float:
    """Bound on |F_{gamma'}(z) - F_gamma(z)| for |gamma' - gamma| <= rho, |z| <= reach; gamma holds all parameters.

    Computed layer by layer, using that activations are 1-Lipschitz with act(0) = 0:
    gap <- (|W| + rho) gap + rho |[a, 1]|,  |a| <- |W| |a| + |b|, or sqrt(neurons) after a tanh if that is less.
    """
    gap, size = 0.0, reach
    for layer, after in itertools.zip_longest(net, list(net)[1:]):
        if not isinstance(layer, nn.Linear):
            continue
        W = float(torch.linalg.matrix_norm(layer.weight.detach(), 2))
        gap = (W + rho) * gap + rho * math.sqrt(size**2 + 1)
        size = W * size + float(layer.bias.detach().norm())
        if isinstance(after, nn.Tanh):
            size = min(size, math.sqrt(len(layer.bias)))
    return gap


def largest_radius(net: nn.Sequential, reach: float, allowed: float) -> float:
    """The delta of the proof: the largest rho with sensitivity(net, reach, rho) <= allowed, by bisection."""
    low, high = -120.0, 10.0  # of log rho
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sensitivity(net, reach, math.exp(middle)) <= allowed else (low, middle)
    if sensitivity(net, reach, math.exp(low)) > allowed:
        raise ValueError(f"expected a change of at most {allowed:g} for some radius, got more for every radius")
    return math.exp(low)
