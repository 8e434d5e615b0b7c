"""What tests of this package, and of packages built on it, need: seeded generators, measured orders, strategies.

Needs hypothesis (``pip install sdeweights[testing]``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from sdeweights.cuts import AtT2, Cut
from sdeweights.drifts import SplitDrift


def seeded(seed: int = 0) -> torch.Generator:
    """A CPU generator."""
    return torch.Generator().manual_seed(seed)


def observed_order(dts: Sequence[float], errors: Sequence[float]) -> float:
    """Slope of log error against log dt by least squares.

    Example:
        >>> observed_order([0.1, 0.01], [1.0, 0.01])
        2.0
    """
    x, y = ([math.log(v) for v in values] for values in (dts, errors))
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    covariance = sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True))
    return covariance / sum((a - x_mean) ** 2 for a in x)


def windows(smallest: float = 1e-3) -> st.SearchStrategy[tuple[float, float]]:
    """Pairs 0 <= t1 < t2 <= 1 at least ``smallest`` apart; the ends 0 and 1 come often."""
    ends = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))
    return (
        st.tuples(ends, ends)
        .map(lambda pair: (min(pair), max(pair)))
        .filter(lambda pair: pair[1] - pair[0] >= smallest)
    )


def index_sets(d: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Non-empty sets of coordinates of d."""
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
    """f(t, w) = A tanh(w) + b t - w: Lipschitz, stable, time-dependent, and it mixes coordinates."""

    def __init__(self, d: int, seed: int) -> None:
        super().__init__()
        generator = seeded(seed)
        self.A = nn.Parameter(torch.randn(d, d, generator=generator, dtype=torch.float64) / math.sqrt(d))
        self.b = nn.Parameter(torch.randn(d, generator=generator, dtype=torch.float64))

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        """f(t, w), of w's shape."""
        return torch.tanh(w) @ self.A.T + self.b * t - w


def drift_for(cut: Cut, d: int, seed: int = 0) -> TanhDrift | SplitDrift:
    """A stable drift of d weights that a cut accepts: split where the cut is horizontal."""
    if not cut.splits(d):
        return TanhDrift(d, seed)
    S = cut.indices(d)
    return SplitDrift(TanhDrift(len(S), seed), TanhDrift(d - len(S), seed + 1), S, d)
