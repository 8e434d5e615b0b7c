"""Any method of torchdiffeq for deterministic phases, adaptive ones included: `ode_solver="torchdiffeq:dopri5"`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torchdiffeq import odeint
from torchdiffeq._impl.odeint import SOLVERS  # torchdiffeq lists its methods only here

from sdeweights.diffusion import Field
from sdeweights.errors import NonFiniteState, norm

_ADAPTIVE = {"dopri5", "dopri8", "bosh3", "fehlberg2", "adaptive_heun"}
_FIXED_ORDERS = {"euler": 1.0, "midpoint": 2.0, "heun2": 2.0, "heun3": 3.0, "rk4": 4.0}


@dataclass(frozen=True)
class Torchdiffeq:
    """One method of torchdiffeq with its tolerances; fixed-step methods take one step between grid points.

    Adaptive methods are called for one interval at a time and forced to finish with a step that ends at its right end.
    By default they interpolate, and the interpolant is less accurate than the tolerance: at rtol 1e-7 and 100 grid
    points, bosh3 is off by 3e-5; with steps that end at the grid points it is within 3e-8.
    """

    method: str
    rtol: float = 1e-7
    atol: float = 1e-9

    def __post_init__(self) -> None:
        if self.method not in SOLVERS:
            raise ValueError(f"expected a method of torchdiffeq, one of {', '.join(SOLVERS)}, got {self.method!r}")

    @property
    def order(self) -> float:
        """Order of a fixed-step method; NaN for adaptive methods, whose accuracy depends on the tolerances."""
        return _FIXED_ORDERS.get(self.method, float("nan"))

    def solve(self, f: Field, w: Tensor, times: Sequence[float]) -> Tensor:
        """States at all `times`, (s, n + 1, d)."""
        return torch.stack(self.states(f, w, times), 1)

    def states(self, f: Field, w: Tensor, times: Sequence[float]) -> list[Tensor]:
        """State at each of `times`, of any shape."""
        if self.method not in _ADAPTIVE:
            return self._call(f, w, times)
        states = [w]
        for k, (a, b) in enumerate(pairwise(times), 1):
            try:
                states.append(self._call(f, states[-1], (a, b))[-1])
            except AssertionError as error:  # torchdiffeq's "underflow in dt": NaN, or no step is small enough
                raise NonFiniteState(
                    f"torchdiffeq:{self.method} gave up in step {k} of {len(times) - 1}, between t={a:g} and t={b:g} "
                    f"({error}); norm of the state at the start: {norm(states[-1].flatten()):.6g}"
                ) from None
        return states

    def _call(self, f: Field, w: Tensor, times: Sequence[float]) -> list[Tensor]:
        # float64 times: in float32 the ends of short steps could coincide
        ts = torch.tensor(times, dtype=torch.float64, device=w.device)
        # one interval: try a single step first, and finish with a step that ends exactly at its end
        options = {"first_step": ts[1] - ts[0], "step_t": ts[1:]} if self.method in _ADAPTIVE else None
        states = odeint(
            lambda t, x: f(t.to(x.dtype), x), w, ts, method=self.method, rtol=self.rtol, atol=self.atol, options=options
        )
        return list(states.unbind(0))
