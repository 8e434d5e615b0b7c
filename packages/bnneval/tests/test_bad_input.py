"""Invalid input raises a one-line ValueError that says what was expected and what was given."""

import numpy as np
import pytest

import bnneval

GOOD, LABELS = np.array([[0.7, 0.3], [0.2, 0.8]]), np.array([0, 1])
IMAGES = np.zeros((1, 32, 32, 3), np.uint8)
MANY = np.tile(GOOD, (10_000, 1))


def broken(row, value):
    probs = MANY.copy()
    probs[row, 0] = value
    return probs


PROBS = {
    "logits": (np.array([[3.0, -1.0], [0.2, 5.0]]), r"probs >= 0, got -1 in row 0; logits need a softmax first"),
    "positive logits": (np.array([[3.0, 1.0], [0.2, 5.0]]), r"rows of probs that sum to 1, got a sum of 4 in row 0"),
    "unnormalised": (GOOD * 1.01, r"sum to 1, got a sum of 1.01 in row 0"),
    "log-probabilities": (np.log(GOOD), r"probs >= 0, got -1.20397 in row 0"),
    "NaN": (np.array([[0.7, 0.3], [np.nan, 0.8]]), r"finite probs, got nan in row 1"),
    "infinite": (np.array([[np.inf, 0.3], [0.2, 0.8]]), r"finite probs, got inf in row 0"),
    "both infinities": (np.array([[np.inf, -np.inf], [0.2, 0.8]]), r"finite probs, got inf in row 0"),
    "huge": (np.array([[1e308, 1e308], [0.2, 0.8]]), r"sum to 1, got a sum of inf in row 0"),
    "negative": (np.array([[1.5, -0.5], [0.2, 0.8]]), r"probs >= 0, got -0.5 in row 0"),
    "binary, above 1": (np.array([0.7, 1.2]), r"0 <= probs <= 1, got 1.2 at index 1"),
    "binary, NaN": (np.array([np.nan, 0.2]), r"finite probs, got nan at index 0"),
    "binary, booleans": (np.array([True, False]), r"expected probs to be numbers, got dtype bool"),
    "a scalar": (np.array(0.5), r"shape \(N, C\), got \(\)"),
    "weight samples that are logits": (np.stack([GOOD, GOOD * 3]), r"rows of probs that sum to 1, got a sum of 3"),
    "four axes": (np.ones((1, 1, 2, 1)), r"shape \(N, C\), got \(1, 1, 2, 1\)"),
    "empty": (np.zeros((0, 2)), r"at least one sample and one class, got \(0, 2\)"),
    "no classes": (np.zeros((2, 0)), r"at least one sample and one class, got \(2, 0\)"),
    "ragged": ([[0.7, 0.3], [1.0]], r"expected probs that numpy.asarray takes, got list"),
    "words": ([["a", "b"]], r"expected probs to be numbers, got dtype"),
    "objects": (np.array([[None, 1], [1, 1]]), r"expected probs to be numbers, got dtype object"),
    "booleans": (GOOD > 0.5, r"expected probs to be numbers, got dtype bool"),
    "complex": (GOOD + 0j, r"expected probs to be numbers, got dtype complex128"),
}
METRICS = [
    bnneval.accuracy,
    bnneval.ece,
    bnneval.mce,
    bnneval.classwise_ece,
    bnneval.reliability,
    bnneval.nll,
    bnneval.brier,
    bnneval.aurc,
]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", PROBS)
def test_every_metric_rejects_rows_that_are_not_distributions(metric, name):
    probs, message = PROBS[name]
    with pytest.raises(ValueError, match=message) as error:
        metric(probs, LABELS)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("metric", [bnneval.ece, bnneval.nll])
