"""Properties that hold for all valid inputs, drawn by hypothesis."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import bnneval
from bnneval.calibration import NORMS, SCHEMES
from bnneval.corruptions import CORRUPTIONS, SEVERITIES

# Unnormalised probabilities of a row; zeros give exact 0 and 1, equal ones give ties.
WEIGHTS = st.sampled_from([0.0, 0.0, 1.0, 1.0, 2.0, 1e-12, 1e-6, 0.3, 7.0, 1e6])


@st.composite
def rows(draw, n, classes):
    weights = np.array(draw(st.lists(WEIGHTS | st.floats(0, 10), min_size=n * classes, max_size=n * classes)))
    table = weights.reshape(n, classes)
    table[table.sum(axis=1) == 0, 0] = 1.0
    return table / table.sum(axis=1, keepdims=True)


@st.composite
def predictions(draw, max_n=12, max_classes=5, min_classes=1):
    n, classes = draw(st.integers(1, max_n)), draw(st.integers(min_classes, max_classes))
    labels = np.array(draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n)))
    return draw(rows(n, classes)), labels


@st.composite
def sampled_predictions(draw):
    samples, n, classes = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 4))
    return np.stack([draw(rows(n, classes)) for _ in range(samples)])


# Few distinct values, so that ties are common.
def not_labels(scores):
    """Scores of only 0 and 1, also after a change of sign, are rejected in the place of ID scores."""
    return set(np.abs(scores)) != {0, 1}


SCORES = st.lists(st.integers(-3, 3).map(float) | st.floats(-1e3, 1e3), min_size=1, max_size=15).map(np.array)
SCORES = SCORES.filter(not_labels)
ROUNDED = SCORES.map(np.round).filter(not_labels)

BINS = st.integers(1, 40)
ROUND = 1e-12  # sums of at most 15 numbers of order one, in a different order


@given(predictions(), BINS, st.sampled_from(NORMS), st.sampled_from(SCHEMES), st.randoms(use_true_random=False))
def test_every_calibration_error_is_permutation_invariant(drawn, bins, norm, scheme, random):
    probs, labels = drawn
    order = np.array(random.sample(range(len(labels)), len(labels)))
    for error in (bnneval.ece, bnneval.classwise_ece):
        shuffled = error(probs[order], labels[order], bins, norm, scheme)
        assert abs(shuffled - error(probs, labels, bins, norm, scheme)) < ROUND


@given(predictions(), st.randoms(use_true_random=False))
def test_accuracy_nll_brier_and_aurc_are_permutation_invariant(drawn, random):
    probs, labels = drawn
    order = np.array(random.sample(range(len(labels)), len(labels)))
    for metric in (bnneval.accuracy, bnneval.nll, bnneval.brier, bnneval.aurc):
        before, after = metric(probs, labels), metric(probs[order], labels[order])
        assert before == after or abs(before - after) < ROUND * max(1, abs(before))


@given(predictions(), BINS, st.sampled_from(NORMS), st.sampled_from(SCHEMES))
def test_calibration_errors_are_between_zero_and_one(drawn, bins, norm, scheme):
    for error in (bnneval.ece, bnneval.classwise_ece):
        assert 0 <= error(*drawn, bins, norm, scheme) <= 1


@given(predictions(), BINS, st.sampled_from(SCHEMES))
def test_l1_is_at_most_l2_is_at_most_max(drawn, bins, scheme):
    l1, l2, largest = (bnneval.ece(*drawn, bins, norm, scheme) for norm in NORMS)
    assert l1 <= l2 + ROUND
    assert l2 <= largest + ROUND


@given(predictions(), BINS, st.sampled_from(SCHEMES))
def test_every_sample_is_in_exactly_one_bin(drawn, bins, scheme):
    diagram = bnneval.reliability(*drawn, bins, scheme)
    assert diagram.counts.sum() == len(drawn[1])
    assert np.isclose(np.nansum(diagram.counts * diagram.accuracy), len(drawn[1]) * bnneval.accuracy(*drawn))


@given(predictions(min_classes=2), BINS)
def test_ece_is_at_least_the_gap_between_mean_confidence_and_accuracy(drawn, bins):
    probs, labels = drawn
    gap = abs(probs.max(axis=1).mean() - bnneval.accuracy(probs, labels))
    assert bnneval.ece(probs, labels, bins) >= gap - ROUND
    assert abs(bnneval.ece(probs, labels, 1) - gap) < ROUND


@given(st.integers(1, 30), st.integers(1, 30), BINS, st.sampled_from(NORMS), st.sampled_from(SCHEMES))
def test_ece_is_zero_on_perfect_calibration(right, wrong, bins, norm, scheme):
    n = right + wrong
    share = max(right, wrong) / n
    probs = np.tile([share, 1 - share], (n, 1))
    labels = np.repeat([0, 1], [max(right, wrong), min(right, wrong)])
    assert bnneval.ece(probs, labels, bins, norm, scheme) < 1e-14 * n  # the mean of n equal numbers
    assert bnneval.classwise_ece(probs, labels, bins, norm, scheme) < 1e-14 * n


@given(predictions())
def test_duplicating_the_samples_changes_no_metric(drawn):
    probs, labels = np.tile(drawn[0], (2, 1)), np.tile(drawn[1], 2)
    for metric in (bnneval.accuracy, bnneval.nll, bnneval.brier, bnneval.ece, bnneval.mce, bnneval.classwise_ece):
        once, twice = metric(*drawn), metric(probs, labels)
        assert once == twice or abs(once - twice) < ROUND * max(1, abs(once))


@given(predictions(), st.randoms(use_true_random=False))
def test_renaming_the_classes_changes_neither_nll_brier_entropy_nor_classwise_ece(drawn, random):
    probs, labels = drawn
    new = np.array(random.sample(range(probs.shape[1]), probs.shape[1]))
    renamed = np.empty_like(probs)
    renamed[:, new] = probs
    for metric in (bnneval.nll, bnneval.brier, bnneval.classwise_ece):
        before, after = metric(probs, labels), metric(renamed, new[labels])
        assert before == after or abs(before - after) < ROUND * max(1, abs(before))
    assert np.allclose(bnneval.predictive_entropy(renamed), bnneval.predictive_entropy(probs), atol=ROUND)


@given(predictions())
def test_entropy_is_between_zero_and_log_of_the_classes(drawn):
    entropy = bnneval.predictive_entropy(drawn[0])
    assert (entropy >= 0).all()
    assert (entropy <= np.log(drawn[0].shape[1]) + 1e-14).all()


@given(sampled_predictions())
def test_expected_entropy_is_at_most_entropy_of_the_mean(samples):
    total = bnneval.predictive_entropy(bnneval.mean_probs(samples))
    assert (bnneval.expected_entropy(samples) <= total + ROUND).all()


@given(sampled_predictions())
def test_mutual_information_is_at_least_zero_and_at_most_log_of_the_samples(samples):
    information = bnneval.mutual_information(samples)
    assert (information >= 0).all()
    assert (information <= np.log(len(samples)) + ROUND).all()


@given(sampled_predictions())
def test_the_two_parts_add_up_to_the_total_entropy(samples):
    split = bnneval.entropy_split(samples)
    assert np.allclose(split.total, split.aleatoric + split.epistemic, atol=ROUND)


@given(sampled_predictions())
def test_shares_are_between_zero_and_one_and_one_sample_has_at_least_the_nll_of_the_average(samples):
    assert 0 <= bnneval.epistemic_share(samples) <= 1
    assert 0 <= bnneval.disagreement(samples) <= 1
    labels = np.zeros(samples.shape[1], int)
    one, averaged = bnneval.nll_one_sample(samples, labels), bnneval.nll(samples.mean(axis=0), labels)
    assert one >= averaged * (1 - ROUND) - ROUND  # Jensen; both may be infinite


@given(st.integers(1, 6), st.data())
def test_mutual_information_of_identical_samples_is_zero(copies, data):
    one = data.draw(rows(3, 4))
    assert bnneval.mutual_information(np.stack([one] * copies)).max() < 1e-14


@given(SCORES, SCORES)
def test_auroc_of_negated_scores_is_one_minus_auroc_with_ties(inside, outside):
    assert abs(bnneval.auroc(-inside, -outside) - (1 - bnneval.auroc(inside, outside))) < 1e-15


@given(SCORES, SCORES)
def test_swapping_the_sets_gives_one_minus_auroc(inside, outside):
    assert abs(bnneval.auroc(outside, inside) - (1 - bnneval.auroc(inside, outside))) < 1e-15


@given(ROUNDED, ROUNDED)
def test_auroc_aupr_and_fpr_are_invariant_under_monotone_maps(inside, outside):
    def cube(s):
        return s**3 + 2 * s - 7  # strictly increasing, exact on whole numbers up to 1000

    for metric in (bnneval.auroc, bnneval.aupr, bnneval.fpr_at_tpr):
        assert metric(cube(inside), cube(outside)) == metric(inside, outside)


@given(SCORES, SCORES)
def test_roc_rises_from_origin_to_one_and_its_trapezoids_are_the_area(inside, outside):
    curve = bnneval.roc(inside, outside)
    assert (curve.fpr[0], curve.tpr[0], curve.fpr[-1], curve.tpr[-1]) == (0, 0, 1, 1)
    assert (np.diff(curve.fpr) >= 0).all()
    assert (np.diff(curve.tpr) >= 0).all()
    assert (np.diff(curve.thresholds) < 0).all()
    assert abs(np.trapezoid(curve.tpr, curve.fpr) - curve.auc) < ROUND


@given(SCORES, SCORES, st.floats(0.01, 1))
def test_fpr_at_tpr_belongs_to_the_highest_threshold_that_reaches_the_tpr(inside, outside, tpr):
    curve = bnneval.roc(inside, outside)
    i = int(np.argmax(curve.tpr >= tpr))
    assert bnneval.fpr_at_tpr(inside, outside, tpr) == np.mean(inside >= curve.thresholds[i])
    assert (curve.tpr[:i] < tpr).all()


@given(st.data(), st.integers(2, 5))
def test_nll_is_proper_so_the_truth_minimises_it(data, classes):
    truth, other = data.draw(rows(1, classes))[0], data.draw(rows(1, classes))[0]
    labels = np.arange(classes)

    def expected(q):
        losses = np.array([bnneval.nll(q[None], [y]) for y in labels])
        return losses[truth > 0] @ truth[truth > 0]

    assert expected(truth) <= expected(other) + ROUND


@given(st.data(), st.integers(2, 5))
def test_brier_is_proper_by_exactly_the_squared_distance(data, classes):
    truth, other = data.draw(rows(1, classes))[0], data.draw(rows(1, classes))[0]

    def expected(q):
        return np.array([bnneval.brier(q[None], [y]) for y in range(classes)]) @ truth

    assert abs(expected(other) - expected(truth) - np.sum((other - truth) ** 2)) < ROUND


@given(predictions())
def test_brier_is_between_zero_and_two_and_nll_at_least_zero(drawn):
    assert 0 <= bnneval.brier(*drawn) <= 2 + 1e-15
    assert bnneval.nll(*drawn) >= -1e-15


@given(predictions())
def test_risk_at_full_coverage_is_the_error_rate_and_aurc_is_the_mean_risk(drawn):
    curve = bnneval.risk_coverage(*drawn)
    assert abs(curve.risk[-1] - (1 - bnneval.accuracy(*drawn))) < ROUND
    assert abs(curve.aurc - curve.risk.mean()) < ROUND
    assert ((curve.risk >= 0) & (curve.risk <= 1 + ROUND)).all()


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=10), st.floats(-100, 100), st.floats(0.5, 0.999))
def test_the_interval_over_seeds_contains_the_mean_and_shifts_with_the_values(values, shift, level):
    summary = bnneval.over_seeds(values, level)
    moved = bnneval.over_seeds(np.array(values) + shift, level)
    assert summary.low <= summary.mean <= summary.high
    assert np.allclose(np.array(moved[:1] + moved[2:4]), np.array(summary[:1] + summary[2:4]) + shift, atol=1e-8)


@given(predictions(), st.data())
def test_comparing_two_models_is_antisymmetric(drawn, data):
    probs, labels = drawn
    if len(labels) < 2:
        return
    other = data.draw(rows(*probs.shape))
    for score in ("error", "brier"):
        a_b, b_a = bnneval.compare(probs, other, labels, score), bnneval.compare(other, probs, labels, score)
        assert abs(a_b.difference + b_a.difference) < ROUND
        assert abs(a_b.p_value - b_a.p_value) < 1e-9


IMAGES = st.tuples(st.integers(1, 2), st.integers(16, 40), st.integers(16, 40), st.integers(0, 2**16)).map(
    lambda d: np.random.default_rng(d[3]).integers(0, 256, (*d[:3], 3), dtype=np.uint8)
)


@given(IMAGES, st.sampled_from(CORRUPTIONS), st.sampled_from(SEVERITIES), st.integers(0, 2**31))
def test_corruption_keeps_shape_and_dtype_and_does_not_modify_its_input(images, name, severity, seed):
    before = images.copy()
    corrupted = bnneval.corrupt(images, name, severity, seed)
    assert (corrupted.shape, corrupted.dtype) == (images.shape, np.uint8)
    assert (images == before).all()


@given(IMAGES, st.sampled_from(CORRUPTIONS), st.sampled_from(SEVERITIES), st.integers(0, 2**31))
def test_the_same_seed_gives_the_same_bytes_whole_or_in_batches(images, name, severity, seed):
    whole = bnneval.corrupt(images, name, severity, seed)
    parts = [bnneval.corrupt(images[i : i + 1], name, severity, seed, start=i) for i in range(len(images))]
    assert (whole == np.concatenate(parts)).all()


@given(IMAGES, st.sampled_from(CORRUPTIONS), st.integers(0, 2**31))
def test_severity_five_differs_from_one(images, name, seed):
    assert (bnneval.corrupt(images, name, 5, seed) != bnneval.corrupt(images, name, 1, seed)).any()


@given(predictions())
def test_float32_gives_the_same_results_as_the_same_values_in_float64(drawn):
    probs, labels = drawn[0].astype(np.float32), drawn[1]
    for metric in (bnneval.accuracy, bnneval.ece, bnneval.brier, bnneval.nll, bnneval.aurc):
        assert metric(probs, labels) == metric(probs.astype(np.float64), labels)
