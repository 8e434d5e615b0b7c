"""Any fixed-step method of torchsde, driven by the same noise as our own schemes: `solver="torchsde:srk"`.

Time is counted in steps: with t = start + h s and B(t) = sqrt(h) W(s), the phase becomes

    dw = h f ds + sqrt(h) g dW,     s = 0, 1, ..., n

and torchsde's steps of length 1 hit the grid exactly. Step lengths such as 0.1 would accumulate rounding errors and
leave a final step of almost zero length.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torchsde
from torch import Tensor

from sdeweights.brownian import Increments
from sdeweights.diffusion import Kind
from sdeweights.solvers import stratonovich
from sdeweights.solvers.base import Sde, Solution, clock

# measured strong order (tests/test_orders.py) for additive and for elementwise multiplicative noise; normals per step
_ITO = {"euler": (1.0, 0.5, 1), "milstein": (1.0, 1.0, 1), "srk": (1.5, 1.5, 2)}
_STRATONOVICH = {
    "euler_heun": (1.0, 1.0, 1),
    "heun": (1.0, 1.0, 1),
    "midpoint": (1.0, 1.0, 1),
    "reversible_heun": (1.0, 1.0, 1),
    "log_ode": (1.0, 1.0, 2),
}
METHODS = _ITO | _STRATONOVICH


@dataclass(frozen=True)
class Torchsde:
    """One method of torchsde. For `log_ode`, the Levy area is replaced by its mean given the noise."""

    method: str

    @property
    def noises(self) -> int:
        """Number of standard normals drawn per step and coordinate."""
        return METHODS[self.method][2]

    def order(self, additive: bool) -> float:
        """Strong order; for state-dependent noise, the order for diagonal noise whose g_i depends only on w_i."""
        return METHODS[self.method][0 if additive else 1]

    def check(self, sde: Sde, t: Tensor, w: Tensor) -> None:
        """Raise ValueError for diagonal noise that mixes coordinates, and for noise that torchsde cannot handle."""
        if sde.kind is Kind.DENSE and not sde.additive and self.method in ("milstein", "srk"):
            raise ValueError(
                f"expected a diagonal diffusion for torchsde:{self.method}, got a dense one that depends on w"
            )
        if self.method != "euler":
            stratonovich.require_correctable(sde, t, w, f"torchsde:{self.method}")

    def solve(self, sde: Sde, w: Tensor, times: Sequence[float], noise: Increments) -> Solution:
        """States at all `times`, and the KL from gaps and diffusions that are evaluated at the left ends afterwards."""
        steps = len(times) - 1
        counts = torch.arange(steps + 1, dtype=w.dtype, device=w.device)
        # A view of a parameter requires gradients even under no_grad; torchsde would then treat dg/dw as zero.
        w = w if torch.is_grad_enabled() else w.detach()
        problem = _InSteps(sde, times, w, "stratonovich" if self.method in _STRATONOVICH else "ito")
        bm = _OnGrid(sde, noise, w.shape[-1])
        states = torchsde.sdeint(problem, w, counts, bm=bm, method=self.method, dt=1.0).unbind(0)
        left = list(zip(clock(times, w)[:-1], states, strict=False))
        ends = [(sde.drift_and_gap(t, state)[1], sde.diffusion(t, state)) for t, state in left]
        return Solution.of(sde, states, ends, times)


class _InSteps:
    """The equation with time counted in steps, in the form that torchsde expects."""

    def __init__(self, sde: Sde, times: Sequence[float], w: Tensor, sde_type: str) -> None:
        self.sde_type = sde_type
        self.dense = sde.kind is Kind.DENSE
        self.noise_type = "additive" if self.dense and sde.additive else "general" if self.dense else "diagonal"
        self._sde = sde
        self._ts = clock(times, w)
        self._h = times[1] - times[0]

    def _time(self, s: Tensor) -> Tensor:
        count = float(s)
        k = min(int(count), len(self._ts) - 2)
        return torch.lerp(self._ts[k], self._ts[k + 1], count - k)

    def f(self, s: Tensor, w: Tensor) -> Tensor:
        t = self._time(s)
        return self._h * (
            stratonovich.drift(self._sde, t, w) if self.sde_type == "stratonovich" else self._sde.drift(t, w)
        )

    def g(self, s: Tensor, w: Tensor) -> Tensor:
        g = self._sde.diffusion(self._time(s), w) * math.sqrt(self._h)
        m, d = len(self._sde.noisy), w.shape[-1]
        if not self.dense:
            return self._sde.spread(g.expand(len(w), m), d)
        rows = g.expand(len(w), m, m)
        return rows if m == d else g.new_zeros(len(w), d, m).index_copy(1, self._sde.noisy, rows)


class _OnGrid(torchsde.BaseBrownian):  # type: ignore[misc]
    """Our increments behind torchsde's interface, in units of a step."""

    def __init__(self, sde: Sde, noise: Increments, d: int) -> None:
        spread = (lambda x: x) if sde.kind is Kind.DENSE else (lambda x: sde.spread(x, d))
        self._W = [spread(dB) / math.sqrt(noise.dt) for dB in noise.dB.unbind(1)]
        self._U = None if noise.Z is None else [spread(Z) / noise.dt**1.5 for Z in noise.Z.unbind(1)]

    def __call__(
        self,
        ta: Any,
        tb: Any = None,  # noqa: ARG002 - always ta + 1
        return_U: bool = False,
        return_A: bool = False,
    ) -> Any:
        k = round(float(ta))
        W = self._W[k]
        if not (return_U or return_A):
            return W
        if self._U is None:
            raise ValueError("expected increments with time integrals (noises=2) for this method, got increments alone")
        U = self._U[k]
        H = U - W / 2
        A = H.unsqueeze(-1) * W.unsqueeze(-2) - W.unsqueeze(-1) * H.unsqueeze(-2)
        return (W, *((U,) if return_U else ()), *((A,) if return_A else ()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(steps={len(self._W)})"

    @property
    def dtype(self) -> torch.dtype:
        return self._W[0].dtype

    @property
    def device(self) -> torch.device:
        return self._W[0].device

    @property
    def shape(self) -> torch.Size:
        return self._W[0].shape

    @property
    def levy_area_approximation(self) -> str:
        return "none" if self._U is None else "davie"
