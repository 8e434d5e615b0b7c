"""Temperature scaling through weight samples:  p_T = 1/S sum_s softmax(z_s / T),  T = argmin NLL(p_T) on held-out data.

T > 1 softens predictions that are too confident, T < 1 sharpens. The logits z_s of each weight sample are divided, and
the probabilities averaged afterwards, as in prediction. Log-probabilities may replace logits: a constant per row
cancels in the softmax. With one weight sample the NLL is convex in 1 / T, and the predicted class does not change.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from bnneval import _check
from bnneval._forms import Names, numbered

LOWEST, HIGHEST = 0.01, 100.0
GRID = 33  # temperatures tried before the search: with several weight samples the NLL may have several minima


class Temperature(NamedTuple):
    """The fitted temperature, and the NLL in nats before and after on the n samples it was fitted on.

    A temperature at a limit of the search, 0.01 or 100, means that the minimum is at 0 or infinity: all predictions
    are right, or none is better than chance.
    """

    temperature: float
    nll_before: float
    nll_after: float
    n: int
    weight_samples: int


def fit_temperature(logits: ArrayLike, labels: ArrayLike, *, classes: Names | None = None) -> Temperature:
    """Fit T on labelled samples that were not used for training, (N, C) or (S, N, C) logits or log-probabilities.

    The NLL after is at most the NLL before, since T = 1 is one of the candidates.

    >>> z = np.log([[0.9, 0.1]] * 4)   # 90 % sure, right in 3 of 4: softmax(z / 2) = (3, 1) / 4
    >>> round(fit_temperature(z, [0, 0, 0, 1]).temperature, 6)
    2.0
    """
    z = _logits(logits)
    y = numbered(labels, z.shape[1:], classes)

    def nll(log_temperature: float) -> float:
        return _nll(z, y, np.exp(log_temperature))

    before = nll(0.0)
    t = _minimum(nll)
    after = nll(t)
    if after > before or not np.isfinite(after):
        t, after = 0.0, before
    return Temperature(float(np.exp(t)), before, after, len(y), len(z))


def apply_temperature(logits: ArrayLike, temperature: float) -> NDArray[np.float64]:
    """softmax(z / T), with the shape of the logits: the probabilities of each weight sample, not averaged.

    >>> apply_temperature([[np.log(9.0), 0.0]], 2.0)
    array([[0.75, 0.25]])
    """
    if not 0 < temperature < np.inf:
        raise ValueError(f"expected 0 < temperature < infinity, got {temperature!r}")
    z = _logits(logits)
    p: NDArray[np.float64] = softmax(z / temperature, axis=-1)
    return p if np.ndim(logits) == 3 else p[0]


def _minimum(nll: Callable[[float], float]) -> float:
    """The logarithm of the best temperature: the best of a grid, then Brent's search between its neighbours."""
    from scipy.optimize import minimize_scalar  # takes 0.2 s to import, and only this needs it

    grid = np.linspace(np.log(LOWEST), np.log(HIGHEST), GRID)
    values = [nll(t) for t in grid]
    best = int(np.argmin(values))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, GRID - 1)]
    found = minimize_scalar(nll, bounds=(low, high), method="bounded", options={"xatol": 1e-9})
    return float(found.x) if found.fun < values[best] else float(grid[best])


def _nll(z: NDArray[np.float64], y: NDArray[np.int64], temperature: float) -> float:
    """NLL of 1/S sum_s softmax(z_s / T), from logarithms: no probability underflows to 0."""
    x = z / temperature
    log_p = x[:, np.arange(len(y)), y] - np.log(np.exp(x).sum(axis=-1))  # the largest logit is 0, so the sum is >= 1
    return float(np.log(len(z)) - np.mean(np.logaddexp.reduce(log_p, axis=0))) + 0.0


def _logits(x: ArrayLike) -> NDArray[np.float64]:
    """(S, N, C) as float64, shifted so that the largest of a row is 0.

    -infinity, the logarithm of probability 0, is accepted if another class is finite.
    """
    a = _check.array(x, "logits")
    z = _check.shaped(a[None] if a.ndim == 2 else a, "logits", "(S, N, C)").astype(np.float64)
    largest = z.max(axis=-1)
    if not np.isfinite(largest).all():
        bad = tuple(int(i) for i in np.argwhere(~np.isfinite(largest))[0])
        row = f"row {bad[1]} of weight sample {bad[0]}"
        raise ValueError(f"expected logits that are finite or -infinity, got a largest one of {largest[bad]} in {row}")
    shifted: NDArray[np.float64] = z - largest[..., None]
    return shifted
