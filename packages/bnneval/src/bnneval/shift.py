"""Evaluate a classifier under distribution shift: entropy, accuracy, ECE and NLL for each corruption and severity.

Mean corruption error (Hendrycks and Dietterich):  CE_c = sum_s E_{s,c} / sum_s E^base_{s,c},  mCE = mean_c CE_c;
relative mCE subtracts each model's clean error from its E_{s,c} first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check
from bnneval.calibration import ece
from bnneval.cifar10c import Cifar10C
from bnneval.corruptions import CORRUPTIONS, SEVERITIES, corrupt, textures
from bnneval.predictive import averaged
from bnneval.scoring import accuracy, nll
from bnneval.uncertainty import predictive_entropy

ANY_CLASS = np.iinfo(np.int64).max  # the number of classes is unknown until the first prediction

Predict = Callable[[Any], Any]
"""A function from (n, H, W, 3) bytes to probabilities (n, C), or (S, n, C), which are averaged over S."""


class Cell(NamedTuple):
    """Metrics of one model on one set of images: entropy and NLL in nats, the rest as fractions; std has ddof = 0."""

    entropy_mean: float
    entropy_std: float
    accuracy: float
    ece: float
    nll: float


class Trend(NamedTuple):
    """Trend of mean entropy with severity: Page's L with corruptions as blocks, and the mean rise in nats per severity.

    `rising` counts the corruptions whose mean entropy is higher at the highest severity than at the lowest.
    """

    page_l: float
    p_value: float
    slope: float
    rising: int
    corruptions: int


@dataclass(frozen=True)
class Shift:
    """Metrics on clean images, by corruption and severity, and pooled by severity; `frost` names its textures."""

    clean: Cell | None
    cells: dict[str, dict[int, Cell]]
    by_severity: dict[int, Cell]
    frost: str

    def errors(self) -> NDArray[np.float64]:
        """Error rates, (corruptions, severities)."""
        return 1 - self._grid("accuracy")

    def _grid(self, field: str) -> NDArray[np.float64]:
        return np.array([[getattr(cell, field) for cell in row.values()] for row in self.cells.values()])

    def mean(self) -> Cell:
        """Mean of each metric over corruptions and severities: its accuracy, ECE and NLL are cA, cECE and cNLL."""
        return Cell(*(float(self._grid(field).mean()) for field in Cell._fields))

    def trend(self) -> Trend:
        """Test whether entropy rises with severity; needs at least two corruptions and three severities."""
        entropy = self._grid("entropy_mean")
        if entropy.shape[0] < 2 or entropy.shape[1] < 3:
            raise ValueError(f"expected at least 2 corruptions and 3 severities for a trend, got {entropy.shape}")
        from scipy.stats import page_trend_test  # takes half a second to import, and only this needs it

        page = page_trend_test(entropy)
        slope = np.polyfit(list(self.by_severity), entropy.mean(axis=0), 1)[0]
        rising = int(np.sum(entropy[:, -1] > entropy[:, 0]))
        return Trend(float(page.statistic), float(page.pvalue), float(slope), rising, len(entropy))

    def to_dict(self) -> dict[str, Any]:
        """All metrics as plain numbers and strings; an infinite NLL stays infinite, which JSON cannot represent."""
        return {
            "frost": self.frost,
            "clean": self.clean and self.clean._asdict(),
            "by_severity": {str(s): cell._asdict() for s, cell in self.by_severity.items()},
            "cells": {name: {str(s): c._asdict() for s, c in row.items()} for name, row in self.cells.items()},
        }


def mean_corruption_error(shift: Shift, baseline: Shift | None = None, *, relative: bool = False) -> float:
    """mCE of a model relative to a baseline model; without a baseline, the mean error over corruptions and severities.

    The baseline of Hendrycks and Dietterich is AlexNet on ImageNet; for CIFAR-10-C the plain mean is customary.
    `relative=True` subtracts the clean errors and requires a baseline.
    """
    errors = shift.errors()
    if baseline is None:
        if relative:
            raise ValueError("expected a baseline for the relative mean corruption error, got None")
        return float(errors.mean())
    if _axes(shift) != _axes(baseline):
        raise ValueError("expected a baseline over the same corruptions and severities, got different ones")
    base = baseline.errors()
    if relative:
        if shift.clean is None or baseline.clean is None:
            raise ValueError("expected clean metrics of both models for the relative mean corruption error, got None")
        errors, base = errors - (1 - shift.clean.accuracy), base - (1 - baseline.clean.accuracy)
    ratio = errors.sum(axis=1), base.sum(axis=1)
    if not ratio[1].all():
        raise ValueError("expected a baseline with errors under every corruption, got 0 errors: the ratio is undefined")
    return float(np.mean(ratio[0] / ratio[1]))


def _axes(shift: Shift) -> list[tuple[str, int]]:
    return [(name, severity) for name, row in shift.cells.items() for severity in row]


def evaluate_shift(
    predict: Predict,
    images: ArrayLike,
    labels: ArrayLike,
    corruptions: Sequence[str] = CORRUPTIONS,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    batch: int = 500,
    bins: int = 15,
    frost: str | Path | None = None,
    *,
    n_bins: int | None = None,
) -> Shift:
    """Corrupt images at every severity, batch by batch, and score the model's predictions.

    `Shift.by_severity` pools the images of all corruptions, as the paper's Table 2 does: mean and std of entropy, and
    one ECE, over all of them.
    """
    x = _check.images(images)
    ice = textures(frost)

    def corrupted(name: str, severity: int, rows: slice) -> NDArray[np.uint8]:
        return corrupt(x[rows], name, severity, seed, start=rows.start, frost=ice)

    trial = _Trial(predict, _check.labels(labels, len(x), ANY_CLASS), batch, _check.bins(bins, n_bins))
    return trial.run(corrupted, corruptions, severities, x, ice.source if "frost" in corruptions else "not used")


def evaluate_cifar10c(
    predict: Predict,
    folder: str | Path,
    corruptions: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    batch: int = 500,
    bins: int = 15,
    clean: ArrayLike | None = None,
    *,
    n_bins: int | None = None,
) -> Shift:
    """`evaluate_shift` on the official files in `folder`; `clean` is the uncorrupted test set in the same order."""
    data = Cifar10C(folder)

    def official(name: str, severity: int, rows: slice) -> NDArray[np.uint8]:
        return np.array(data.images(name, severity)[rows])

    x = None if clean is None else _check.images(clean, "clean")
    names = data.corruptions if corruptions is None else corruptions
    trial = _Trial(predict, data.labels(), batch, _check.bins(bins, n_bins))
    return trial.run(official, names, severities, x, "official files")


@dataclass(frozen=True)
class _Trial:
    """A model and the labels of its images, which are predicted `batch` at a time and scored with `bins` bins."""

    predict: Predict
    labels: NDArray[np.int64]
    batch: int
    bins: int

    def run(
        self,
        corrupted: Callable[[str, int, slice], NDArray[np.uint8]],
        names: Sequence[str],
        severities: Sequence[int],
        clean: NDArray[np.uint8] | None,
        frost: str,
    ) -> Shift:
        """Evaluate every corruption at every severity, and the clean images if given."""
        _check.whole(self.batch, "batch", 1)
        if not names or not severities:
            raise ValueError(
                f"expected at least one corruption and one severity, got {len(names)} and {len(severities)}"
            )
        if clean is not None and len(clean) != len(self.labels):
            raise ValueError(f"expected {len(self.labels)} clean images, as many as labels, got {len(clean)}")
        severities = sorted(severities)  # the trend and the plot rely on increasing order
        probs = {name: {s: self._probs(partial(corrupted, name, s)) for s in severities} for name in names}
        cells = {name: {s: self._cell([p]) for s, p in row.items()} for name, row in probs.items()}
        pooled = {s: self._cell([row[s] for row in probs.values()]) for s in severities}
        on_clean = None if clean is None else self._cell([self._probs(clean.__getitem__)])
        return Shift(on_clean, cells, pooled, frost)

    def _probs(self, images: Callable[[slice], NDArray[np.uint8]]) -> NDArray[np.float64]:
        """(N, C) predictions, averaged over weight samples, for all images, which are requested one slice at a time."""
        parts = []
        for rows in _check.blocks(len(self.labels), self.batch):
            x = images(rows)
            p = averaged(_check.array(self.predict(x), "predict(images)"), "predict(images)")
            if len(p) != len(x):
                raise ValueError(f"expected predict(images) with {len(x)} rows, got {len(p)}")
            parts.append(p)
        return np.concatenate(parts)

    def _cell(self, sets: list[NDArray[np.float64]]) -> Cell:
        """Metrics of one or more sets of predictions for the same images, pooled."""
        probs, labels = np.concatenate(sets), np.tile(self.labels, len(sets))
        entropy = predictive_entropy(probs)
        scores = accuracy(probs, labels), ece(probs, labels, self.bins), nll(probs, labels)
        return Cell(float(entropy.mean()), float(entropy.std()), *scores)
