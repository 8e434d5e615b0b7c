"""Argument validation for all public functions: raises a one-line ValueError, `expected ..., got ...`."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Rows of a float32 softmax sum to 1 within about 1e-6; float16 has 11 bits. Logits miss 1 by far more than either.
# float16 rows are divided by their sum, so anything computed from them, such as a mean, is also a distribution.
SUM_TOLERANCE = 1e-4
HALF_SUM_TOLERANCE = 1e-3

# A block of 81,920 float64 values (8,192 rows of ten classes) fits in the CPU caches, so columns are reduced at full
# speed. Below a thousand rows per block, interpreter overhead becomes noticeable.
BLOCK = 81_920
LEAST_ROWS = 1024


def values(x: ArrayLike, name: str) -> NDArray[Any]:
    """`numpy.asarray(x)`, also for tensors that require grad; raises ValueError for ragged lists."""
    try:
        return np.asarray(x.detach().cpu() if hasattr(x, "detach") else x)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"expected {name} that numpy.asarray takes, got {type(x).__name__}: {reason}") from None


def array(x: ArrayLike, name: str) -> NDArray[Any]:
    """`numpy.asarray(x)` of numbers; raises ValueError for anything else."""
    a = values(x, name)
    if a.dtype.kind not in "fiub":
        raise ValueError(f"expected {name} to be numbers, got dtype {a.dtype}")
    return a


def shaped(x: ArrayLike, name: str, axes: str) -> NDArray[Any]:
    """A non-empty array of numbers with these axes, such as "(N, C)"; its rows may still be anything."""
    a = array(x, name)
    if a.dtype.kind == "b":
        raise ValueError(f"expected {name} to be numbers, got dtype bool")
    if a.ndim != sum(letter.isalpha() for letter in axes):
        raise ValueError(f"expected {name} of shape {axes}, got {a.shape}")
    if a.size == 0:
        raise ValueError(f"expected {name} with at least one sample and one class, got {a.shape}")
    return a


def _tolerance(a: NDArray[Any]) -> float:
    return HALF_SUM_TOLERANCE if a.dtype == np.float16 else SUM_TOLERANCE


def _sums(p: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Sums over the classes, without warnings: infinities of both signs give NaN, which fails the caller's check."""
    with np.errstate(invalid="ignore", over="ignore"):
        sums: NDArray[np.float64] = p.sum(axis=0) if axis == 0 else np.einsum("nc->n", p)
    return sums


def _reject(rows: NDArray[Any], name: str, tolerance: float, first: int = 0) -> None:
    """Raise ValueError for the first row that is not a distribution; there must be one."""
    sums = _sums(rows, axis=-1)
    for bad, what in (
        (~np.isfinite(rows).all(axis=-1), "finite {}"),
        ((rows < 0).any(axis=-1), "{} >= 0"),
        (np.abs(sums - 1) > tolerance, "rows of {} that sum to 1"),
    ):
        if bad.any():
            i = int(np.argmax(bad))
            broken = rows[i][~np.isfinite(rows[i])]
            worst = broken[0] if broken.size else rows[i].min()
            got = f"a sum of {sums[i]:.6g}" if "sum" in what else f"{worst:.6g}"
            hint = "" if "finite" in what else "; logits need a softmax first"
            raise ValueError(f"expected {what.format(name)}, got {got} in row {first + i}{hint}")


def _distributions(a: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Rows (..., C) as float64; raises ValueError if one of them is not a distribution."""
    p = a.astype(np.float64, copy=False)
    rows = p.reshape(-1, p.shape[-1])
    # A NaN or infinity makes its row's sum fail the comparison, so two cheap reductions are enough.
    sums = _sums(rows, axis=-1)
    if not (rows.min() >= 0 and np.abs(sums - 1).max() <= _tolerance(a)):
        _reject(rows, name, _tolerance(a))
    return p / sums.reshape(*p.shape[:-1], 1) if a.dtype == np.float16 else p


def probabilities(probs: ArrayLike, name: str = "probs") -> NDArray[np.float64]:
    """(N, C) rows of probabilities as float64."""
    return _distributions(shaped(probs, name, "(N, C)"), name)


def sample_probabilities(probs: ArrayLike, name: str = "sample_probs") -> NDArray[np.float64]:
    """(S, N, C) rows of probabilities, one set for each of S weight samples, as float64."""
    return _distributions(shaped(probs, name, "(S, N, C)"), name)


def columns(a: NDArray[Any], rows: slice, room: NDArray[np.float64], name: str = "probs") -> NDArray[np.float64]:
    """Check the given rows of an array (N, C) and write them, transposed to (C, rows) float64, into the buffer `room`.

    `room` has C rows and at least one column per row to check. Reducing many rows over few classes is several times
    faster in this layout than in (N, C).
    """
    tolerance = _tolerance(a)
    block = room[:, : rows.stop - rows.start]
    np.copyto(block, a[rows].T)
    sums = _sums(block, axis=0)
    if not (block.min() >= 0 and sums.min() >= 1 - tolerance and sums.max() <= 1 + tolerance):
        _reject(block.T, name, tolerance, first=rows.start)
    if a.dtype == np.float16:
        block /= sums
    return block


def blocks(n: int, size: int) -> Iterator[slice]:
    """Consecutive slices of n rows, `size` rows each; the last may be shorter."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def labels(y: ArrayLike, n: int, classes: int, name: str = "labels") -> NDArray[np.int64]:
    """(N,) integer class numbers in 0 .. classes - 1, or booleans if there are two classes."""
    a = values(y, name)
    if a.dtype.kind == "b" and classes != 2:
        raise ValueError(f"expected integer {name} for {classes} classes, got dtype bool")
    if a.dtype.kind not in "iub":
        hint = "" if a.dtype.kind == "f" else "; names need classes=, the names of the columns"
        raise ValueError(f"expected integer {name}, got dtype {a.dtype}{hint}")
    if a.shape != (n,):
        raise ValueError(f"expected {name} of shape ({n},), got {a.shape}")
    if a.min() < 0 or a.max() >= classes:
        wrong = a.min() if a.min() < 0 else a.max()
        raise ValueError(f"expected {name} in 0..{classes - 1}, got {wrong}")
    return a.astype(np.int64, copy=False)


def finite(x: ArrayLike, name: str, axes: str) -> NDArray[np.float64]:
    """Finite numbers, at least one, with these axes, such as "(S, N)"."""
    a = array(x, name)
    if a.ndim != sum(letter.isalpha() for letter in axes):
        raise ValueError(f"expected {name} of shape {axes}, got {a.shape}")
    if a.size == 0:
        raise ValueError(f"expected at least one value in {name}, got an empty array")
    _reject_where(~np.isfinite(a), a, f"finite {name}")
    return a.astype(np.float64, copy=False)


def _reject_where(bad: NDArray[np.bool_], a: NDArray[Any], expected: str) -> None:
    """Raise ValueError for the first bad value, if there is one."""
    if bad.any():
        index = tuple(int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))
        raise ValueError(f"expected {expected}, got {a[index]} at index {index[0] if a.ndim == 1 else index}")


