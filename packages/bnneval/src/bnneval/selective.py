"""Selective prediction: the error among the samples a classifier keeps when it abstains on its least confident ones.

risk(k) = errors among the k most confident / k,  coverage = k / N,  AURC = 1/N sum_k risk(k).
The risk is averaged over all orderings of samples with tied confidence, so neither the curve nor the area depends on
the order of the samples.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check
from bnneval.predictive import top


class RiskCoverage(NamedTuple):
    """Error rate among the samples kept, for each share of samples kept, each (N,); `aurc` is the mean risk."""

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    aurc: float


def risk_coverage(probs: ArrayLike, labels: ArrayLike, confidence: ArrayLike | None = None) -> RiskCoverage:
    """Risk-coverage curve, most confident samples first; `confidence` (N,) defaults to the largest probability.

    >>> risk_coverage([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [0, 1, 0]).risk.round(6)
    array([0.      , 0.5     , 0.333333])
    """
    largest, correct = top(probs, labels)
    score = largest if confidence is None else _check.scores(confidence, "confidence")
    if score.shape != correct.shape:
        raise ValueError(f"expected confidence of shape {correct.shape}, got {score.shape}")
    _, group, size = np.unique(-score, return_inverse=True, return_counts=True)
    error_rate = np.bincount(group, weights=~correct) / size
    kept = np.arange(1, len(score) + 1)
    risk = np.cumsum(np.repeat(error_rate, size)) / kept
    return RiskCoverage(kept / len(score), risk, float(risk.mean()))


def aurc(probs: ArrayLike, labels: ArrayLike, confidence: ArrayLike | None = None) -> float:
    """Area under the risk-coverage curve: the mean risk over all coverages; lower is better.

    >>> round(aurc([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [0, 1, 0]), 6)   # (0 + 1/2 + 1/3) / 3
    0.277778
    """
    return risk_coverage(probs, labels, confidence).aurc