@pytest.mark.parametrize("row", [0, 9_999, 19_999])
@pytest.mark.parametrize("value", [np.nan, -0.1, 5.0])
def test_one_broken_row_of_many_is_found_wherever_it_is(metric, row, value):
    with pytest.raises(ValueError, match=f"in row {row}"):
        metric(broken(row, value), np.tile(LABELS, 10_000))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, 2]), r"labels in 0..1, got 2"),
        (np.array([0, -1]), r"labels in 0..1, got -1"),
        (np.array([0.0, 1.0]), r"integer labels, got dtype float64"),
        (np.array(["a", "b"]), r"integer labels, got dtype <U1; names need classes=, the names of the columns"),
        (np.array([0]), r"labels of shape \(2,\), got \(1,\)"),
        (np.eye(2, dtype=int), r"labels of shape \(2,\), got \(2, 2\)"),
    ],
)
def test_every_metric_rejects_wrong_labels(metric, labels, message):
    with pytest.raises(ValueError, match=message):
        metric(GOOD, labels)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bnneval.ece(GOOD, LABELS, bins=0), "integer bins in 1..100000, got 0"),
        (lambda: bnneval.ece(GOOD, LABELS, bins=10**11), "integer bins in 1..100000, got 100000000000"),
        (lambda: bnneval.ece(GOOD, LABELS, bins=2.5), "integer bins in 1..100000, got 2.5"),
        (lambda: bnneval.ece(GOOD, LABELS, norm="l3"), "norm to be one of l1, l2, max, got 'l3'"),
        (lambda: bnneval.ece(GOOD, LABELS, scheme="equal"), "scheme to be one of width, mass, got 'equal'"),
        (lambda: bnneval.mutual_information(GOOD), r"sample_probs of shape \(S, N, C\), got \(2, 2\)"),
        (lambda: bnneval.mean_probs(np.zeros((0, 2, 2))), "at least one sample"),
        (lambda: bnneval.auroc([], [1.0]), "at least one value in scores_id, got an empty array"),
        (lambda: bnneval.auroc([1.0], []), "at least one value in scores_ood, got an empty array"),
        (lambda: bnneval.auroc([np.nan], [1.0]), "finite scores_id, got nan at index 0"),
        (lambda: bnneval.accuracy(np.eye(3), [True, False, True]), "integer labels for 3 classes, got dtype bool"),
        (lambda: bnneval.nll(GOOD, ["a", "c"], classes=["a", "b"]), "among the classes a, b, got 'c' at index 1"),
        (lambda: bnneval.nll(GOOD, ["a", "b"], classes=["a"]), "2 different classes, one per column of probs, got a"),
        (lambda: bnneval.nll(GOOD, ["a", "b"], classes=["a", "a"]), "2 different classes, one per column"),
        (lambda: bnneval.nll(GOOD, ["a"], classes=["a", "b"]), r"labels of shape \(2,\), got \(1,\)"),
        (lambda: bnneval.ece(GOOD, LABELS, bins=5, n_bins=6), "bins or its alias n_bins, got bins=5 and n_bins=6"),
        (lambda: bnneval.ece(GOOD, LABELS, n_bins=0), "integer bins in 1..100000, got 0"),
        (lambda: bnneval.predictive_entropy([0.2, 0.8]), r"shape \(N, C\), got \(2,\); write p\[None\] for one row"),
        (lambda: bnneval.abstention_threshold(GOOD, LABELS, 0), "0 < max_risk < 1, got 0"),
        (lambda: bnneval.abstention_threshold(GOOD, LABELS, 0.1, level=1), "0 < level < 1, got 1"),
        (lambda: bnneval.conformal_threshold(GOOD, LABELS, 1.0), "0 < coverage < 1, got 1.0"),
        (lambda: bnneval.conformal_threshold(GOOD, LABELS, method="raps"), "method to be one of lac, aps, got 'raps'"),
        (lambda: bnneval.clopper_pearson(3, 2), "integers 0 <= successes <= trials, got 3 and 2"),
        (lambda: bnneval.clopper_pearson(0.5, 2), "integers 0 <= successes <= trials, got 0.5 and 2"),
        (
            lambda: bnneval.fit_temperature([[np.nan, 0.0]], [0]),
            "finite or -infinity, got a largest one of nan in row 0",
        ),
        (lambda: bnneval.fit_temperature([[-np.inf, -np.inf]], [0]), "got a largest one of -inf in row 0"),
        (lambda: bnneval.fit_temperature([0.5, 0.5], [0]), r"logits of shape \(S, N, C\), got \(2,\)"),
        (lambda: bnneval.apply_temperature([[0.5, 0.5]], 0.0), "0 < temperature < infinity, got 0.0"),
        (lambda: bnneval.fit_isotonic(GOOD, LABELS).apply(np.eye(3)), "probs of 2 classes, got 3"),
        (lambda: bnneval.paired_auroc([1, 2], [3], [1], [3]), "as many ID and OOD scores of both models, got 2 and 1"),
        (lambda: bnneval.paired_ece(GOOD, GOOD[:1], LABELS), r"labels of shape \(1,\), got \(2,\)"),
        (lambda: bnneval.Evaluation().compute(), "at least one batch"),
        (lambda: bnneval.Evaluation(scheme="equal"), "scheme to be one of width, mass, got 'equal'"),
        (lambda: bnneval.auroc(GOOD, [1.0]), r"scores_id of shape \(N,\), got \(2, 2\)"),
        (lambda: bnneval.fpr_at_tpr([1.0], [2.0], tpr=0), "0 < tpr <= 1, got 0"),
        (lambda: bnneval.aurc(GOOD, LABELS, confidence=[1.0]), r"confidence of shape \(2,\), got \(1,\)"),
        (lambda: bnneval.over_seeds([1.0, 2.0], level=1.0), "0 < level < 1, got 1.0"),
        (lambda: bnneval.paired_difference([1.0, 2.0], [1.0]), "a and b of the same length, got 2 and 1"),
        (lambda: bnneval.compare(GOOD, GOOD, LABELS, score="f1"), "score to be one of error, nll, brier, got 'f1'"),
        (lambda: bnneval.bootstrap_ece(GOOD, LABELS, resamples=1), "integer resamples >= 2, got 1"),
        (lambda: bnneval.corrupt(IMAGES / 255, "fog", 1), "uint8 images, got dtype float64"),
        (lambda: bnneval.corrupt(IMAGES[0], "fog", 1), r"shape \(N, H, W, 3\), got \(32, 32, 3\)"),
        (lambda: bnneval.corrupt(IMAGES[..., :1], "fog", 1), "np.repeat"),
        (lambda: bnneval.corrupt(np.zeros((1, 224, 224, 3), np.uint8), "fog", 1), "height and width from 16 to 60"),
        (lambda: bnneval.corrupt(IMAGES[:0], "fog", 1), "at least one image"),
        (lambda: bnneval.corrupt(IMAGES, "rain", 1), "name to be one of gaussian_noise.*, got 'rain'"),
        (lambda: bnneval.corrupt(IMAGES, "fog", 0), r"integer severity in 1..5, got 0"),
        (lambda: bnneval.corrupt(IMAGES, "fog", 6), r"integer severity in 1..5, got 6"),
        (lambda: bnneval.corrupt(IMAGES, "fog", True), r"integer severity in 1..5, got True"),
        (lambda: bnneval.corrupt(IMAGES, "fog", 1, seed=-1), "integer seed >= 0, got -1"),
        (lambda: bnneval.report(GOOD, LABELS, np.stack([GOOD, GOOD])), r"OOD probs \(N, C\) with C = 2 like the"),
        (lambda: bnneval.report(np.stack([GOOD, GOOD]), LABELS, GOOD), r"OOD probs \(S, N, C\) with C = 2 like the"),
        (lambda: bnneval.report(GOOD, LABELS, np.full((2, 4), 0.25)), r"got shape \(2, 4\)"),
        (lambda: bnneval.report(GOOD, LABELS, GOOD * 2), "rows of OOD probs that sum to 1, got a sum of 2 in row 0"),
        (lambda: bnneval.report(GOOD, LABELS, GOOD * np.nan), "finite OOD probs, got nan in row 0$"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_rounding_of_narrow_floats_is_accepted():
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(1000), 50)
    for dtype in (np.float32, np.float16):
        assert 0 <= bnneval.brier(probs.astype(dtype), np.zeros(50, int)) <= 2


