"""Paired bootstrap tests of ECE and AUROC: by hand, against DeLong's test, and by their false alarms and coverage."""

import numpy as np
import pytest
from scipy import stats

import bnneval
from bnneval.paired import _p_value, paired_auroc, paired_bootstrap, paired_ece


def test_the_p_value_belongs_to_the_basic_interval_by_hand():
    # Difference 3, resampled 0 .. 9: shifted by 3 they are -3 .. 6, of which 4 are >= 3 and 7 are <= 3.
    assert _p_value(3.0, np.arange(10.0)) == pytest.approx(2 * (4 + 1) / 11)
    assert _p_value(-3.0, -np.arange(10.0)) == pytest.approx(2 * (4 + 1) / 11)
    assert _p_value(100.0, np.arange(95.0, 105.0)) == pytest.approx(2 / 11)  # never 0
    assert _p_value(0.0, np.zeros(10)) == 1.0


def test_the_p_value_is_below_1_minus_level_if_0_is_outside_the_interval():
    rng = np.random.default_rng(0)
    for _ in range(50):
        x, y = rng.normal(0.25, 1, 60), rng.normal(0, 1, 60)
        found = paired_bootstrap(lambda n, x=x: n @ x / 60, lambda n, y=y: n @ y / 60, 60, resamples=300, level=0.9)
        outside = not found.low <= 0 <= found.high
        if abs(found.p_value - 0.1) > 0.02:  # quantiles interpolate, and the p-value counts one resample more
            assert outside == (found.p_value < 0.1)


def test_a_difference_of_means_has_the_p_value_of_the_paired_t_test():
    rng = np.random.default_rng(1)
    x, y = rng.normal(0.1, 1, 400), rng.normal(0, 1, 400)
    found = paired_bootstrap(lambda n: n @ x / 400, lambda n: n @ y / 400, 400, resamples=4000)
    # The Monte Carlo error of p = 0.1 with 4,000 resamples is 0.007 (two tails); skewness adds about as much.
    assert found.p_value == pytest.approx(stats.ttest_rel(x, y).pvalue, abs=0.03)


def test_values_are_the_metrics_themselves():
    rng = np.random.default_rng(2)
    a, b, labels = rng.dirichlet(np.ones(4), 80), rng.dirichlet(np.ones(4), (3, 80)), rng.integers(4, size=80)
    for bins in (1, 7, 50):
        found = paired_ece(a, b, labels, bins, resamples=10)
        assert found.a == pytest.approx(bnneval.ece(a, labels, bins), abs=1e-14)
        assert found.b == pytest.approx(bnneval.ece(b, labels, bins), abs=1e-14)
        assert found.difference == pytest.approx(found.a - found.b, abs=1e-15)
    scores = [rng.integers(6, size=size).astype(float) for size in (30, 20, 30, 20)]  # with ties
    found = paired_auroc(*scores, resamples=10)
    assert found.a == pytest.approx(bnneval.auroc(*scores[:2]), abs=1e-14)
    assert found.b == pytest.approx(bnneval.auroc(*scores[2:]), abs=1e-14)


def test_a_resample_by_counts_is_the_metric_of_the_repeated_samples():
    from bnneval.calibration import equal_width
    from bnneval.paired import _auroc_of, _ece_of
    from bnneval.predictive import top

    rng = np.random.default_rng(3)
    probs, labels = rng.dirichlet(np.ones(3), 40), rng.integers(3, size=40)
    rows = rng.integers(40, size=40)
    counts = np.bincount(rows, minlength=40)
    by_counts = _ece_of(*top(probs, labels), equal_width(15))(counts)
    assert by_counts == pytest.approx(bnneval.ece(probs[rows], labels[rows]), abs=1e-14)
    inside, outside = rng.integers(5, size=40).astype(float), rng.integers(2, 7, size=25).astype(float)
    others = rng.integers(25, size=25)
    area = _auroc_of(inside, outside)(counts, np.bincount(others, minlength=25))
    assert area == pytest.approx(bnneval.auroc(inside[rows], outside[others]), abs=1e-14)


