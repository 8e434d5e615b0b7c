"""Any method of torchdiffeq for deterministic phases, adaptive ones included: ``ode_solver="torchdiffeq:dopri5"``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torchdiffeq import odeint

from sdeweights.diffusion import Field
from sdeweights.errors import NonFiniteState

_ADAPTIVE = {"dopri5", "dopri8", "bosh3", "fehlberg2", "adaptive_heun"}
_FIXED_ORDERS = {"euler": 1.0, "midpoint": 2.0, "heun2": 2.0, "heun3": 3.0, "rk4": 4.0}


@dataclass(frozen=True)
class Torchdiffeq:
    """One method of torchdiffeq with its tolerances; fixed-step methods take one step between grid points.

    Adaptive methods step onto every grid point. Left to themselves they interpolate there, and the interpolant is worse
    than the tolerance asks for: at rtol 1e-7, bosh3 is off by 2e-5 on a smooth drift on which its steps are within 1e-6.
    """

    method: str
    rtol: float = 1e-7
    atol: float = 1e-9

    @property
    def order(self) -> float:
        """Order of a fixed-step method; NaN where the tolerances decide."""
        return _FIXED_ORDERS.get(self.method, float("nan"))

    def solve(self, f: Field, w: Tensor, times: Sequence[float]) -> list[Tensor]:
        """States at all ``times``."""
        # float64 times: in float32 the ends of short steps could coincide
        ts = torch.tensor(times, dtype=torch.float64, device=w.device)
        try:
            states = odeint(
                lambda t, x: f(t.to(x.dtype), x),
                w,
                ts,
                method=self.method,
                rtol=self.rtol,
                atol=self.atol,
                options={"step_t": ts[1:]} if self.method in _ADAPTIVE else None,
            )
        except AssertionError as error:  # torchdiffeq's "underflow in dt": no step is small enough, or NaN
            raise NonFiniteState(
                f"torchdiffeq:{self.method} gave up between t={times[0]:g} and t={times[-1]:g} ({error}); "
                f"norm of the state at the start: {float(w.detach().norm()):.6g}"
            ) from None
        return list(states.unbind(0))
