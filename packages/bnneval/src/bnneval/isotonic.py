"""Isotonic recalibration:  q_c = m_c(p_c) / sum_j m_j(p_j),  with a rising function m_c for each class c.

m_c is the isotonic regression of 1[y = c] on p_c (Zadrozny and Elkan), linear between its knots. It minimises the NLL
of "c or not c" over all rising functions, but the normalised q need not lower the NLL, and m_c is 0 below the smallest
p_c of a sample of class c, which would make the NLL of a new sample infinite. So q is mixed with the original,

    (1 - a) p + a q,    0 <= a <= n / (n + 1),

and a minimises the NLL on the n samples of the fit, which is convex in a. a = 0 changes nothing, so the NLL of these
samples never rises. Unlike a temperature, the map can change the predicted class, and it needs many samples: there is
one step per change of m_c.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval._forms import Names, numbered, weight_samples
from bnneval.predictive import averaged
from bnneval.scoring import nll


class Isotonic(NamedTuple):
    """Rising functions, one for each class, as knots (2, K_c): probabilities before and after; and the share a of them.

    `nll_before` and `nll_after` are those of the n samples of the fit, in nats.
    """

    knots: tuple[NDArray[np.float64], ...]
    share: float
    nll_before: float
    nll_after: float
    n: int
    weight_samples: int = 1

    def apply(self, probs: ArrayLike) -> NDArray[np.float64]:
        """Recalibrated probabilities (N, C) of predictions (N, C), or (S, N, C), which are averaged first."""
        p = averaged(probs)
        if p.shape[1] != len(self.knots):
            raise ValueError(f"expected probs of {len(self.knots)} classes, got {p.shape[1]}")
        return (1 - self.share) * p + self.share * _mapped(p, self.knots)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON."""
        return {**self._asdict(), "knots": [knots.tolist() for knots in self.knots]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`."""
        return cls(**{**values, "knots": tuple(np.array(knots) for knots in values["knots"])})


def fit_isotonic(probs: ArrayLike, labels: ArrayLike, *, classes: Names | None = None) -> Isotonic:
    """Fit on labelled samples that were not used for training, (N, C) or, averaged, (S, N, C).

    >>> map = fit_isotonic([[0.9, 0.1]] * 4 + [[0.1, 0.9]] * 4, [0, 0, 0, 1] + [1, 1, 1, 0])
    >>> map.apply([[0.9, 0.1]]).round(6)   # 3 of 4 are right; the fit would be exact for a = 1, but a <= 8/9
    array([[0.766667, 0.233333]])
    """
    p = averaged(probs)
    y = numbered(labels, p.shape, classes)
    knots = tuple(_regression(p[:, c], y == c) for c in range(p.shape[1]))
    truth = np.arange(len(y)), y
    share = _share(p[truth], _mapped(p, knots)[truth])
    before = nll(p, y)
    fitted = Isotonic(knots, share, before, before, len(y), weight_samples(probs))
    after = nll(fitted.apply(p), y)
    return fitted._replace(nll_after=after) if after < before else fitted._replace(share=0.0)


def _regression(p: NDArray[np.float64], hit: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Knots of the isotonic regression of `hit` on p; tied probabilities are one point with their mean."""
    from scipy.optimize import isotonic_regression  # takes 0.2 s to import, and only this needs it

    x, group, size = np.unique(p, return_inverse=True, return_counts=True)
    y = np.clip(isotonic_regression(np.bincount(group, hit) / size, weights=size).x, 0, 1)
    same = y[1:] == y[:-1]
    inner = np.concatenate([[False], same]) & np.concatenate([same, [False]])  # between two equal values
    return np.stack([x, y])[:, ~inner]


def _mapped(p: NDArray[np.float64], knots: tuple[NDArray[np.float64], ...]) -> NDArray[np.float64]:
    """q: each column through its function, rows divided by their sum; a row of zeros stays as it was."""
    q = np.column_stack([np.interp(p[:, c], *knots[c]) for c in range(p.shape[1])])
    total = q.sum(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return np.where(total > 0, q / total, p)


def _share(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """The a in [0, n / (n + 1)] with the smallest -sum log((1 - a) p + a q), by bisection of its derivative in a."""
    low, high = 0.0, len(p) / (len(p) + 1)

    def falls(a: float) -> bool:
        """Whether the NLL falls at a; a sample with probability 0 on both sides does not depend on a."""
        mixed = (1 - a) * p + a * q
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(mixed > 0, (q - p) / mixed, np.where(q > p, np.inf, 0.0))
        return bool(slope.sum() > 0)

    if not falls(low):
        return low
    if falls(high):
        return high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if falls(middle) else (low, middle)
    return low
