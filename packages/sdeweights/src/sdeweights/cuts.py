"""Which weights are noisy, and when:  dw = f_q dt + 1[t1 < t < t2] P_S g P_S dB,  eqs. (4)-(6) and (11).

A cut is a value: a window of depth (t1, t2), a set S of coordinates, and what happens to w_S at t2.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from numbers import Integral, Real
from typing import Self

import torch
from torch import Tensor


class AtT2(StrEnum):
    """What w_S starts from when the ODE takes over at t2."""

    CONTINUE = "continue"  # the sampled state, so w stays random after t2
    FIXED = "fixed"  # a constant
    LEARNED = "learned"  # a trainable value


@dataclass(frozen=True)
class Cut:
    """Where the weights are noisy: a window (t1, t2), stochastic coordinates S, and the policy at t2.

    Attributes:
        t1: start of the stochastic window.
        t2: its end.
        stochastic: the fraction of coordinates that are stochastic (S is the first `round(fraction * d)`), or their
            indices.
        at_t2: "continue", "fixed" or "learned".

    Example:
        >>> Cut.vertical(0.3, 0.6)
        Cut(t1=0.3, t2=0.6, stochastic=1.0, at_t2='continue')
        >>> Cut.horizontal(0.5).indices(4)
        tensor([0, 1])
    """

    t1: float = 0.0
    t2: float = 1.0
    stochastic: float | tuple[int, ...] = 1.0
    at_t2: str = "continue"

    def __post_init__(self) -> None:
        for t in (self.t1, self.t2):
            if isinstance(t, bool) or not isinstance(t, Real):
                raise ValueError(f"expected t1 and t2 to be numbers, got {t!r}")
        if not 0 <= self.t1 < self.t2 <= 1:  # also rejects NaN
            raise ValueError(f"expected 0 <= t1 < t2 <= 1, got t1={self.t1}, t2={self.t2}")
        policies = [str(policy) for policy in AtT2]
        if self.at_t2 not in policies:
            raise ValueError(f"expected at_t2 to be one of {', '.join(policies)}, got {self.at_t2!r}")
        object.__setattr__(self, "t1", float(self.t1))
        object.__setattr__(self, "t2", float(self.t2))
        object.__setattr__(self, "at_t2", str(self.at_t2))
        object.__setattr__(self, "stochastic", _checked(self.stochastic))
        if self.resets and self.t2 == 1:
            raise ValueError(f"expected t2 < 1 with at_t2={self.at_t2!r}, got t2=1: nothing comes after the reset")
        if self.resets and self.deterministic:
            raise ValueError(f"expected a stochastic coordinate with at_t2={self.at_t2!r}, got an empty set S")

    @classmethod
    def full(cls) -> Self:
        """All weights are noisy at all t: the SDE-BNN."""
        return cls()

    @classmethod
    def none(cls) -> Self:
        """No noise anywhere: the weights follow an ODE."""
        return cls(stochastic=0.0)

    @classmethod
    def vertical(cls, t1: float, t2: float, at_t2: str = "continue") -> Self:
        """All weights are noisy for t in (t1, t2)."""
        return cls(t1, t2, 1.0, at_t2)

    @classmethod
    def ode_first(cls, ratio: float) -> Self:
        """All weights are noisy in the last `ratio` of the depth: vertical(1 - ratio, 1)."""
        return cls.vertical(1 - _ratio(ratio), 1.0)

    @classmethod
    def sde_first(cls, ratio: float, at_t2: str = "continue") -> Self:
        """All weights are noisy in the first `ratio` of the depth: vertical(0, ratio)."""
        return cls.vertical(0.0, _ratio(ratio), at_t2)

    @classmethod
    def horizontal(cls, stochastic: float | Iterable[int]) -> Self:
        """Some of the weights are noisy at all t."""
        return cls.both(0.0, 1.0, stochastic)

    @classmethod
    def both(cls, t1: float, t2: float, stochastic: float | Iterable[int], at_t2: str = "continue") -> Self:
        """Some of the weights are noisy for t in (t1, t2)."""
        return cls(t1, t2, stochastic, at_t2)  # type: ignore[arg-type]  # validation converts it to a tuple

    @property
    def resets(self) -> bool:
        """Whether w_S is reset at t2."""
        return self.at_t2 != AtT2.CONTINUE

    @cached_property
    def deterministic(self) -> bool:
        """Whether S is empty."""
        return self.stochastic in (0.0, ())

    def indices(self, d: int) -> Tensor:
        """The stochastic coordinates S of a weight vector of size d: sorted, int64."""
        if isinstance(self.stochastic, tuple):
            if self.stochastic and self.stochastic[-1] >= d:
                raise ValueError(f"expected indices below d={d}, got {self.stochastic[-1]}")
            return torch.tensor(self.stochastic, dtype=torch.int64)
        size = round(self.stochastic * d)
        if size == 0 and self.stochastic > 0:
            raise ValueError(f"expected a share of at least one of d={d} coordinates, got {self.stochastic}")
        return torch.arange(size)

    def complement(self, d: int) -> Tensor:
        """The deterministic coordinates D of a weight vector of size d: sorted, int64."""
        mask = torch.ones(d, dtype=torch.bool)
        mask[self.indices(d)] = False
        return mask.nonzero().squeeze(-1)

    def splits(self, d: int) -> bool:
        """Whether S and D are both non-empty, in which case the drift must be split."""
        return 0 < len(self.indices(d)) < d


def _ratio(ratio: float) -> float:
    if isinstance(ratio, bool) or not isinstance(ratio, Real) or not 0 < ratio <= 1:
        raise ValueError(f"expected 0 < ratio <= 1, got {ratio!r}; Cut.none() has no stochastic depth")
    return ratio


def _as_tuple(indices: Iterable[int]) -> tuple[int, ...]:
    return tuple(indices.tolist() if isinstance(indices, Tensor) else indices)


def _checked(stochastic: float | Iterable[int]) -> float | tuple[int, ...]:
    if not isinstance(stochastic, Iterable) or (isinstance(stochastic, Tensor) and stochastic.ndim == 0):
        if isinstance(stochastic, bool) or not isinstance(stochastic, Real) or not 0 <= stochastic <= 1:
            raise ValueError(f"expected a share in [0, 1] or a sequence of indices, got {stochastic!r}")
        return float(stochastic)
    stochastic = _as_tuple(stochastic)
    wrong = [i for i in stochastic if isinstance(i, bool) or not isinstance(i, Integral) or i < 0]
    if wrong:
        raise ValueError(f"expected indices to be integers >= 0, got {wrong[0]!r}")
    if len(set(stochastic)) < len(stochastic):
        twice = next(i for i in stochastic if stochastic.count(i) > 1)
        raise ValueError(f"expected distinct indices, got {twice} more than once")
    return tuple(sorted(int(i) for i in stochastic))
