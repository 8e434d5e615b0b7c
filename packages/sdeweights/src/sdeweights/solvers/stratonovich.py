"""What the Stratonovich schemes share: the drift that makes them solve an Ito equation."""

from __future__ import annotations

from torch import Tensor

from sdeweights.diffusion import Kind, require_elementwise
from sdeweights.solvers.base import Sde


def require_correctable(sde: Sde, t: Tensor, w: Tensor, scheme: str) -> None:
    """Refuse noise whose correction would need more than what g's own derivative gives."""
    if not sde.additive and sde.kind is not Kind.DENSE:
        require_elementwise(sde.diffusion, t, w, sde.noisy, scheme)


def drift(sde: Sde, t: Tensor, w: Tensor) -> Tensor:
    """f - 1/2 sum_j (d g_j / dw) g_j."""
    return sde.drift(t, w) - sde.correction(t, w)