def delong(inside_a, outside_a, inside_b, outside_b):
    """p-value of DeLong's test for two correlated areas under the ROC curve."""

    def placements(inside, outside):
        wins = (outside[:, None] > inside) + 0.5 * (outside[:, None] == inside)
        return wins.mean(axis=1), wins.mean(axis=0)

    (ood_a, id_a), (ood_b, id_b) = placements(inside_a, outside_a), placements(inside_b, outside_b)
    variance = np.var(ood_a - ood_b, ddof=1) / len(outside_a) + np.var(id_a - id_b, ddof=1) / len(inside_a)
    return 2 * stats.norm.sf(abs(ood_a.mean() - ood_b.mean()) / np.sqrt(variance))


@pytest.mark.parametrize("shift", [0.1, 0.2, 0.3])
def test_auroc_agrees_with_delongs_test(shift):
    rng = np.random.default_rng(4)
    inside, outside = rng.normal(size=(2, 300)), rng.normal(1, 1, size=(2, 250))
    inside[1] += 0.8 * inside[0]  # correlated scores
    outside[1] += 0.8 * outside[0] + shift
    sets = inside[0], outside[0], inside[1], outside[1]
    expected = delong(*sets)
    found = paired_auroc(*sets, resamples=2000)
    # Monte Carlo: sqrt(p / 2 * 4 / 2000) <= 0.03 at three standard deviations for p <= 0.1; DeLong's is a limit for large sets.
    assert found.p_value == pytest.approx(expected, abs=0.05)
    width = (found.high - found.low) / 2 / stats.norm.ppf(0.975)
    z = abs(found.difference) / width
    assert 2 * stats.norm.sf(z) == pytest.approx(expected, abs=0.05)


def test_pairing_matters():
    # The same scores plus a little noise: unpaired intervals of both overlap, the paired one excludes 0.
    rng = np.random.default_rng(5)
    inside, outside = rng.normal(size=400), rng.normal(1, 1, size=400)
    better = outside + np.abs(rng.normal(0, 0.3, 400))
    found = paired_auroc(inside, better, inside, outside, resamples=300)
    assert found.low > 0
    assert found.p_value < 0.01
    apart = bnneval.bootstrap_auroc(inside, better, 300), bnneval.bootstrap_auroc(inside, outside, 300)
    assert apart[0].low < apart[1].high


def two_classes(confidence):
    return np.column_stack([confidence, 1 - confidence])


def test_equal_models_are_rarely_told_apart_and_different_ones_often():
    # 150 pairs of models that report 9 % too much and differ by noise only, so that the population ECE is the same: at
    # 5 % a count of rejections above 17 has probability 1e-3 for an exact test. The seed is fixed.
    rng = np.random.default_rng(6)
    false, found = 0, 0
    for _ in range(150):
        p = rng.uniform(0.6, 0.85, 500)
        labels = (rng.random(500) > p).astype(int)
        a, b = (two_classes(p + 0.09 + rng.normal(0, 0.005, 500)) for _ in range(2))
        false += paired_ece(a, b, labels, 10, resamples=100).p_value < 0.05
        found += paired_ece(a, two_classes(p), labels, 10, resamples=100).p_value < 0.05
    assert false <= 17
    assert found >= 100


def test_it_is_antisymmetric_and_deterministic_in_the_seed():
    rng = np.random.default_rng(7)
    a, b, labels = rng.dirichlet(np.ones(3), 100), rng.dirichlet(np.ones(3), 100), rng.integers(3, size=100)
    one, other = paired_ece(a, b, labels, resamples=50), paired_ece(b, a, labels, resamples=50)
    assert (one.difference, one.low, one.high) == pytest.approx((-other.difference, -other.high, -other.low))
    assert one.p_value == other.p_value
    assert paired_ece(a, b, labels, resamples=50) == one != paired_ece(a, b, labels, resamples=50, seed=1)


def test_a_model_does_not_differ_from_itself():
    rng = np.random.default_rng(8)
    probs, labels = rng.dirichlet(np.ones(3), 50), rng.integers(3, size=50)
    assert paired_ece(probs, probs, labels, resamples=20)[2:] == (0, 0, 0, 1)


def test_an_infinite_value_cannot_be_compared():
    with pytest.raises(ValueError, match="expected finite values of both models, got inf and 0.0"):
        paired_bootstrap(lambda n: np.inf, lambda n: 0.0, 3)
