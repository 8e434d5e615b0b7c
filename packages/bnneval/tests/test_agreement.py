"""Agreement with scikit-learn and scipy to 1e-12, on more than 10^4 random data sets and on edge cases."""

import numpy as np
import pytest
from scipy import special, stats
from sklearn import metrics
from sklearn.calibration import calibration_curve

import bnneval
from bnneval.predictive import top

EXACT = 1e-12  # sums of up to 60 numbers of order one in a different order; far above rounding, far below a real error


def random_predictions(rng):
    """Up to 60 rows of up to 8 classes, of varied sharpness; some rounded, which makes ties, some saturated float32."""
    n, classes = int(rng.integers(1, 61)), int(rng.integers(2, 9))
    logits = rng.normal(size=(n, classes)) * rng.choice([0.1, 1, 5, 40])
    kind = rng.integers(4)
    probs = special.softmax(logits.astype(np.float32) if kind == 3 else logits, axis=1)
    if kind == 2:
        coarse = np.round(probs * 4) + (np.arange(classes) == 0)
        probs = coarse / coarse.sum(axis=1, keepdims=True)
    return probs, rng.integers(classes, size=n)


def random_scores(rng):
    """Scores of up to 40 ID and OOD samples; half of the time integers (not 0 or 1), so that there are many ties."""
    inside, outside = rng.normal(10, 1, size=rng.integers(1, 41)), rng.normal(10.7, 1.3, size=rng.integers(1, 41))
    return (np.round(inside), np.round(outside)) if rng.integers(2) else (inside, outside)


def reference_ece(confidence, correct, bins, norm, strategy):
    """ECE from scikit-learn's calibration curve, which does not return the counts, so they are recomputed here."""
    accuracy, mean = calibration_curve(correct, confidence, n_bins=bins, strategy=strategy, pos_label=True)
    edges = np.linspace(0, 1, bins + 1)
    if strategy == "quantile":
        edges = np.percentile(confidence, edges * 100)
    counts = np.bincount(np.searchsorted(edges[1:-1], confidence), minlength=bins)
    weight, gap = counts[counts > 0] / len(confidence), np.abs(accuracy - mean)
    return {"l1": weight @ gap, "l2": np.sqrt(weight @ gap**2), "max": gap.max()}[norm]


def check_calibration(probs, labels, bins=15):
    p = probs.astype(np.float64)
    confidence, correct = p.max(axis=1), p.argmax(axis=1) == labels
    for scheme, strategy in (("width", "uniform"), ("mass", "quantile")):
        for norm in ("l1", "l2", "max"):
            expected = reference_ece(confidence, correct, bins, norm, strategy)
            assert abs(bnneval.ece(probs, labels, bins, norm, scheme) - expected) < EXACT


def check_scores(probs, labels):
    p, classes = probs.astype(np.float64), np.arange(probs.shape[1])
    assert bnneval.accuracy(probs, labels) == pytest.approx(metrics.accuracy_score(labels, p.argmax(axis=1)), abs=EXACT)
    one_hot = np.eye(len(classes))[labels]
    assert abs(bnneval.brier(probs, labels) - len(classes) * metrics.mean_squared_error(one_hot, p)) < EXACT
    truth = p[np.arange(len(labels)), labels]
    if truth.min() > 1e-15 and len(classes) > 1 and np.abs(p.sum(axis=1) - 1).max() < 1e-13:
        # scikit-learn clips at 2.2e-16 and renormalises rows; if it does neither, the two agree.
        assert bnneval.nll(probs, labels) == pytest.approx(metrics.log_loss(labels, p, labels=classes), rel=EXACT)


def check_entropy(probs):
    p = probs.astype(np.float64)
    expected = stats.entropy(p, axis=1) if np.abs(p.sum(axis=1) - 1).max() < 1e-13 else special.entr(p).sum(axis=1)
    assert np.abs(bnneval.predictive_entropy(probs) - expected).max() < EXACT


