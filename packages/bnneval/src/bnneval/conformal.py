"""Split conformal prediction: sets of classes that contain the label with a chosen probability, for any classifier.

    score of class c   LAC: 1 - p_c;   APS: sum_{j before c} p_j + u p_c   (classes by falling probability, u uniform)
    threshold q        the k-th smallest score of the labels of n held-out samples,   k = ceil((n + 1) coverage)
    set                all classes with a score <= q

For samples that are exchangeable with the n held-out ones, P(label in set) >= coverage, and without ties exactly
k / (n + 1). Given the held-out samples, the coverage is random with the distribution Beta(k, n + 1 - k), so the number
of covered labels among m new samples is beta-binomial.

The guarantee is marginal: it is an average over samples. It says nothing about one class, one image, or images that
come from elsewhere. LAC (least ambiguous sets) has the smallest sets on average; APS (adaptive sets) gives larger sets
to harder images. Both may give an empty set.
"""

from fractions import Fraction
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check
from bnneval._forms import Names, numbered, weight_samples
from bnneval.predictive import averaged

METHODS = ("lac", "aps")


class ConformalThreshold(NamedTuple):
    """The largest score of a class in a set, and what it rests on: n labelled samples and the coverage asked for.

    The threshold is infinite if n is too small; then every set contains every class.
    """

    threshold: float
    coverage: float
    method: str
    n: int
    seed: int
    weight_samples: int = 1

    @property
    def enough(self) -> bool:
        """Whether n samples suffice for this coverage; otherwise sets contain every class."""
        return bool(np.isfinite(self.threshold))

    def describe(self) -> str:
        """The threshold in one line.

        >>> conformal_threshold([[0.9, 0.1]] * 8, [0] * 8, coverage=0.9).describe()
        '8 labelled samples are too few for sets with 90 % coverage, which need 9: every set contains every class'
        """
        asked = f"{100 * self.coverage:g} % coverage"
        if self.enough:
            return f"sets with {asked} on average, {self.method.upper()}, from {self.n} labelled samples"
        need = f"which need {_fewest(self.coverage)}: every set contains every class"
        return f"{self.n} labelled samples are too few for sets with {asked}, {need}"


def conformal_threshold(
    probs: ArrayLike,
    labels: ArrayLike,
    coverage: float = 0.9,
    method: str = "lac",
    seed: int = 0,
    *,
    classes: Names | None = None,
) -> ConformalThreshold:
    """Choose the threshold of prediction sets on labelled samples that were used for nothing else.

    Args:
        probs: predictions (N, C), or (S, N, C), which are averaged.
        labels: their labels, (N,).
        coverage: the probability that a set contains the label, strictly between 0 and 1.
        method: "lac" for the smallest sets on average, "aps" for sets that adapt to the difficulty of an image.
        seed: of the uniform numbers of APS; those of `prediction_sets` are independent of them.
        classes: the names of the columns, if labels are names.

    >>> conformal_threshold([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]], [0, 1, 0], coverage=0.5).threshold
    0.5
    """
    p = averaged(probs)
    y = numbered(labels, p.shape, classes)
    share = _exact(coverage)
    _check.choice(method, "method", METHODS)
    scores = _scores(p, method, _uniform(_check.whole(seed, "seed", 0), 0, 0, len(p)))[np.arange(len(p)), y]
    k = ceil((len(p) + 1) * share)
    q = float(np.partition(scores, k - 1)[k - 1]) if k <= len(p) else np.inf
    return ConformalThreshold(q, float(coverage), method, len(p), seed, weight_samples(probs))


def prediction_sets(probs: ArrayLike, threshold: ConformalThreshold, start: int = 0) -> NDArray[np.bool_]:
    """For each sample the set of classes as a row of booleans, (N, C) or (S, N, C) -> (N, C).

    Args:
        probs: predictions of the same model as those of the threshold.
        threshold: from `conformal_threshold`; its seed determines the uniform numbers of APS.
        start: index of the first sample, so that batches give the same sets as all samples at once.

    >>> chosen = conformal_threshold([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]], [0, 1, 0], coverage=0.5)
    >>> prediction_sets([[0.6, 0.4], [0.5, 0.5]], chosen)
    array([[ True, False],
           [ True,  True]])
    """
    p = averaged(probs)
    u = _uniform(threshold.seed, 1, _check.whole(start, "start", 0), len(p))
    sets: NDArray[np.bool_] = _scores(p, threshold.method, u) <= threshold.threshold
    return sets


def _scores(p: NDArray[np.float64], method: str, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """The score of every class, (N, C); lower scores enter a set first."""
    if method == "lac":
        return 1 - p
    order = np.argsort(-p, axis=1, kind="stable")  # the first of tied classes is the more probable one
    falling = np.take_along_axis(p, order, axis=1)
    before = np.cumsum(falling, axis=1) - falling
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, before + u[:, None] * falling, axis=1)
    return scores


def _uniform(seed: int, stream: int, start: int, n: int) -> NDArray[np.float64]:
    """Uniform numbers of the samples start .. start + n - 1; held-out samples (stream 0) and new ones (1) differ."""
    bits = np.random.PCG64(np.random.SeedSequence([seed, stream]))
    return np.random.Generator(bits.advance(start)).random(n)


def _exact(coverage: float) -> Fraction:
    """The coverage as a fraction: 0.9 is 9/10, and not the float below or above, whose rank may be one too high."""
    return Fraction(_check.fraction(coverage, "coverage")).limit_denominator(10**6)


def _fewest(coverage: float) -> int:
    """The smallest n with ceil((n + 1) coverage) <= n."""
    share = _exact(coverage)
    return ceil(share / (1 - share))
