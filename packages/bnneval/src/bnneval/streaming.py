"""Metrics of predictions that arrive in batches, equal to those of all predictions at once.

Every metric is a function of sums over samples, so a batch only adds to them, and two evaluations can be merged:

    accuracy = correct / N,   NLL = 1/N sum_i -log p_i[y_i],   ECE = 1/N sum_b |hits_b - sum_{i in b} confidence_i|

Counts are integers. Sums are compensated (Neumaier): they carry the rounding error of each addition along, so it does
not add up over batches. Memory does not grow with N, except for equal-mass bins, whose edges are known only at the end:
then the confidences are kept, nine bytes per sample.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check, _forms
from bnneval.calibration import NORMS, SCHEMES, Reliability, Tally, binned, distance, equal_width, tally
from bnneval.predictive import top
from bnneval.scoring import brier_per_sample, nll_per_sample
from bnneval.uncertainty import disagreeing, entropy_split, predictive_entropy

FORMAT = 1  # of the state
COUNTED = ("images", "correct", "disagreeing", "correct_one_sample")
SUMMED = ("nll", "brier", "entropy", "epistemic", "nll_one_sample")


@dataclass(eq=False)
class _Sums:
    """Compensated sums of vectors: the total, and what rounding has lost."""

    total: NDArray[np.float64]
    lost: NDArray[np.float64]

    def add(self, x: NDArray[np.float64]) -> None:
        """Add the vector x; an infinite entry makes its sum infinite."""
        with np.errstate(invalid="ignore"):
            total = self.total + x
            larger = np.abs(self.total) >= np.abs(x)
            lost = np.where(larger, (self.total - total) + x, (x - total) + self.total)
        self.lost = self.lost + np.where(np.isfinite(lost), lost, 0)
        self.total = total

    def value(self) -> NDArray[np.float64]:
        """The sums."""
        return self.total + self.lost


@final
@dataclass(eq=False)
class Evaluation:
    """Accuracy, ECE, NLL, Brier score and entropy, and for (S, N, C) what the weight samples change, batch by batch.

    Example:
        >>> evaluation = Evaluation()
        >>> for probs, labels in [([[0.9, 0.1], [0.3, 0.7]], [0, 0]), ([[0.2, 0.8]], [1])]:
        ...     evaluation = evaluation.update(probs, labels)
        >>> evaluation.compute()["accuracy"]
        0.6666666666666666

    Evaluations of different batches can be merged, also across processes: `state()` is a dictionary of arrays.

    Args:
        bins: number of bins of the calibration error.
        norm: "l1", "l2" or "max", as in `ece`.
        scheme: "width", or "mass" for equal-mass bins, which keeps the confidences of all samples.
        classes: the names of the columns, if labels are names.
        n_bins: another name for `bins`.
    """

    bins: int = 15
    norm: str = "l1"
    scheme: str = "width"
    classes: _forms.Names | None = field(default=None, kw_only=True)
    n_bins: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.bins, self.n_bins = _check.bins(self.bins, self.n_bins), None
        _check.choice(self.norm, "norm", NORMS)
        _check.choice(self.scheme, "scheme", SCHEMES)
        self._edges = equal_width(self.bins)
        inner = self.bins if self.scheme == "width" else 0
        self._shape: tuple[int, int] | None = None  # number of weight samples, 0 for (N, C), and of classes
        self._counts = np.zeros(len(COUNTED) + 2 * inner, dtype=np.int64)
        self._sums = _Sums(*np.zeros((2, len(SUMMED) + inner)))
        self._kept: list[tuple[NDArray[np.float64], NDArray[np.bool_]]] = []

    def update(self, probs: ArrayLike, labels: ArrayLike) -> Self:
        """Add a batch: probabilities (N, C), (S, N, C) or, of class 1 out of two, (N,), with labels (N,).

        Raises:
            ValueError: if the batch is not valid, or if its number of weight samples or classes differs from that of
                earlier batches. The evaluation is unchanged then.
        """
        samples = _forms.table(probs)
        shape = (len(samples) if samples.ndim == 3 else 0, samples.shape[-1])
        self._require(shape)
        mean, y, _ = _forms.pairs(samples, labels, self.classes)
        confidence, correct = top(mean, y)
        counts = [len(y), int(correct.sum()), 0, 0]
        sums = [nll_per_sample(mean, y).sum(), brier_per_sample(mean, y).sum(), predictive_entropy(mean).sum(), 0, 0]
        if samples.ndim == 3:
            p = _check.sample_probabilities(samples)
            counts[2:] = [int(disagreeing(p).sum()), sum(int(top(one, y).correct.sum()) for one in p)]
            sums[3:] = [entropy_split(p).epistemic.sum(), sum(nll_per_sample(one, y).sum() for one in p)]
        bins = tally(confidence, correct, self._edges)
        if self.scheme == "mass":
            self._kept.append((confidence, correct))
            bins = Tally(bins.counts[:0], bins.hits[:0], bins.confidence[:0])
        self._shape = shape
        self._counts = self._counts + np.concatenate([counts, bins.counts, bins.hits])
        self._sums.add(np.concatenate([sums, bins.confidence]))
        return self

    def merge(self, other: "Evaluation") -> Self:
        """Add all batches of another evaluation with the same options, which is not changed."""
        mine, theirs = ((e.bins, e.norm, e.scheme, _listed(e.classes)) for e in (self, other))
        if mine != theirs:
            raise ValueError(f"expected an evaluation with bins, norm, scheme, classes = {mine}, got {theirs}")
        if other._shape is None:
            return self
        self._require(other._shape)
        self._shape = other._shape
        self._counts = self._counts + other._counts
        self._sums.add(other._sums.total)
        self._sums.add(other._sums.lost)
        self._kept.extend(other._kept)
        return self

    def compute(self) -> dict[str, float]:
        """The metrics of all batches, by the names that `metrics.json` of psdenets has; fractions and nats.

        `images` and `classes` are N and C. For (S, N, C), `weight_samples` is S, and the metrics are those of the
        probabilities averaged over weight samples, except for `nll_one_sample` and `accuracy_one_sample`.
        """
        samples, classes = self._seen()
        counted = dict(zip(COUNTED, self._counts.tolist(), strict=False))
        summed = dict(zip(SUMMED, self._sums.value().tolist(), strict=False))
        n = counted["images"]
        metrics: dict[str, float] = {
            "images": n,
            "classes": classes,
            "accuracy": counted["correct"] / n,
            "ece": distance(self.reliability(), self.norm),
            **{name: summed[name] / n for name in ("nll", "brier", "entropy")},
        }
        if samples == 0:
            return metrics
        share = summed["epistemic"] / summed["entropy"] if summed["entropy"] > 0 else 0.0
        return metrics | {
            "weight_samples": samples,
            "epistemic_share": share,
            "disagreement": counted["disagreeing"] / (n * samples),
            "nll_one_sample": summed["nll_one_sample"] / (n * samples),
            "accuracy_one_sample": counted["correct_one_sample"] / (n * samples),
        }

    def reliability(self) -> Reliability:
        """Samples, mean confidence and accuracy per bin, for `plots.reliability_diagram`."""
        samples = max(self._seen()[0], 1)
        if self.scheme == "mass":
            confidence, correct = (np.concatenate(parts) for parts in zip(*self._kept, strict=True))
            return binned(confidence, correct, self.bins, "mass")._replace(weight_samples=samples)
        counts, hits = self._counts[len(COUNTED) :].reshape(2, -1)
        return Tally(counts, hits, self._sums.value()[len(SUMMED) :]).means(self._edges, samples)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything as arrays of numbers and strings, so that `numpy.savez` and other formats need no pickle.

        >>> sorted(Evaluation().update([[0.9, 0.1]], [0]).state())
        ['bins', 'confidence', 'correct', 'counts', 'format', 'names', 'norm', 'scheme', 'shape', 'sums']
        """
        kept = self._kept or [(np.empty(0), np.empty(0, dtype=bool))]
        confidence, correct = (np.concatenate(parts) for parts in zip(*kept, strict=True))
        options = {"format": FORMAT, "bins": self.bins, "norm": self.norm, "scheme": self.scheme}
        return {
            **{name: np.array(value) for name, value in options.items()},
            "names": np.array([] if self.classes is None else _listed(self.classes)),
            "shape": np.array([] if self._shape is None else self._shape, dtype=np.int64),
            "counts": self._counts,
            "sums": np.stack([self._sums.total, self._sums.lost]),
            "confidence": confidence,
            "correct": correct,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, ArrayLike]) -> Self:
        """The evaluation with this state: a dictionary of arrays, or the open file of `numpy.load`.

        Raises:
            ValueError: if an array is missing or has another shape.
        """
        names = ("format", "bins", "norm", "scheme", "names", "shape", "counts", "sums", "confidence", "correct")
        missing = [name for name in names if name not in state]
        if missing or int(np.asarray(state["format"])) != FORMAT:
            got = f"no {missing[0]}" if missing else f"format {state['format']!r}"
            raise ValueError(f"expected the state of an Evaluation in format {FORMAT}, got {got}")
        read = {name: np.asarray(state[name]) for name in names}
        classes = read["names"].tolist() or None
        made = cls(int(read["bins"]), str(read["norm"]), str(read["scheme"]), classes=classes)
        for name, own in (("counts", made._counts), ("sums", made.state()["sums"])):
            if read[name].shape != own.shape or read[name].dtype != own.dtype:
                wanted, got = f"{own.dtype} {own.shape}", f"{read[name].dtype} {read[name].shape}"
                raise ValueError(f"expected {name} in the state to be {wanted}, got {got}")
        made._counts, made._sums = read["counts"].copy(), _Sums(*read["sums"].copy())
        made._shape = tuple(read["shape"].tolist()) or None
        kept = int(made._counts[0]) if made.scheme == "mass" else 0
        if (len(read["confidence"]), len(read["correct"])) != (kept, kept):
            raise ValueError(f"expected {kept} confidences in the state, got {len(read['confidence'])}")
        if kept:
            made._kept = [(read["confidence"], read["correct"])]
        return made

    def _require(self, shape: tuple[int, int]) -> None:
        """Raise ValueError if a batch does not have the weight samples and classes of earlier batches."""
        if self._shape not in (None, shape):
            raise ValueError(f"expected {_shown(self._shape)} as before, got {_shown(shape)}")

    def _seen(self) -> tuple[int, int]:
        """Number of weight samples (0 for (N, C)) and of classes; raises ValueError before the first batch."""
        if self._shape is None:
            raise ValueError("expected at least one batch, got 0: call update(probs, labels) first")
        return self._shape


def _listed(classes: _forms.Names | None) -> list[Any]:
    return [] if classes is None else list(classes)


def _shown(shape: tuple[int, int] | None) -> str:
    samples, classes = shape or (0, 0)
    return f"({samples}, N, {classes})" if samples else f"(N, {classes})"
