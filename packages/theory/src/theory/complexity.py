"""The complexity table of Appendix D.1: T evaluations of f_h, T of f_q, and r D_s T normal numbers per forward pass.

T is the number of steps, r the stochastic fraction of the depth, D_s the number of stochastic weights. Everything is
counted from outside the package, for one weight path and the Euler scheme: f_h by a list of its calls, and random
numbers and calls of f_q's activation by intercepting every torch call. For the vertical cut, the paper's table says
D_w T where its text says r D_w T; the count agrees with the text. If r T is not an integer, the grid rounds the number
of steps in the window, and the number of normals is D_s times the rounded number.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from sdeweights import BottleneckDrift, Cut, OrnsteinUhlenbeck, PriorPlus, SplitDrift, WeightProcess, flow
from sdeweights.testing import seeded
from theory.certificate import Certificate
from theory.equations import SOLVERS

CLAIM = "Complexity"
DRAWS = {"normal_", "normal", "randn", "randn_like", "log_normal_", "rand", "rand_like", "uniform_", "bernoulli_"}


class Watch(TorchFunctionMode):
    """Counts the random numbers drawn by torch, and the calls of each torch function, inside a `with` block."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = 0
        self.calls: Counter[str] = Counter()

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Forward the call and count it."""
        del types
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        self.calls[name] += 1
        if name in DRAWS:
            self.drawn += result.numel()
        return result


class Cost(NamedTuple):
    """Counts of one forward pass; for a split drift, f_q is the larger of the counts of f_S and f_D."""

    f_h: int
    f_q: int
    gaussians: int


def process_of(cut: Cut, d_w: int) -> WeightProcess:
    """A process whose f_q calls its activation once per evaluation: softplus, or tanh in the f_D of a split drift."""
    prior = OrnsteinUhlenbeck()
    net: BottleneckDrift | SplitDrift = BottleneckDrift(d_w, (2,), activation=F.softplus).double()
    if cut.splits(d_w):
        S = cut.indices(d_w)
        f_S = BottleneckDrift(len(S), (2,), activation=F.softplus).double()
        net = SplitDrift(f_S, BottleneckDrift(d_w - len(S), (2,), activation=torch.tanh).double(), S, d_w)
    return WeightProcess(torch.zeros(d_w, dtype=torch.float64), PriorPlus(prior, net), prior, cut)


def forward_cost(
    cut: Cut, d_w: int, steps: int, *, solver: str = "euler", ode_solver: str = "euler", method: str = "euler"
) -> Cost:
    """Counts of one forward pass: one weight path, then one hidden state along it."""
    process, generator = process_of(cut, d_w), seeded()
    times = []

    def f_h(t: Tensor, h: Tensor, w: Tensor) -> Tensor:
        times.append(t)
        return (h + t) * w[0]

    with torch.no_grad(), Watch() as watch:
        path = process.sample(steps, generator=generator, solver=solver, ode_solver=ode_solver)
        flow(f_h, torch.zeros(1, 1, dtype=torch.float64), path, method)
    return Cost(len(times), max(watch.calls["softplus"], watch.calls["tanh"]), watch.drawn)


T, D_W = 60, 40
ROWS = {  # of the paper's table: a cut of D_W weights, with r and D_s
    "SDE-BNN": (Cut.full(), 1.0, D_W),
    "vertical": (Cut.ode_first(0.1), 0.1, D_W),
    "horizontal": (Cut.horizontal(0.25), 1.0, D_W // 4),
    "both cuts": (Cut.both(0.3, 0.6, 0.25), 0.3, D_W // 4),
}


def certify(seed: int = 0) -> list[Certificate]:  # noqa: ARG001 - the counts do not depend on the numbers drawn
    """The four rows of the table, for each solver."""
    return [certificate for solver in SOLVERS for name in ROWS for certificate in _row(name, solver)]


def _row(name: str, solver: str) -> list[Certificate]:
    cut, r, D_s = ROWS[name]
    cost = forward_cost(cut, D_W, T, solver=solver, ode_solver=solver)
    where = f"{name}, T = {T}, {solver}"
    return [
        Certificate(CLAIM, f"{where}: evaluations of f_h", cost.f_h, "==", T),
        Certificate(CLAIM, f"{where}: evaluations of f_q", cost.f_q, "==", T),
        Certificate(CLAIM, f"{where}: normals, r = {r:g}, D_s = {D_s}", cost.gaussians, "==", round(r * D_s * T)),
    ]
