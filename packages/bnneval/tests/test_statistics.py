"""Statistics over seeds, bootstrap intervals and paired comparisons, against scipy and by their coverage."""

import numpy as np
import pytest
from scipy import stats

import bnneval
from bnneval.statistics import bootstrap, bootstrap_auroc, bootstrap_ece, compare, over_seeds, paired_difference


def test_over_seeds_agrees_with_scipy_and_uses_n_minus_one():
    values = np.array([98.2, 98.9, 98.4, 99.1])
    summary = over_seeds(values, level=0.9)
    low, high = stats.t.interval(0.9, 3, loc=values.mean(), scale=stats.sem(values))
    assert np.allclose([summary.low, summary.high], [low, high], atol=1e-12)
    assert summary.std == pytest.approx(np.sqrt(np.sum((values - values.mean()) ** 2) / 3), abs=1e-13)
    assert summary.n == 4


def test_one_seed_has_no_spread():
    with pytest.raises(ValueError, match="at least two seeds"):
        over_seeds([0.9])


def test_paired_difference_agrees_with_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=12), rng.normal(size=12)
    ours, theirs = paired_difference(a, b), stats.ttest_rel(a, b)
    interval = theirs.confidence_interval(0.95)
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=1e-12)
    assert np.allclose([ours.low, ours.high], [interval.low, interval.high], atol=1e-12)


def test_a_constant_difference_has_p_value_0_and_no_difference_has_p_value_1():
    assert paired_difference([1.0, 2.0], [0.5, 1.5]).p_value == 0.0
    assert paired_difference([1.0, 2.0], [1.0, 2.0]).p_value == 1.0


def test_mcnemar_p_value_is_binomial():
    # a errs alone on 2 samples, b alone on 8: p = 2 * P(Bin(10, 1/2) <= 2) = 2 * 56 / 1024.
    labels = np.zeros(20, int)
    right, wrong = [0.9, 0.1], [0.1, 0.9]
    a = [wrong] * 2 + [right] * 18
    b = [right] * 2 + [wrong] * 8 + [right] * 10
    result = compare(a, b, labels, score="error")
    assert result.p_value == pytest.approx(112 / 1024, abs=1e-12)
    assert result.difference == pytest.approx((2 - 8) / 20, abs=1e-15)


@pytest.mark.parametrize("only_a", range(6))
@pytest.mark.parametrize("only_b", range(6))
def test_mcnemar_agrees_with_scipys_binomial_test(only_a, only_b):
    right, wrong = [0.9, 0.1], [0.1, 0.9]
    a = [wrong] * only_a + [right] * (only_b + 3)
    b = [right] * only_a + [wrong] * only_b + [right] * 3
    expected = stats.binomtest(only_a, only_a + only_b).pvalue if only_a + only_b else 1.0
    assert compare(a, b, np.zeros(len(a), int), "error").p_value == pytest.approx(expected, abs=1e-12)


def test_comparing_a_model_with_itself_finds_no_difference():
    probs, labels = np.random.default_rng(1).dirichlet(np.ones(3), 50), np.zeros(50, int)
    for score in ("error", "nll", "brier"):
        assert compare(probs, probs, labels, score)[:4] == (0.0, 0.0, 0.0, 1.0)


def test_an_infinite_nll_cannot_be_compared():
    with pytest.raises(ValueError, match="finite"):
        compare([[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]], [1, 0])


def test_the_basic_interval_mirrors_the_resampled_values_about_the_metric():
    # Resampled values 0, 1, ..., 100 and metric 40: quantiles 5 and 95 are mirrored to 80 - 95 and 80 - 5.
    values = iter(range(101))
    assert bootstrap(lambda rng: next(values), 40.0, resamples=101, level=0.9, seed=0) == pytest.approx((40, -15, 75))


def test_bootstrap_is_deterministic_in_the_seed():
    rng = np.random.default_rng(2)
    inside, outside = rng.normal(size=50), rng.normal(1, 1, size=50)
    assert bootstrap_auroc(inside, outside, seed=3) == bootstrap_auroc(inside, outside, seed=3)
    assert bootstrap_auroc(inside, outside, seed=3) != bootstrap_auroc(inside, outside, seed=4)


def test_bootstrap_values_are_the_metrics_themselves():
    rng = np.random.default_rng(3)
    probs, labels = rng.dirichlet(np.ones(4), 80), rng.integers(4, size=80)
    assert bootstrap_ece(probs, labels, resamples=10).value == bnneval.ece(probs, labels)
    assert bootstrap_auroc(probs[:, 0], probs[:, 1], resamples=10).value == bnneval.auroc(probs[:, 0], probs[:, 1])


def test_bootstrap_interval_of_auroc_covers_the_truth_as_often_as_it_says():
    # N(0,1) against N(1,1): AUC = Phi(1 / sqrt 2) = 0.7602. Of 200 sets of 80 + 80, a 90 % interval should cover 180;
    # at exactly 90 %, a count outside 162..196 has probability 4e-5. The seed is fixed.
    truth = stats.norm.cdf(1 / np.sqrt(2))
    rng = np.random.default_rng(4)
    covered = 0
    for _ in range(200):
        interval = bootstrap_auroc(rng.normal(size=80), rng.normal(1, 1, size=80), resamples=200, level=0.9)
        covered += interval.low <= truth <= interval.high
    assert 162 <= covered <= 196


def overconfident(rng, n):
    """Two classes, confidence uniform in (0.6, 1), right with probability confidence - 0.1."""
    confidence = rng.uniform(0.6, 1, n)
    labels = (rng.random(n) > confidence - 0.1).astype(int)
    return np.column_stack([confidence, 1 - confidence]), labels


def test_bootstrap_interval_of_ece_covers_the_truth_when_miscalibration_is_clear():
    # All bins are off by 0.1, so the population ECE is 0.1. 200 sets of 1,000, 10 bins; same bounds as above.
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        interval = bootstrap_ece(*overconfident(rng, 1000), bins=10, resamples=200, level=0.9)
        covered += interval.low <= 0.1 <= interval.high
    assert 162 <= covered <= 196
