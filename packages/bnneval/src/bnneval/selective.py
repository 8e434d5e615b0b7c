"""Selective prediction: the error among the samples a classifier keeps when it abstains on its least confident ones.

risk(k) = errors among the k most confident / k,  coverage = k / N,  AURC = 1/N sum_k risk(k).
The risk is averaged over all orderings of samples with tied confidence, so neither the curve nor the area depends on
the order of the samples. A threshold keeps or rejects tied samples together.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check
from bnneval._forms import Names, weight_samples
from bnneval.binomial import upper_bound
from bnneval.predictive import top

CANDIDATES = 20  # coverages 5 %, 10 %, ..., 100 %, among which a threshold with a guarantee is chosen


class RiskCoverage(NamedTuple):
    """Error rate among the samples kept, for each share of samples kept, each (N,); `aurc` is the mean risk.

    `thresholds` (N,) is the lowest confidence among the samples kept: `confidence >= threshold` keeps these, and all
    that are tied with the last one. `weight_samples` is the number of weight samples whose probabilities were averaged.
    """

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    aurc: float
    thresholds: NDArray[np.float64]
    weight_samples: int = 1


class Abstention(NamedTuple):
    """A rule, keep a prediction if `confidence >= threshold`, and what it does on the n samples it was chosen on.

    `upper` is the bound on the risk for new samples that `level` asks for, or None. If no threshold is good enough,
    `threshold` is infinite, nothing is kept and `risk` is NaN.
    """

    threshold: float
    coverage: float
    risk: float
    kept: int
    errors: int
    n: int
    max_risk: float
    level: float | None
    upper: float | None
    weight_samples: int = 1

    def describe(self) -> str:
        """The rule in one line.

        >>> abstention_threshold([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]], [0, 0, 1], max_risk=0.1).describe()
        'confidence >= 0.6000 keeps 66.7 % with 0.00 % errors (0 of 2), chosen on 3 labelled samples'
        """
        chosen = f"chosen on {self.n} labelled samples"
        bound = "" if self.level is None else f" with {100 * self.level:g} % confidence"
        if not self.kept:
            return f"no threshold has a risk of at most {100 * self.max_risk:g} %{bound}: abstains always, {chosen}"
        rule = f"confidence >= {self.threshold:.4f} keeps {100 * self.coverage:.1f} %"
        errors = f"{100 * self.risk:.2f} % errors ({self.errors} of {self.kept})"
        new = "" if self.upper is None else f", at most {100 * self.upper:.2f} % on new samples{bound}"
        return f"{rule} with {errors}{new}, {chosen}"


def risk_coverage(
    probs: ArrayLike, labels: ArrayLike, confidence: ArrayLike | None = None, *, classes: Names | None = None
) -> RiskCoverage:
    """Risk-coverage curve, most confident samples first; `confidence` (N,) defaults to the largest probability.

    >>> risk_coverage([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [0, 1, 0]).risk.round(6)
    array([0.      , 0.5     , 0.333333])
    """
    score, correct = _scored(probs, labels, confidence, classes)
    negated, group, size = np.unique(-score, return_inverse=True, return_counts=True)
    error_rate = np.bincount(group, weights=~correct) / size
    kept = np.arange(1, len(score) + 1)
    risk = np.cumsum(np.repeat(error_rate, size)) / kept
    thresholds = -np.repeat(negated, size) + 0.0  # -0.0 would be printed
    return RiskCoverage(kept / len(score), risk, float(risk.mean()), thresholds, weight_samples(probs))


def aurc(
    probs: ArrayLike, labels: ArrayLike, confidence: ArrayLike | None = None, *, classes: Names | None = None
) -> float:
    """Area under the risk-coverage curve: the mean risk over all coverages; lower is better.

    >>> round(aurc([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [0, 1, 0]), 6)   # (0 + 1/2 + 1/3) / 3
    0.277778
    """
    return risk_coverage(probs, labels, confidence, classes=classes).aurc


def abstention_threshold(
    probs: ArrayLike,
    labels: ArrayLike,
    max_risk: float,
    level: float | None = None,
    confidence: ArrayLike | None = None,
    *,
    classes: Names | None = None,
) -> Abstention:
    """The threshold with the largest coverage whose risk is at most `max_risk` on labelled validation data.

    The risk on new data may be higher, because the threshold was chosen for its low risk on these samples. With
    `level`, such as 0.95, the risk on new data of the same distribution is at most `max_risk` with that probability.
    Then the coverage is one of 5 %, 10 %, ..., 100 %, the exact binomial bound of each holds with the probability
    1 - (1 - level) / 20, and by the union bound all of them hold together.

    The threshold is the next number above the largest confidence that is rejected. So the samples that are kept are
    independent draws above a value that they do not determine, and their errors are exactly binomial.

    Args:
        probs: predictions (N, C) or (S, N, C), not those used for training.
        labels: their labels, (N,).
        max_risk: the largest share of errors among the predictions that are kept, such as 0.05.
        level: the probability that the risk on new data is at most `max_risk`; None does not ask for this.
        confidence: a score (N,), higher if the prediction is more trusted, instead of the largest probability.
        classes: the names of the columns, if labels are names.

    >>> abstention_threshold([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]], [0, 0, 1], max_risk=0.1).coverage
    0.6666666666666666
    """
    score, correct = _scored(probs, labels, confidence, classes)
    n = len(score)
    order = np.argsort(-score, kind="stable")
    ranked, errors = score[order], np.concatenate([[0], np.cumsum(~correct[order])])
    allowed = _separable(ranked) if level is None else _candidates(ranked)
    risk = _risks(errors[allowed], allowed, level)
    good = allowed[risk <= _check.fraction(max_risk, "max_risk")]
    kept = int(good[-1]) if len(good) else 0
    lowest = 0.0 if confidence is None else -np.inf
    threshold = np.inf if kept == 0 else lowest if kept == n else np.nextafter(ranked[kept], np.inf)
    wrong = int(errors[kept])
    observed = wrong / kept if kept else np.nan
    upper = None if level is None else float(risk[allowed == kept][0]) if kept else 1.0
    samples = weight_samples(probs)
    return Abstention(float(threshold), kept / n, observed, kept, wrong, n, max_risk, level, upper, samples)


def _separable(ranked: NDArray[np.float64]) -> NDArray[np.int64]:
    """The numbers of samples that a threshold can keep, given falling confidences: it does not separate ties."""
    ends = np.append(np.diff(ranked) != 0, True)
    return np.flatnonzero(ends) + 1


def _candidates(ranked: NDArray[np.float64]) -> NDArray[np.int64]:
    """Numbers of samples above the value with rank 5 %, 10 %, ...; ranks that do not depend on the confidences."""
    ranks = np.unique(np.round(np.linspace(0, len(ranked), CANDIDATES + 1)[1:]).astype(np.int64))
    inner = ranks[ranks < len(ranked)]
    above = np.searchsorted(-ranked, -ranked[inner], side="left")
    found: NDArray[np.int64] = np.unique(np.append(above, len(ranked)))
    return found[found > 0]


def _risks(errors: NDArray[np.int64], kept: NDArray[np.int64], level: float | None) -> NDArray[np.float64]:
    """The error rate, or its upper confidence bound, corrected for choosing among `CANDIDATES` of them."""
    if level is None:
        return errors / kept
    return upper_bound(errors, kept, 1 - (1 - _check.fraction(level, "level")) / CANDIDATES)


def _scored(
    probs: ArrayLike, labels: ArrayLike, confidence: ArrayLike | None, classes: Names | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Confidence of each prediction and whether it is correct."""
    largest, correct = top(probs, labels, classes)
    score = largest if confidence is None else _check.scores(confidence, "confidence")
    if score.shape != correct.shape:
        raise ValueError(f"expected confidence of shape {correct.shape}, got {score.shape}")
    return score, correct