def check_roc(inside, outside):
    truth, scores = np.repeat([0, 1], [len(inside), len(outside)]), np.concatenate([inside, outside])
    curve = bnneval.roc(inside, outside)
    fpr, tpr, thresholds = metrics.roc_curve(truth, scores, drop_intermediate=False)
    assert np.abs(curve.fpr - fpr).max() < EXACT
    assert np.abs(curve.tpr - tpr).max() < EXACT
    assert (curve.thresholds == thresholds).all()
    assert abs(curve.auc - metrics.roc_auc_score(truth, scores)) < EXACT
    u = stats.mannwhitneyu(outside, inside, method="asymptotic").statistic
    assert abs(curve.auc - u / (len(inside) * len(outside))) < EXACT
    assert abs(bnneval.aupr(inside, outside) - metrics.average_precision_score(truth, scores)) < EXACT
    assert bnneval.fpr_at_tpr(inside, outside) == fpr[tpr >= 0.95].min()


# Data sets in the ordinary run: 600 + 1500 + 7500 + 500 = 10,100; one to seven numbers are compared for each.
def test_calibration_errors_agree_with_sklearn_on_600_random_cases():
    rng = np.random.default_rng(1)
    for _ in range(600):
        check_calibration(*random_predictions(rng), bins=int(rng.integers(1, 40)))


def test_accuracy_brier_and_nll_agree_with_sklearn_on_1500_random_cases():
    rng = np.random.default_rng(2)
    for _ in range(1500):
        check_scores(*random_predictions(rng))


def test_entropy_agrees_with_scipy_on_7500_random_cases():
    rng = np.random.default_rng(3)
    for _ in range(7500):
        check_entropy(random_predictions(rng)[0])


def test_roc_and_its_areas_agree_with_sklearn_and_scipy_on_500_random_cases():
    rng = np.random.default_rng(4)
    for _ in range(500):
        check_roc(*random_scores(rng))


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(4))
def test_everything_agrees_on_10000_random_data_sets(seed):
    rng = np.random.default_rng([5, seed])
    for _ in range(2500):
        probs, labels = random_predictions(rng)
        check_calibration(probs, labels, bins=int(rng.integers(1, 40)))
        check_scores(probs, labels)
        check_entropy(probs)
        check_roc(*random_scores(rng))


def one_hot(*classes, of=2):
    return np.eye(of)[list(classes)]