def test_float16_rows_are_normalised_in_every_function():
    # After rounding to 11 bits, sums are off by up to 5e-4, more than the tolerance for wider floats.
    rng = np.random.default_rng(0)
    samples, labels = rng.dirichlet(np.full(10, 0.3), (3, 200)).astype(np.float16), rng.integers(10, size=200)
    sums = samples.astype(np.float64).sum(axis=2, keepdims=True)
    assert np.abs(sums - 1).max() > 1e-4
    exact = samples / sums
    for halves, doubles in ((samples, exact), (samples[0], exact[0])):
        ours, expected = bnneval.report(halves, labels, halves), bnneval.report(doubles, labels, doubles)
        assert ours["ece"] == pytest.approx(expected["ece"], abs=1e-15)
        assert ours["entropy_mean"] == pytest.approx(expected["entropy_mean"], abs=1e-15)
    assert bnneval.ece(samples[0], labels) == pytest.approx(bnneval.ece(exact[0], labels), abs=1e-15)
    assert bnneval.ece(bnneval.mean_probs(samples), labels) == pytest.approx(bnneval.report(samples, labels)["ece"])
    result = bnneval.evaluate_shift(lambda x: samples[:, : len(x)], np.repeat(IMAGES, 3, axis=0), labels[:3], ("fog",))
    assert result.clean.nll == pytest.approx(bnneval.nll(exact[:, :3].mean(axis=0), labels[:3]), abs=1e-14)


def test_the_first_of_two_broken_rows_is_named_even_in_a_later_block():
    probs = np.tile(GOOD, (100_000, 1))
    probs[[150_000, 30_001]] = 0.9
    with pytest.raises(ValueError, match="in row 30001"):
        bnneval.ece(probs, np.tile(LABELS, 100_000))
