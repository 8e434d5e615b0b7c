"""All metrics of a set of predictions, as a dictionary of plain numbers and as a table for the command line."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check, _forms
from bnneval.calibration import classwise_ece, ece, reliability
from bnneval.intervals import central_interval_mixture, coverage, interval_score
from bnneval.mixture import mixture_mean, std_split
from bnneval.pit import pit_histogram, pit_mixture, quantile_calibration
from bnneval.predictive import averaged
from bnneval.regression import crps_mixture, mae, nll_mixture, rmse
from bnneval.roc import detection
from bnneval.scoring import accuracy, accuracy_one_sample, brier, nll, nll_one_sample
from bnneval.selective import aurc
from bnneval.uncertainty import disagreement, entropy_split, epistemic_share, predictive_entropy

_DIAGRAM = ("edges", "counts", "confidence", "accuracy")


def report(
    probs: ArrayLike,
    labels: ArrayLike,
    ood_probs: ArrayLike | None = None,
    bins: int = 15,
    *,
    classes: _forms.Names | None = None,
    n_bins: int | None = None,
) -> dict[str, Any]:
    """All metrics of predictions (N, C) or (S, N, C) with labels (N,), and of OOD detection if `ood_probs` is given.

    Metrics of (S, N, C) are those of the average over weight samples, and `weight_samples` is S. Binary predictions may
    be (N,), probabilities of class 1. With `classes`, the names of the columns, labels are names.

    >>> report([[0.9, 0.1], [0.4, 0.6]], [0, 1])["accuracy"]
    1.0
    """
    samples, bins = _forms.table(probs), _check.bins(bins, n_bins)
    mean = averaged(samples)
    y = _forms.numbered(labels, mean.shape, classes)
    diagram = reliability(mean, y, bins)
    entropy = predictive_entropy(mean)
    metrics: dict[str, Any] = {
        "images": len(mean),
        "classes": mean.shape[1],
        "accuracy": accuracy(mean, y),
        "nll": nll(mean, y),
        "brier": brier(mean, y),
        "ece": ece(mean, y, bins),
        "ece_l2": ece(mean, y, bins, norm="l2"),
        "mce": ece(mean, y, bins, norm="max"),
        "ece_adaptive": ece(mean, y, bins, scheme="mass"),
        "ece_classwise": classwise_ece(mean, y, bins),
        "aurc": aurc(mean, y),
        "entropy_mean": float(entropy.mean()),
        "entropy_std": float(entropy.std()),
        **_parts(samples, y),
        "reliability": {name: getattr(diagram, name).tolist() for name in _DIAGRAM},
    }
    if ood_probs is not None:
        metrics["ood"] = _ood(samples, _forms.table(ood_probs, "OOD probs"))
    return metrics


def _parts(probs: NDArray[Any], labels: NDArray[np.int64]) -> dict[str, float]:
    """Both parts of the uncertainty, and what averaging over weight samples changes; empty without weight samples."""
    if probs.ndim != 3:
        return {}
    split = entropy_split(probs)
    return {
        "weight_samples": len(probs),
        "aleatoric_mean": float(split.aleatoric.mean()),
        "epistemic_mean": float(split.epistemic.mean()),
        "epistemic_share": epistemic_share(probs),
        "disagreement": disagreement(probs),
        "nll_one_sample": nll_one_sample(probs, labels),
        "accuracy_one_sample": accuracy_one_sample(probs, labels),
    }


def _ood(inside: NDArray[Any], outside: NDArray[Any]) -> dict[str, Any]:
    """Metrics of OOD detection by entropy and, given weight samples, by mutual information."""
    if inside.ndim != outside.ndim or inside.shape[-1] != outside.shape[-1]:
        axes = ", ".join(["S", "N", "C"][-inside.ndim :])
        expected = f"({axes}) with C = {inside.shape[-1]} like the predictions"
        raise ValueError(f"expected OOD probs {expected}, got shape {outside.shape}")
    entropy = [predictive_entropy(averaged(p, name)) for p, name in ((inside, "probs"), (outside, "OOD probs"))]
    result = {
        "images": len(entropy[1]),
        "entropy_mean": float(entropy[1].mean()),
        "entropy_std": float(entropy[1].std()),
        **detection(*entropy)._asdict(),
    }
    if inside.ndim == 3:
        by_mi = detection(entropy_split(inside).epistemic, entropy_split(outside).epistemic)._asdict()
        result |= {f"{key}_mutual_information": value for key, value in by_mi.items()}
        result |= {"epistemic_share": epistemic_share(outside), "disagreement": disagreement(outside)}
    return result


def regression_report(
    means: ArrayLike, stds: ArrayLike, y: ArrayLike, level: float = 0.95, bins: int = 10
) -> dict[str, Any]:
    """All metrics of Gaussian mixtures (S, N), (S, N) with targets (N,); `level` is that of the interval.

    >>> regression_report([[0.0, 1.0]], [[1.0, 1.0]], [1.0, 1.5])["mae"]
    0.75
    """
    mean = mixture_mean(means, stds)
    std = std_split(means, stds)
    lower, upper = central_interval_mixture(means, stds, level)
    pit = pit_mixture(means, stds, y)
    quantiles = quantile_calibration(pit)
    histogram = pit_histogram(pit, bins)
    return {
        "targets": len(mean),
        "weight_samples": len(_check.array(means, "means")),
        "rmse": rmse(mean, y),
        "mae": mae(mean, y),
        "nll": nll_mixture(means, stds, y),
        "crps": crps_mixture(means, stds, y),
        "level": float(level),
        "coverage": coverage(lower, upper, y),
        "interval_width": float((upper - lower).mean()),
        "interval_score": interval_score(lower, upper, y, level),
        "quantile_error": quantiles.error,
        "total_std_mean": float(std.total.mean()),
        "aleatoric_std_mean": float(std.aleatoric.mean()),
        "epistemic_std_mean": float(std.epistemic.mean()),
        "quantiles": {"levels": quantiles.levels.tolist(), "observed": quantiles.observed.tolist()},
        "pit": {"edges": histogram.edges.tolist(), "counts": histogram.counts.tolist()},
    }


def table(metrics: dict[str, Any]) -> str:
    """The numbers of a report, one per line, names on the left and values on the right."""
    rows = [(key, value) for key, value in metrics.items() if not isinstance(value, dict)]
    rows += [(f"ood {key}", value) for key, value in metrics.get("ood", {}).items()]
    width = max(len(key) for key, _ in rows)
    shown = {key: str(value) if isinstance(value, int) else f"{value:.6f}" for key, value in rows}
    return "\n".join(f"{key.replace('_', ' '):<{width}}  {value:>12}" for key, value in shown.items())
