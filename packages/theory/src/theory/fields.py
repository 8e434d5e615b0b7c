"""Hidden drifts f_h(t, h; w) with a known Lipschitz constant in h, as Theorem 4.1 assumes.

An Euler step h -> h + dt f_h(t, h; w) is the identity plus a contraction, hence a homeomorphism, if dt * Lip < 1. So
the theorem holds exactly for a residual network of such steps, not only in the limit dt -> 0.
"""

import itertools
import math
from typing import final

import torch
from torch import Tensor, nn

from sdeweights import Functional, WeightPath


@final
class LipschitzNet(nn.Module):
    """f(t, h) = s (1 + cos 2 pi t) / 2 * A tanh(B h + b) + c, where s scales |A|_F |B|_F down to at most `cap`.

    With its parameters replaced by w, it is a network "whose parameters are w_t", eq. (9). Its Lipschitz constant in h
    is at most `cap` for every w.
    """

    def __init__(self, d: int, width: int, cap: float) -> None:
        super().__init__()
        if not cap > 0:
            raise ValueError(f"expected cap > 0, got {cap}")
        self.cap = cap
        self.A = nn.Parameter(torch.zeros(d, width, dtype=torch.float64))
        self.B = nn.Parameter(torch.zeros(width, d, dtype=torch.float64))
        self.b = nn.Parameter(torch.zeros(width, dtype=torch.float64))
        self.c = nn.Parameter(torch.zeros(d, dtype=torch.float64))

    def forward(self, t: Tensor, h: Tensor) -> Tensor:
        """f(t, h), of h's shape (batch, d)."""
        rate = (1 + torch.cos(2 * math.pi * t)) / 2
        return rate * scale(self.A, self.B, self.cap) * torch.tanh(h @ self.B.T + self.b) @ self.A.T + self.c


def scale(A: Tensor, B: Tensor, cap: float) -> Tensor:
    """The largest s <= 1 with s |A|_F |B|_F <= cap."""
    product = A.square().sum().sqrt() * B.square().sum().sqrt()
    return cap / product.clamp(min=cap)


def lipschitz_constant(f_h: Functional, w: Tensor) -> float:
    """s |A|_2 |B|_2: a Lipschitz constant in h of a `LipschitzNet` with weights w, (d_w,). At most its cap."""
    parts = f_h.unflatten(w)
    A, B = parts["A"], parts["B"]
    spectral = torch.linalg.matrix_norm(A, 2) * torch.linalg.matrix_norm(B, 2)
    cap = f_h.module.cap
    assert isinstance(cap, float)
    return float(scale(A, B, cap) * spectral)


def step_rates(f_h: Functional, path: WeightPath) -> list[float]:
    """dt * Lip of every Euler step along a path: the maximum over its samples."""
    dts = [b - a for a, b in itertools.pairwise(path.times)]
    weights = [path.start(k).detach().unbind(0) for k in range(path.steps)]
    return [dt * max(lipschitz_constant(f_h, w) for w in ws) for dt, ws in zip(dts, weights, strict=True)]


def step_condition(f_h: Functional, path: WeightPath) -> float:
    """The largest dt * Lip over the steps and samples of a path. If it is below 1, every step is a homeomorphism."""
    return max(step_rates(f_h, path))


def fold(t: Tensor, h: Tensor, w: Tensor) -> Tensor:  # noqa: ARG001 - independent of time and weights
    """(|h| - h_1) e_1, with Lipschitz constant 2: one Euler step of length 1 folds h to (|h|, h_2, ..., h_d).

    Its flow is a homeomorphism, but one Euler step with dt = 1 is not: a hyperplane separates the images of a ball and
    of a ring around it.
    """
    first = torch.zeros_like(h)
    first[..., 0] = h.norm(dim=-1) - h[..., 0]
    return first


FOLD_LIPSCHITZ = 2.0  # |grad |h| - e_1| <= 2, attained at h = -e_1