def scores(x: ArrayLike, name: str) -> NDArray[np.float64]:
    """(N,) finite numbers, at least one."""
    return finite(x, name, "(N,)")


def targets(y: ArrayLike, n: int, name: str = "y") -> NDArray[np.float64]:
    """(N,) finite numbers, one for each of n predictions."""
    a = scores(y, name)
    if len(a) != n:
        raise ValueError(f"expected {name} of shape ({n},), got {a.shape}")
    return a


def gaussians(
    mean: ArrayLike, std: ArrayLike, names: tuple[str, str] = ("mean", "std"), axes: str = "(N,)"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and positive standard deviations of the same shape."""
    m, sigma = finite(mean, names[0], axes), finite(std, names[1], axes)
    if sigma.shape != m.shape:
        raise ValueError(f"expected {names[1]} of shape {m.shape} like {names[0]}, got {sigma.shape}")
    _reject_where(sigma <= 0, sigma, f"{names[1]} > 0")
    return m, sigma


def mixture(means: ArrayLike, stds: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Means and positive standard deviations (S, N): one Gaussian for each of S weight samples and N targets."""
    return gaussians(means, stds, ("means", "stds"), "(S, N)")


def bounds(lower: ArrayLike, upper: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Ends (N,) of N intervals, lower <= upper."""
    low, high = scores(lower, "lower"), scores(upper, "upper")
    if low.shape != high.shape:
        raise ValueError(f"expected upper of shape {low.shape} like lower, got {high.shape}")
    if (low > high).any():
        i = int(np.argmax(low > high))
        raise ValueError(f"expected lower <= upper, got lower={low[i]}, upper={high[i]} at index {i}")
    return low, high


def between_zero_and_one(x: ArrayLike, name: str) -> NDArray[np.float64]:
    """(N,) numbers from 0 to 1, at least one."""
    a = scores(x, name)
    _reject_where((a < 0) | (a > 1), a, f"0 <= {name} <= 1")
    return a


def images(x: ArrayLike, name: str = "images") -> NDArray[np.uint8]:
    """(N, H, W, 3) bytes with H and W from 16 to 60; the corruption constants are for CIFAR, whose side is 32."""
    a = array(x, name)
    if a.dtype != np.uint8:
        raise ValueError(f"expected uint8 {name}, got dtype {a.dtype}")
    if a.ndim != 4 or a.shape[-1] != 3:
        raise ValueError(
            f"expected {name} of shape (N, H, W, 3), got {a.shape}; np.repeat turns one channel into three"
        )
    if len(a) == 0 or not all(16 <= side <= 60 for side in a.shape[1:3]):
        raise ValueError(f"expected at least one image with height and width from 16 to 60, got {a.shape}")
    return a


def whole(x: int, name: str, low: int, high: int | None = None) -> int:
    """An integer of at least `low` (and at most `high`)."""
    if isinstance(x, bool) or not isinstance(x, (int, np.integer)) or x < low or (high is not None and x > high):
        limits = f">= {low}" if high is None else f"in {low}..{high}"
        raise ValueError(f"expected an integer {name} {limits}, got {x!r}")
    return int(x)


def bins(bins: int, n_bins: int | None, default: int = 15) -> int:
    """`bins`, or its alias `n_bins` if that is given; raises ValueError if both are and differ."""
    if n_bins is not None and bins not in (default, n_bins):
        raise ValueError(f"expected bins or its alias n_bins, got bins={bins!r} and n_bins={n_bins!r}")
    return bins if n_bins is None else n_bins


def fraction(x: float, name: str) -> float:
    """A number strictly between 0 and 1."""
    if not 0 < x < 1:
        raise ValueError(f"expected 0 < {name} < 1, got {x!r}")
    return float(x)


def choice(x: str, name: str, allowed: Sequence[str]) -> str:
    """One of the allowed strings."""
    if x not in allowed:
        raise ValueError(f"expected {name} to be one of {', '.join(allowed)}, got {x!r}")
    return x
