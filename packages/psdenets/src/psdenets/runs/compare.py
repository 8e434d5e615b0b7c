"""Differences of metrics between two runs on the same images, with paired bootstrap intervals.

A resample gives image i the count n_i, the same for both models. Every metric is a function of these counts:

    accuracy, NLL   sum_i n_i x_i / N
    ECE             sum_b |sum_{i in b} n_i (correct_i - confidence_i)| / N
    AUROC           sum_j m_j (n(score < s_j) + n(score <= s_j)) / 2 / (N M)      over OOD images j with counts m_j
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

import bnneval
from bnneval import entropy_split
from bnneval.predictive import top
from bnneval.scoring import nll_per_sample
from bnneval.statistics import Interval, bootstrap
from psdenets.errors import BadInput
from psdenets.models.regression import LocationScale
from psdenets.runs.checksums import Folder
from psdenets.runs.prediction_files import Stored, read_predictions
from psdenets.runs.predictions import Predictions
from psdenets.runs.run import Run

RESAMPLES, LEVEL, SEED, BINS = 1000, 0.95, 0, 15
Array = NDArray[np.float64]


class Difference(NamedTuple):
    """A metric of two runs: both values, the difference a - b, and its 95 % interval over images."""

    a: float
    b: float
    difference: float
    low: float
    high: float


class Differences(dict[str, Difference]):
    """The differences of two runs, by metric; printed as a table."""

    def __str__(self) -> str:
        head = f"{'':<32}{'a':>10}{'b':>10}{'a - b':>10}   95 % interval"
        rows = (f"{name:<32}{d.a:>10.4f}{d.b:>10.4f}{d.difference:>+10.4f}   [{d.low:+.4f}, {d.high:+.4f}]"
                for name, d in self.items())  # fmt: skip
        return "\n".join([head, *rows])


def compare_runs(a: str | Path | Run, b: str | Path | Run, ood: str | Sequence[str] = ()) -> Differences:
    """Compare two finished runs on the same test images: accuracy, NLL, ECE, and AUROC on out-of-distribution sets.

    Runs that predict numbers are compared by RMSE, MAE and NLL.

    Intervals are over images only: they say whether the two networks differ, not whether two seeds would.

    Args:
        a: a run, or its directory.
        b: another one, trained on the same data set.
        ood: out-of-distribution sets: data sets, folders of pictures, or noise. The AUROC is that of predictive
            entropy. Predictions that `evaluate --ood NAME --out RUN_DIR/ood-NAME` has written are used if both runs
            have them.

    Raises:
        BadInput: if a run is not finished, or the test images differ.
    """
    first, second = (_finished(run) for run in (a, b))
    ours, theirs = first.predictions, second.predictions
    if not np.array_equal(ours.labels, theirs.labels):
        raise BadInput(f"expected runs with the same test images, got different labels in {first.path}, {second.path}")
    if isinstance(ours.likelihood, LocationScale) and isinstance(theirs.likelihood, LocationScale):
        return _numbers(ours, theirs)
    labels, p, q = ours.labels, ours.probs.mean(0), theirs.probs.mean(0)
    found = Differences()
    for name, interval in classification(p, q, labels).items():
        metric = getattr(bnneval, name)
        found[name] = Difference(metric(p, labels), metric(q, labels), *interval)
    inside = [entropy_split(probs).total for probs in (ours.probs, theirs.probs)]
    for name in [ood] if isinstance(ood, str) else ood:
        outside = [entropy_split(probs).total for probs in _on_ood(first, second, name)]
        ours_at, theirs_at = (bnneval.auroc(i, o) for i, o in zip(inside, outside, strict=True))
        found[f"auroc {name}"] = Difference(ours_at, theirs_at, *auroc(inside[0], outside[0], inside[1], outside[1]))
    return found


def _numbers(ours: Predictions, theirs: Predictions) -> Differences:
    """RMSE, MAE and NLL of two runs that predict the same numbers."""
    y, n = ours.labels, len(ours.labels)
    errors = [p.probs[..., 0].mean(0) - y for p in (ours, theirs)]
    nlls = [cast("LocationScale", p.likelihood).nll_per_row(p.probs, y) for p in (ours, theirs)]
    each: dict[str, tuple[list[Array], Callable[[float], float]]] = {
        "rmse": ([e**2 for e in errors], np.sqrt),
        "mae": ([np.abs(e) for e in errors], float),
        "nll": (nlls, float),
    }
    found = Differences()
    for name, ((a, b), finish) in each.items():
        value = [float(finish(float(v.mean()))) for v in (a, b)]
        interval = _interval(lambda w, a=a, b=b, f=finish: float(f(w @ a / n)) - float(f(w @ b / n)), n)
        found[name] = Difference(value[0], value[1], *interval)
    return found


def _finished(run: str | Path | Run) -> Run:
    return run if isinstance(run, Run) else Run.load(run)


def _on_ood(a: Run, b: Run, name: str) -> list[Array]:
    """Probabilities (S, N, C) of both runs for an out-of-distribution set, stored or computed."""
    from psdenets.data import load_test_images
    from psdenets.runs.predictions import predict
    from psdenets.seeds import generator

    stored = [run.path / f"ood-{name}" / "ood.npz" for run in (a, b)]
    if all(path.is_file() for path in stored):
        return [_read(path)[0] for path in stored]
    found = []
    for run in (a, b):
        images = load_test_images(name, run.config, run.model.spec).first(run.config.limit_test)
        samples = run.config.system.final_samples
        found.append(predict(run.model, images, samples, generator(run.config.seed, "final")).probs)
    return found


def against_twin(run: Path, twin: Path, ood: tuple[str, ...]) -> dict[str, Any]:
    """Run minus twin: accuracy, NLL and ECE, and AUROC per OOD set, from the stored predictions of both runs."""
    (probs, labels), (twin_probs, twin_labels) = (_read(folder / "predictions.npz") for folder in (run, twin))
    if not np.array_equal(labels, twin_labels):
        raise ValueError(f"expected predictions of the same images in {run} and {twin}, got different labels")
    found: dict[str, Any] = classification(probs.mean(0), twin_probs.mean(0), labels)
    inside, twin_inside = entropy_split(probs), entropy_split(twin_probs)
    for name in ood:
        paths = [folder / f"ood-{name}" / "ood.npz" for folder in (run, twin)]
        if all(path.exists() for path in paths):
            outside, twin_outside = (entropy_split(_read(path)[0]) for path in paths)
            theirs = twin_inside.total, twin_outside.total
            found[f"auroc {name}"] = auroc(inside.total, outside.total, *theirs)
            found[f"auroc_mutual_information {name}"] = auroc(inside.epistemic, outside.epistemic, *theirs)
    return {key: list(value) for key, value in found.items()}


def _read(path: Path) -> Stored:
    return read_predictions(Folder(path.parent), path.name)


def classification(probs: Array, twin: Array, labels: NDArray[np.int64]) -> dict[str, Interval]:
    """Differences of accuracy, NLL and ECE of probabilities (N, C) of two models."""
    (confidence, correct), (twin_confidence, twin_correct) = top(probs, labels), top(twin, labels)
    gaps, twin_gaps = _gaps(confidence, correct), _gaps(twin_confidence, twin_correct)
    hits = correct.astype(float) - twin_correct
    losses = nll_per_sample(probs, labels) - nll_per_sample(twin, labels)
    return {
        "accuracy": _interval(lambda n: n @ hits / len(n), len(labels)),
        "nll": _interval(lambda n: n @ losses / len(n), len(labels)),
        "ece": _interval(lambda n: _ece(n, *gaps) - _ece(n, *twin_gaps), len(labels)),
    }


def auroc(inside: Array, outside: Array, twin_inside: Array, twin_outside: Array) -> Interval:
    """Difference of AUROC of two scores, each given for the same N test images and the same M OOD images."""
    ours, theirs = _ranks(inside, outside), _ranks(twin_inside, twin_outside)
    return _interval(lambda n, m: _auroc(n, m, *ours) - _auroc(n, m, *theirs), len(inside), len(outside))


def _interval(statistic: Callable[..., float], *sizes: int) -> Interval:
    """The statistic with all counts 1, and its bootstrap interval; each set is resampled to its own size."""

    def resampled(rng: np.random.Generator) -> float:
        return float(statistic(*(np.bincount(rng.integers(n, size=n), minlength=n) for n in sizes)))

    value = float(statistic(*(np.ones(n, dtype=int) for n in sizes)))
    if not np.isfinite(value):  # an infinite NLL has no interval
        return Interval(value, np.nan, np.nan)
    return bootstrap(resampled, value, RESAMPLES, LEVEL, SEED)


def _gaps(confidence: Array, correct: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Array]:
    """Bin (lo, hi] of each confidence, and correct - confidence."""
    return np.searchsorted(np.linspace(0, 1, BINS + 1)[1:-1], confidence), correct - confidence


def _ece(n: NDArray[np.int64], bins: NDArray[np.int64], gap: Array) -> float:
    return float(np.abs(np.bincount(bins, n * gap, minlength=BINS)).sum() / len(n))


def _ranks(inside: Array, outside: Array) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Order of the ID scores, and for each OOD score the numbers of ID scores below it and up to it."""
    order = np.argsort(inside)
    ranked = inside[order]
    return order, np.searchsorted(ranked, outside, "left"), np.searchsorted(ranked, outside, "right")


def _auroc(
    n: NDArray[np.int64],
    m: NDArray[np.int64],
    order: NDArray[np.int64],
    below: NDArray[np.int64],
    upto: NDArray[np.int64],
) -> float:
    up_to_rank = np.concatenate([[0], np.cumsum(n[order])])
    return float(m @ (up_to_rank[below] + up_to_rank[upto]) / (2 * len(n) * len(m)))
