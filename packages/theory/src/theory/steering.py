"""f_q on R2 in the proof of Theorem 4.2: fields that take y at t = 1/2 to gamma + ratio y at t = 3/4.

With ratio = delta / (2 Lambda), every y with |y| <= Lambda ends within delta / 2 of gamma.
"""

import math

import torch
from torch import Tensor

from sdeweights.diffusion import Field
from theory.networks import Family

T2, T3 = 0.5, 0.75  # R1, R2 and R3 begin at 0, T2 and T3


def contraction(family: Family, gamma: Tensor, ratio: float) -> Field:
    """The linear field w' = k (w - c) as a network of either family, with e^{k/4} = ratio and c = gamma / (1 - ratio).

    A ReLU network represents it exactly, since u = relu(u) - relu(-u). A wide network uses tanh(s u) / s, which has a
    relative error of s^2 u^2 / 3.
    """
    if not 0 < ratio < 1:
        raise ValueError(f"expected a contraction, 0 < delta / (2 Lambda) < 1, got {ratio:g}")
    k, c = math.log(ratio) / (T3 - T2), gamma / (1 - ratio)
    s = 1e-3  # |u| < 30, so s^2 u^2 / 3 < 3e-4
    if family is Family.DEEP:
        return lambda t, w: torch.relu(k * (w - c)) - torch.relu(-k * (w - c))  # noqa: ARG005
    return lambda t, w: k / s * torch.tanh(s * (w - c))  # noqa: ARG005


def sheared(gamma: Tensor, ratio: float, m1: int) -> Field:
    """Lemma 3's three shears, acting on `w[:m_gamma]` and the extra weights `w[m1:]`, which start at zero."""
    quarter = (T3 - T2) / 4

    def field(t: Tensor, w: Tensor) -> Tensor:
        x, rest, y = w[..., : len(gamma)], w[..., len(gamma) : m1], w[..., m1:]
        dx, dy = torch.zeros_like(x), torch.zeros_like(y)
        if t < T2 + quarter:
            dy = (gamma + ratio * x) / quarter
        elif t < T2 + 3 * quarter:
            dx = (y - (y - gamma) / ratio) / (2 * quarter)
        else:
            dy = -x / quarter
        return torch.cat([dx, torch.zeros_like(rest), dy], -1)

    return field
