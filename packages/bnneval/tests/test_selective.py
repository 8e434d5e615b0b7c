"""Thresholds of abstention: by hand, by brute force, and the guarantee by simulation; Clopper-Pearson against scipy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import bnneval
from bnneval.binomial import clopper_pearson, upper_bound

# Confidences 0.9, 0.8, 0.8, 0.7, 0.6; the third and the last are wrong.
PROBS = np.array([[0.9, 0.1], [0.8, 0.2], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
LABELS = np.array([0, 0, 1, 0, 1])


def test_thresholds_are_the_lowest_confidence_kept():
    curve = bnneval.risk_coverage(PROBS, LABELS)
    assert curve.thresholds.tolist() == [0.9, 0.8, 0.8, 0.7, 0.6]
    confidence = PROBS.max(axis=1)
    for coverage, threshold in zip(curve.coverage, curve.thresholds, strict=True):
        assert (confidence >= threshold).mean() >= coverage


@pytest.mark.parametrize(
    ("max_risk", "kept", "errors"), [(0.01, 1, 0), (0.24, 1, 0), (0.25, 4, 1), (0.34, 4, 1), (0.4, 5, 2), (0.9, 5, 2)]
)
def test_the_largest_coverage_with_the_risk_asked_for_by_hand(max_risk, kept, errors):
    # Risks of the sets that a threshold can keep, 1, 3, 4 and 5 samples: 0, 1/3, 1/4, 2/5.
    chosen = bnneval.abstention_threshold(PROBS, LABELS, max_risk)
    assert (chosen.kept, chosen.errors, chosen.n) == (kept, errors, 5)
    assert chosen.risk == errors / kept
    assert chosen.coverage == kept / 5
    assert (PROBS.max(axis=1) >= chosen.threshold).sum() == kept
    assert chosen.upper is None


def test_all_samples_are_kept_by_a_threshold_of_zero_and_none_by_infinity():
    assert bnneval.abstention_threshold(PROBS, LABELS, 0.9).threshold == 0
    assert bnneval.abstention_threshold(PROBS, LABELS, 0.9, confidence=-np.arange(5.0)).threshold == -np.inf
    chosen = bnneval.abstention_threshold(PROBS, 1 - LABELS, 0.01, confidence=[5, 4, 1, 3, 2])
    assert (chosen.threshold, chosen.coverage, chosen.kept) == (np.inf, 0, 0)
    assert np.isnan(chosen.risk)
    assert chosen.describe() == "no threshold has a risk of at most 1 %: abstains always, chosen on 5 labelled samples"


@st.composite
def graded(draw):
    n = draw(st.integers(1, 25))
    levels = st.lists(st.integers(50, 60), min_size=n, max_size=n)  # percent; many ties
    p = np.array(draw(levels)) / 100
    labels = np.array(draw(st.lists(st.integers(0, 1), min_size=n, max_size=n)))
    return np.column_stack([p, 1 - p]), labels


@given(graded(), st.floats(0.01, 0.99))
def test_no_other_threshold_keeps_more_samples_at_this_risk(drawn, max_risk):
    probs, labels = drawn
    confidence, wrong = probs.max(axis=1), probs.argmax(axis=1) != labels
    sizes = [0]
    for threshold in confidence:
        keep = confidence >= threshold
        if wrong[keep].mean() <= max_risk:
            sizes.append(int(keep.sum()))
    chosen = bnneval.abstention_threshold(probs, labels, max_risk)
    assert chosen.kept == max(sizes)
    assert (confidence >= chosen.threshold).sum() == chosen.kept


@given(graded(), st.floats(0.01, 0.99), st.floats(0.5, 0.99))
def test_with_a_level_the_bound_is_at_most_the_risk_asked_for_and_the_threshold_keeps_what_it_says(drawn, risk, level):
    probs, labels = drawn
    confidence, wrong = probs.max(axis=1), probs.argmax(axis=1) != labels
    chosen = bnneval.abstention_threshold(probs, labels, risk, level)
    keep = confidence >= chosen.threshold
    assert (int(keep.sum()), int(wrong[keep].sum())) == (chosen.kept, chosen.errors)
    if chosen.kept:
        assert chosen.risk <= chosen.upper <= risk
        assert chosen.upper == pytest.approx(upper_bound(chosen.errors, chosen.kept, 1 - (1 - level) / 20))


def drawn(rng, n):
    """Confidence c uniform in (0.5, 1), right with probability c^(1/3): the risk of c >= t is known."""
    c = rng.uniform(0.5, 1, n)
    wrong = rng.random(n) > np.cbrt(c)
    return np.column_stack([c, 1 - c]), wrong.astype(int)


def true_risk(threshold):
    """1 - mean of c^(1/3) over c uniform in (t, 1)."""
    t = max(threshold, 0.5)
    return 1 - 0.75 * (1 - t ** (4 / 3)) / (1 - t) if t < 1 else 0.0


def test_the_true_risk_exceeds_the_bound_at_most_as_often_as_the_level_says():
    # 1,000 validation sets of 400 at level 0.8 and a risk of 8 %; the risk of everything is 9.5 %. If it were exceeded
    # with probability 0.2 exactly, a count above 240 would have probability 1e-3. The seed is fixed.
    rng = np.random.default_rng(0)
    exceeded, plain, coverage = 0, 0, []
    for _ in range(1000):
        probs, labels = drawn(rng, 400)
        chosen = bnneval.abstention_threshold(probs, labels, 0.08, level=0.8)
        exceeded += chosen.kept > 0 and true_risk(chosen.threshold) > 0.08
        coverage.append(chosen.coverage)
        plain += true_risk(bnneval.abstention_threshold(probs, labels, 0.08).threshold) > 0.08
    assert exceeded <= 240
    assert np.mean(coverage) > 0.1  # it is not met by abstaining always
    assert plain > 300  # without a level there is no guarantee


@pytest.mark.parametrize("trials", [1, 2, 10, 97])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_intervals_are_those_of_scipy(trials, level):
    k = np.arange(trials + 1)
    low, high = clopper_pearson(k, np.full(trials + 1, trials), level)
    for successes in k:
        exact = stats.binomtest(int(successes), trials).proportion_ci(level, "exact")
        assert (low[successes], high[successes]) == pytest.approx((exact.low, exact.high), abs=1e-12)
        one_sided = stats.binomtest(int(successes), trials, alternative="less").proportion_ci(level, "exact")
        assert upper_bound(successes, trials, level) == pytest.approx(one_sided.high, abs=1e-12)


def test_no_trials_say_nothing():
    assert clopper_pearson(0, 0) == (0, 1)
    assert upper_bound(0, 0) == 1


def test_the_rule_in_words():
    text = bnneval.abstention_threshold(PROBS, LABELS, 0.25).describe()
    assert text == "confidence >= 0.6000 keeps 80.0 % with 25.00 % errors (1 of 4), chosen on 5 labelled samples"
    probs = np.tile([[0.9, 0.1]], (100, 1))
    text = bnneval.abstention_threshold(probs, np.zeros(100, int), 0.1, level=0.95).describe()
    bound = 100 * (1 - 0.0025 ** (1 / 100))
    assert f"0.00 % errors (0 of 100), at most {bound:.2f} % on new samples with 95 % confidence" in text
