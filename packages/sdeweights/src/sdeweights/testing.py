"""Helpers for tests of this package and of packages built on it: seeded generators, measured orders, strategies.

Requires hypothesis (`pip install sdeweights[testing]`).
"""

import math
from collections.abc import Callable, Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from sdeweights.cuts import AtT2, Cut
from sdeweights.drifts import BottleneckDrift, PriorPlus, SplitDrift, bottleneck
from sdeweights.priors import Prior


def seeded(seed: int = 0) -> torch.Generator:
    """A CPU generator with this seed."""
    return torch.Generator().manual_seed(seed)


def observed_order(dts: Sequence[float], errors: Sequence[float]) -> float:
    """Least-squares slope of log error against log dt.

    Example:
        >>> observed_order([0.1, 0.01], [1.0, 0.01])
        2.0
    """
    x, y = ([math.log(v) for v in values] for values in (dts, errors))
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - x_mean) ** 2 for a in x)


def windows(smallest: float = 1e-3) -> st.SearchStrategy[tuple[float, float]]:
    """Pairs 0 <= t1 < t2 <= 1 at least `smallest` apart; the ends 0 and 1 are drawn often."""
    ends = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))
    return (
        st.tuples(ends, ends)
        .map(lambda pair: (min(pair), max(pair)))
        .filter(lambda pair: pair[1] - pair[0] >= smallest)
    )


def index_sets(d: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Non-empty subsets of the coordinates 0 .. d - 1."""
    return st.sets(st.integers(0, d - 1), min_size=1, max_size=d).map(lambda chosen: tuple(sorted(chosen)))


@st.composite
def cuts(draw: st.DrawFn, d: int) -> Cut:
    """Any cut of d weights: deterministic, vertical, horizontal or both, with every policy at t2."""
    if draw(st.integers(0, 9)) == 0:
        return Cut.none()
    t1, t2 = draw(windows())
    stochastic = draw(st.one_of(st.just(1.0), index_sets(d)))
    policies = [str(policy) for policy in AtT2] if t2 < 1 else ["continue"]
    return Cut.both(t1, t2, stochastic, draw(st.sampled_from(policies)))


def vectors(d: int, largest: float = 2.0) -> st.SearchStrategy[Tensor]:
    """float64 vectors of shape (d,)."""
    entries = st.floats(-largest, largest, allow_subnormal=False)
    return st.lists(entries, min_size=d, max_size=d).map(lambda values: torch.tensor(values, dtype=torch.float64))


class TanhDrift(nn.Module):
    """f(t, w) = A tanh(w) + b t - w: a Lipschitz, stable, time-dependent drift that mixes coordinates."""

    def __init__(self, d: int, seed: int) -> None:
        super().__init__()
        generator = seeded(seed)
        self.A = nn.Parameter(torch.randn(d, d, generator=generator, dtype=torch.float64) / math.sqrt(d))
        self.b = nn.Parameter(torch.randn(d, generator=generator, dtype=torch.float64))

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        """f(t, w), with the shape of w."""
        return torch.tanh(w) @ self.A.T + self.b * t - w


def drift_for(cut: Cut, d: int, seed: int = 0) -> TanhDrift | SplitDrift:
    """A stable drift of d weights that is valid for a cut: split if the cut is horizontal."""
    if not cut.splits(d):
        return TanhDrift(d, seed)
    S = cut.indices(d)
    return SplitDrift(TanhDrift(len(S), seed), TanhDrift(d - len(S), seed + 1), S, d)


# Pairs (solver, ode_solver) for `WeightProcess.sample`. Every test of one pair should also run with the other.
EULERS = {"plain": ("euler", "euler"), "fused": ("fused-euler", "fused-euler")}


def affine_bottleneck(
    d: int, constant: float | Tensor = 0.0, slope: float | Tensor = 0.0, matrix: float | Tensor = 0.0
) -> BottleneckDrift:
    """A `BottleneckDrift` that equals the affine function c + s t + A w, so closed forms are known for every solver.

    The gates are 1/2 and w = relu(w) - relu(-w), so the function is exact up to rounding. c and s (`constant`, `slope`)
    are numbers or (d,); A (`matrix`) is (d, d), or a number for a multiple of the identity.

    Example:
        >>> affine_bottleneck(2, constant=1.0, matrix=-3.0)(torch.tensor(0.5), torch.tensor([1.0, 2.0]).double())
        tensor([-2., -5.], dtype=torch.float64, grad_fn=<AddBackward0>)
    """
    net = BottleneckDrift(d, (2 * d,), activation=torch.relu).double()
    eye = torch.eye(d, dtype=torch.float64)
    A = torch.as_tensor(matrix, dtype=torch.float64)
    A = A * eye if A.ndim == 0 else A
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.zero_()
        net.layers[0].weight.copy_(2 * torch.cat([eye, -eye]))  # type: ignore[operator]
        net.layers[1].weight.copy_(2 * torch.cat([A, -A], 1))  # type: ignore[operator]
        net.layers[1].bias.fill_(0).add_(2 * torch.as_tensor(constant))  # type: ignore[operator]
        net.layers[1].time_slope.fill_(0).add_(torch.as_tensor(slope))  # type: ignore[operator]
    return net


def affine_posterior(
    prior: Prior,
    cut: Cut,
    d: int,
    constant: float | Tensor = 0.0,
    slope: float | Tensor = 0.0,
    matrix: float | Tensor = 0.0,
) -> PriorPlus:
    """f_q = f_p + c + s t + A w, a drift that every solver supports; a horizontal cut keeps only A_SS and A_DD."""
    c, s = (torch.zeros(d, dtype=torch.float64) + value for value in (constant, slope))
    A = torch.as_tensor(matrix, dtype=torch.float64)
    A = A * torch.eye(d, dtype=torch.float64) if A.ndim == 0 else A

    def net(part: Tensor) -> BottleneckDrift:
        return affine_bottleneck(len(part), c[part], s[part], A[part][:, part])

    if not cut.splits(d):
        return PriorPlus(prior, net(torch.arange(d)))
    S = cut.indices(d)
    return PriorPlus(prior, SplitDrift(net(S), net(cut.complement(d)), S, d))


def random_posterior(
    prior: Prior,
    cut: Cut,
    d: int,
    seed: int = 0,
    hidden: str = "2-3",
    activation: Callable[[Tensor], Tensor] = nn.functional.softplus,
    knots: int = 0,
) -> PriorPlus:
    """f_q = f_p + a bottleneck net with normal parameters, in float64: a nonlinear drift that every solver supports.

    With knots, the net also has a diagonal part.
    """
    generator = seeded(seed)
    net = bottleneck(d, cut, hidden, knots=knots, activation=activation).double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=generator, dtype=torch.float64))
    return PriorPlus(prior, net)