SATURATED = special.softmax(np.array([[20.0, 0, 0], [0, 30, 0], [0, 0, 104]], dtype=np.float32), axis=1)
EDGES = {
    "confidence exactly 1, right": (one_hot(0, 1), [0, 1]),
    "confidence exactly 1, wrong": (one_hot(0, 1), [1, 0]),
    "confidence exactly 1, half right": (one_hot(0, 0), [0, 1]),
    "probability exactly 0 of the truth": (np.array([[0.0, 1.0], [0.5, 0.5]]), [0, 0]),
    "confidence 1 and 0.95": (np.array([[0.05, 0.95], [0.0, 1.0]]), [1, 0]),
    "float32 softmax saturated to 1, right": (SATURATED, [0, 1, 2]),
    "float32 softmax saturated to 1, wrong": (SATURATED, [1, 2, 0]),
    "float32 thirds": (np.full((3, 3), 1 / 3, dtype=np.float32), [0, 1, 2]),
    "a single sample, right": (np.array([[0.7, 0.3]]), [0]),
    "a single sample, wrong": (np.array([[0.7, 0.3]]), [1]),
    "a single certain sample": (one_hot(1), [1]),
    "one class": (np.ones((4, 1)), [0, 0, 0, 0]),
    "one class, one sample": (np.ones((1, 1)), [0]),
    "a thousand classes": (np.full((2, 1000), 1e-3), [0, 999]),
    "two tied classes, the first is the label": (np.array([[0.5, 0.5]]), [0]),
    "two tied classes, the second is the label": (np.array([[0.5, 0.5]]), [1]),
    "all classes tied": (np.full((5, 4), 0.25), [0, 1, 2, 3, 0]),
    "ties between samples": (np.array([[0.8, 0.2]] * 6), [0, 0, 1, 0, 1, 0]),
    "a tie below the maximum": (np.array([[0.2, 0.2, 0.6]]), [2]),
    "all bins empty but one": (np.array([[0.51, 0.49]] * 3), [0, 1, 0]),
    "confidence on an inner edge, 0.2": (np.full((2, 5), 0.2), [0, 1]),
    "confidence on an inner edge, 0.6": (np.array([[0.6, 0.4], [0.4, 0.6]]), [0, 0]),
    "confidence one rounding above an edge": (np.array([[np.nextafter(0.6, 1), 0.4], [0.3, 0.7]]), [0, 1]),
    "confidence one rounding below an edge": (np.array([[np.nextafter(0.6, 0), 0.4], [0.3, 0.7]]), [1, 1]),
    "confidence one rounding below 1": (np.array([[1 - 2**-53, 2**-53]]), [0]),
    "the smallest positive probability": (np.array([[5e-324, 1.0]]), [1]),
    "a sum one rounding above 1": (np.array([[0.1] * 3 + [0.7 + 1e-16]]), [3]),
    "all right": (np.array([[0.9, 0.1], [0.2, 0.8]]), [0, 1]),
    "all wrong": (np.array([[0.9, 0.1], [0.2, 0.8]]), [1, 0]),
    "labels of one class only": (np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]]), [0, 0, 0]),
    "unsigned labels": (np.array([[0.9, 0.1], [0.6, 0.4]]), np.array([0, 1], dtype=np.uint8)),
    "half precision": (np.array([[0.75, 0.25], [0.5, 0.5]], dtype=np.float16), [0, 1]),
    "not contiguous": (np.array([[0.9, 0.3], [0.1, 0.7]]).T, [0, 1]),
    "more bins than samples": (np.array([[0.9, 0.1], [0.55, 0.45]]), [0, 1]),
}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("bins", [1, 2, 5, 10, 15, 64])
def test_calibration_agrees_with_sklearn_at_the_edge(name, bins):
    probs, labels = EDGES[name]
    check_calibration(probs, np.asarray(labels), bins)


@pytest.mark.parametrize("name", EDGES)
def test_scores_and_entropy_agree_with_sklearn_and_scipy_at_the_edge(name):
    probs, labels = EDGES[name]
    check_scores(probs, np.asarray(labels))
    check_entropy(probs)


ROC_EDGES = {
    "one of each": ([1.0], [2.0]),
    "one of each, tied": ([1.0], [1.0]),
    "all tied": ([3.0] * 5, [3.0] * 2),
    "perfect": ([1, 2], [3, 4]),
    "perfectly wrong": ([3, 4], [1, 2]),
    "tied in part": ([1, 2, 2, 3], [2, 3, 3]),
    "neighbouring floats": ([1.0, np.nextafter(1.0, 2)], [1.0, np.nextafter(1.0, 2)]),
    "large scores that a sigmoid would tie": ([98.1, 98.5], [98.2, 99.7]),
    "tiny scores": ([1e-300, 2e-300], [1.5e-300, 3e-300]),
    "very unequal sizes": (np.arange(500) / 7, [3.0]),
    "negative and positive zero": ([-0.0, 1.0], [0.0]),
}


@pytest.mark.parametrize("name", ROC_EDGES)
def test_roc_agrees_with_sklearn_and_scipy_at_the_edge(name):
    inside, outside = (np.asarray(s, dtype=float) for s in ROC_EDGES[name])
    check_roc(inside, outside)


def test_first_of_tied_classes_is_predicted_in_every_block_with_and_without_ties():
    rng = np.random.default_rng(6)
    probs = rng.dirichlet(np.ones(3), 200_000)  # several blocks
    probs[20_000:20_050] = 1 / 3
    labels = rng.integers(3, size=len(probs))
    confidence, correct = top(probs, labels)
    assert (confidence == probs.max(axis=1)).all()
    assert (correct == (probs.argmax(axis=1) == labels)).all()
