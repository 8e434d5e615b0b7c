"""Look up schemes by name: `solver` for the stochastic phase, `ode_solver` for deterministic phases and coordinates."""

from typing import TypeVar

from sdeweights.fused import FusedEuler, FusedOdeEuler
from sdeweights.solvers.base import OdeSolver, SdeSolver
from sdeweights.solvers.euler_maruyama import EulerMaruyama
from sdeweights.solvers.heun import Heun
from sdeweights.solvers.midpoint import Midpoint
from sdeweights.solvers.milstein import Milstein
from sdeweights.solvers.runge_kutta import RUNGE_KUTTA, RungeKutta
from sdeweights.solvers.sra1 import Sra1
from sdeweights.solvers.torchdiffeq_adapter import Torchdiffeq
from sdeweights.solvers.torchsde_adapter import METHODS, Torchsde

SDE_SOLVERS: dict[str, SdeSolver] = {
    "euler": EulerMaruyama(),
    "fused-euler": FusedEuler(),
    "heun": Heun(),
    "midpoint": Midpoint(),
    "milstein": Milstein(),
    "sra1": Sra1(),
}
ODE_SOLVERS: dict[str, OdeSolver] = {**RUNGE_KUTTA, "fused-euler": FusedOdeEuler()}
_Scheme = TypeVar("_Scheme", SdeSolver, OdeSolver)


def sde_solver(solver: str | SdeSolver) -> SdeSolver:
    """A stochastic scheme by name ("euler", "torchsde:srk", ...), or the scheme itself."""
    if not isinstance(solver, str):
        return _require_instance(solver, "solver", "heun")
    library, _, method = solver.partition(":")
    if library == "torchsde" and method in METHODS:
        return Torchsde(method)
    if solver not in SDE_SOLVERS:
        names = [*SDE_SOLVERS, *(f"torchsde:{method}" for method in METHODS)]
        raise ValueError(f"expected solver to be one of {', '.join(names)}, got {solver!r}")
    return SDE_SOLVERS[solver]


def ode_solver(solver: str | OdeSolver) -> OdeSolver:
    """A deterministic scheme by name ("rk4", "torchdiffeq:dopri5", ...), or the scheme itself.

    `Torchdiffeq("dopri5", rtol=1e-10)` sets tolerances.
    """
    if not isinstance(solver, str):
        return _require_instance(solver, "ode_solver", "rk4")
    library, _, method = solver.partition(":")
    if library == "torchdiffeq":
        return Torchdiffeq(method)
    if solver not in ODE_SOLVERS:
        raise ValueError(
            f"expected ode_solver to be one of {', '.join(ODE_SOLVERS)}, torchdiffeq:METHOD, got {solver!r}"
        )
    return ODE_SOLVERS[solver]


def _require_instance(solver: _Scheme, name: str, example: str) -> _Scheme:
    if isinstance(solver, type) or not hasattr(solver, "solve"):
        raise ValueError(f'expected {name} to be a name such as "{example}" or a scheme, got {solver!r}')
    return solver


__all__ = [
    "ODE_SOLVERS", "SDE_SOLVERS", "EulerMaruyama", "FusedEuler", "FusedOdeEuler", "Heun", "Midpoint", "Milstein",
    "OdeSolver", "RungeKutta", "SdeSolver", "Sra1", "Torchdiffeq", "Torchsde", "ode_solver", "sde_solver",
]  # fmt: skip
