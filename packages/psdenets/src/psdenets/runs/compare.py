"""Differences of metrics between two runs on the same images, with paired bootstrap intervals (`bnneval.paired`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

import bnneval
from bnneval import entropy_split
from bnneval.paired import PairedBootstrap, Statistic, paired_bootstrap
from bnneval.predictive import top
from bnneval.scoring import nll_per_sample
from bnneval.statistics import Interval
from psdenets.errors import BadInput
from psdenets.models.regression import LocationScale
from psdenets.runs.checksums import Folder
from psdenets.runs.prediction_files import Stored, read_predictions
from psdenets.runs.predictions import Predictions
from psdenets.runs.run import Run

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
    y = ours.labels
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
        interval = _means(a, b, finish)
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
    return {
        "accuracy": _means(top(probs, labels).correct.astype(float), top(twin, labels).correct.astype(float)),
        "nll": _means(nll_per_sample(probs, labels), nll_per_sample(twin, labels)),
        "ece": _interval(bnneval.paired_ece(probs, twin, labels)),
    }


def auroc(inside: Array, outside: Array, twin_inside: Array, twin_outside: Array) -> Interval:
    """Difference of AUROC of two scores, each given for the same N test images and the same M OOD images."""
    return _interval(bnneval.paired_auroc(inside, outside, twin_inside, twin_outside))


def _means(a: Array, b: Array, finish: Callable[[float], float] = float) -> Interval:
    """Difference of a function of the means of two scores per image; without an interval if one is infinite."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return Interval(float(finish(float(a.mean()))) - float(finish(float(b.mean()))), np.nan, np.nan)

    def of(x: Array) -> Statistic:
        return lambda n: float(finish(float(n @ x / len(n))))

    return _interval(paired_bootstrap(of(a), of(b), len(a)))


def _interval(found: PairedBootstrap) -> Interval:
    return Interval(found.difference, found.low, found.high)
