"""Entropy of the prediction and its two parts,  H[E_w p] = E_w H[p] + I(y; w),  in nats.

| here        | of the input or of the model | data or knowledge     | information theory |
|-------------|------------------------------|-----------------------|--------------------|
| `total`     | total                        | total                 | predictive entropy |
| `aleatoric` | aleatoric                    | data uncertainty      | expected entropy   |
| `epistemic` | epistemic                    | knowledge uncertainty | mutual information |

Aleatoric uncertainty is the part that all weight samples agree on: the input is ambiguous. Epistemic uncertainty is the
part that comes from their disagreement. All names in a row refer to the same number; mutual information is also known
as the BALD score. `epistemic_share` and `disagreement` say in one number whether the weight samples differ at all.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr

from bnneval import _check
from bnneval.predictive import averaged


class EntropySplit(NamedTuple):
    """Entropy of N predictions and its two parts, each (N,): total = aleatoric + epistemic."""

    total: NDArray[np.float64]
    aleatoric: NDArray[np.float64]
    epistemic: NDArray[np.float64]


def _entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
    # entr is 0 at 0, so a certain prediction has entropy 0 instead of the NaN of 0 * log 0.
    h: NDArray[np.float64] = np.einsum("...c->...", entr(p))
    return np.maximum(h, 0)  # a probability that exceeds 1 by a rounding error has entr -2e-16


def predictive_entropy(probs: ArrayLike) -> NDArray[np.float64]:
    """Entropy -sum_c p_c log p_c of each row in nats, (N, C) -> (N,), between 0 and ln C.

    For (S, N, C) it is the entropy of the probabilities averaged over the S weight samples. Probabilities (N,) are not
    accepted: without labels, those of one image cannot be told from those of class 1 for N images.

    >>> predictive_entropy([[1.0, 0.0], [0.5, 0.5]]).round(6)   # 0 and ln 2
    array([0.      , 0.693147])
    """
    a = _check.array(probs, "probs")
    if a.ndim == 1:
        rows = "p[None] for one row, np.column_stack([1 - p, p]) for probabilities of class 1"
        raise ValueError(f"expected probs of shape (N, C), got {a.shape}; write {rows}")
    return _entropy(averaged(a))


def expected_entropy(sample_probs: ArrayLike) -> NDArray[np.float64]:
    """Entropy averaged over weight samples, E_w H[p(y | x, w)], (S, N, C) -> (N,): the aleatoric part.

    >>> expected_entropy([[[1.0, 0.0]], [[0.5, 0.5]]]).round(6)   # (0 + ln 2) / 2
    array([0.346574])
    """
    return entropy_split(sample_probs).aleatoric


def mutual_information(sample_probs: ArrayLike) -> NDArray[np.float64]:
    """I(y; w) = H[E_w p] - E_w H[p] in nats, (S, N, C) -> (N,): the epistemic part, 0 when all samples agree.

    >>> mutual_information([[[1.0, 0.0]], [[0.0, 1.0]]]).round(6)   # two certain samples that disagree: ln 2
    array([0.693147])
    """
    return entropy_split(sample_probs).epistemic


def entropy_split(sample_probs: ArrayLike) -> EntropySplit:
    """Total, aleatoric and epistemic uncertainty of each prediction, (S, N, C) -> three arrays (N,).

    >>> [part.round(6).item() for part in entropy_split([[[1.0, 0.0]], [[0.5, 0.5]]])]
    [0.562335, 0.346574, 0.215762]
    """
    p = _check.sample_probabilities(sample_probs)
    total = _entropy(p.mean(axis=0))
    aleatoric = np.mean([_entropy(one) for one in p], axis=0)
    # Entropy is concave, so the difference is >= 0 up to rounding.
    return EntropySplit(total, aleatoric, np.maximum(total - aleatoric, 0))


def epistemic_share(sample_probs: ArrayLike) -> float:
    """Mean mutual information / mean predictive entropy, (S, N, C) -> a number from 0 to 1; 0 if the entropy is 0.

    It is a ratio of means, not a mean of ratios, which images of almost no entropy would dominate.

    >>> epistemic_share([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])   # ln 2 and 0, each out of ln 2
    0.5
    """
    split = entropy_split(sample_probs)
    total = split.total.sum()
    return float(split.epistemic.sum() / total) if total > 0 else 0.0


def disagreement(sample_probs: ArrayLike) -> float:
    """Share of the S N single predictions whose class is not that of the averaged probabilities, (S, N, C) -> a number.

    The first of tied classes is predicted. The class of one weight sample is its most probable one.

    >>> disagreement([[[0.9, 0.1]], [[0.8, 0.2]], [[0.4, 0.6]]])   # the mean predicts class 0, one of three does not
    0.3333333333333333
    """
    return float(disagreeing(_check.sample_probabilities(sample_probs)).mean())


def disagreeing(p: NDArray[np.float64]) -> NDArray[np.bool_]:
    """For each weight sample and row of p (S, N, C), whether its class is not that of the averaged row, (S, N)."""
    differs: NDArray[np.bool_] = p.argmax(axis=-1) != p.mean(axis=0).argmax(axis=-1)
    return differs
