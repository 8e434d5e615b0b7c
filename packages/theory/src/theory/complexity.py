"""The complexity table of Appendix D.1: T evaluations of f_h, T of f_q, and r D_s T normal numbers in a forward pass.

T is the number of steps, r the stochastic share of depth, D_s the number of stochastic weights. Counted from outside:
by wrappers around f_h and f_q, and by watching every call of torch that draws random numbers; one weight path, Euler
throughout. The paper's row for the vertical cut says D_w T where its text says r D_w T; the count agrees with the text.
Where r T is no integer, the grid rounds the steps of the window, and D_s times that number is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from sdeweights import Cut, OrnsteinUhlenbeck, SplitDrift, WeightProcess, flow
from sdeweights.testing import TanhDrift, seeded
from theory.certificate import Certificate

CLAIM = "Complexity"
DRAWS = {"normal_", "normal", "randn", "randn_like", "log_normal_", "rand", "rand_like", "uniform_", "bernoulli_"}


@dataclass
class Calls:
    """A function that counts how often it is called."""

    function: Callable[..., Tensor]
    count: int = 0

    def __call__(self, *arguments: Any) -> Tensor:
        self.count += 1
        return self.function(*arguments)


class RandomNumbers(TorchFunctionMode):
    """Counts the random numbers that torch draws inside a ``with`` block, whoever asks for them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Pass the call on; add up the size of what it drew."""
        del types
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in DRAWS:
            self.count += result.numel()
        return result


class Cost(NamedTuple):
    """What one forward pass asked for; of a drift split into f_S and f_D, the calls of the busier half."""

    f_h: int
    f_q: int
    gaussians: int


def forward_cost(
    cut: Cut, d_w: int, steps: int, *, solver: str = "euler", ode_solver: str = "euler", method: str = "euler"
) -> Cost:
    """Counts of one forward pass: one weight path, then one hidden state along it."""
    f_S, f_D, f_h = Calls(TanhDrift(d_w, 0)), Calls(TanhDrift(d_w, 1)), Calls(lambda t, h, w: torch.sin(h + t) * w[0])
    drift: Any = f_S
    if cut.splits(d_w):
        S = cut.indices(d_w)
        f_S, f_D = Calls(TanhDrift(len(S), 0)), Calls(TanhDrift(d_w - len(S), 1))
        drift = SplitDrift(f_S, f_D, S, d_w)
    process = WeightProcess(torch.zeros(d_w, dtype=torch.float64), drift, OrnsteinUhlenbeck(), cut)
    f_S.count = f_D.count = 0  # building a process looks at the drift once
    generator = seeded()
    with torch.no_grad(), RandomNumbers() as drawn:
        path = process.sample(steps, generator=generator, solver=solver, ode_solver=ode_solver)
        flow(f_h, torch.zeros(1, 1, dtype=torch.float64), path, method)
    return Cost(f_h.count, max(f_S.count, f_D.count), drawn.count)


class Row(NamedTuple):
    """A row of the paper's table: a cut of ``d_w`` weights, with r and D_s."""

    name: str
    cut: Cut
    r: float
    D_s: int


T, D_W = 60, 40
ROWS = (
    Row("SDE-BNN", Cut.full(), 1.0, D_W),
    Row("vertical", Cut.ode_first(0.1), 0.1, D_W),
    Row("horizontal", Cut.horizontal(0.25), 1.0, D_W // 4),
    Row("both cuts", Cut.both(0.3, 0.6, 0.25), 0.3, D_W // 4),
)


def certify(seed: int = 0) -> list[Certificate]:
    """The four rows of the table."""
    del seed  # nothing here depends on what is drawn
    return [certificate for row in ROWS for certificate in _row(row)]


def _row(row: Row) -> list[Certificate]:
    cost = forward_cost(row.cut, D_W, T)
    where = f"{row.name}, T = {T}"
    return [
        Certificate(CLAIM, f"{where}: evaluations of f_h", cost.f_h, "==", T),
        Certificate(CLAIM, f"{where}: evaluations of f_q", cost.f_q, "==", T),
        Certificate(
            CLAIM, f"{where}: normals, r = {row.r:g}, D_s = {row.D_s}", cost.gaussians, "==", round(row.r * row.D_s * T)
        ),
    ]
