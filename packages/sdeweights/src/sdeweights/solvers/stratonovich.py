"""The corrected drift  f~ = f - 1/2 sum_j (d g_j / dw) g_j  that lets Stratonovich schemes solve an Ito equation."""

from torch import Tensor

from sdeweights.diffusion import Kind, require_differentiable, require_elementwise
from sdeweights.solvers.base import Sde


def require_correctable(sde: Sde, t: Tensor, w: Tensor, scheme: str) -> None:
    """Raise ValueError if the correction cannot be computed: a diagonal g mixes coordinates or has no derivative."""
    if sde.additive:
        return
    if sde.kind is Kind.DENSE:
        require_differentiable(sde.diffusion, t, w, scheme)
    else:
        require_elementwise(sde.diffusion, t, w, sde.noisy, scheme)


def drift(sde: Sde, t: Tensor, w: Tensor) -> Tensor:
    """f - 1/2 sum_j (d g_j / dw) g_j."""
    return sde.drift(t, w) - sde.correction(t, w)
