"""Each metric for regression on a case worked out by hand, and the convention for every edge."""

import itertools

import numpy as np
import pytest

import bnneval
from bnneval import strict_json
from bnneval.mixture import mixture_quantile
from bnneval.regression import crps_mixture_per_target, crps_samples_per_target, nll_mixture_per_target

ROOT_PI = np.sqrt(np.pi)
HALF_LOG_TWO_PI = np.log(2 * np.pi) / 2
EXACT = 1e-14  # a handful of operations on numbers of order one


def column(*values):
    """The S numbers of a single target, (S, 1)."""
    return np.array(values, dtype=float)[:, None]


def test_rmse_and_mae_of_two_errors():
    assert bnneval.rmse([3.0, 0.0], [0.0, 4.0]) == pytest.approx(np.sqrt(25 / 2), abs=EXACT)
    assert bnneval.mae([3.0, 0.0], [0.0, 4.0]) == 3.5


def test_nll_of_a_gaussian_has_the_half_of_z_squared_the_log_of_std_and_the_constant():
    assert bnneval.nll_gaussian([1.0], [2.0], [5.0]) == pytest.approx(2 + np.log(2) + HALF_LOG_TWO_PI, abs=EXACT)


def test_nll_of_a_mixture_averages_densities_not_their_logarithms():
    # At 0, N(0, 1) has density 1 / sqrt(2 pi) and N(2, 2^2) has exp(-1/2) / (2 sqrt(2 pi)).
    by_hand = HALF_LOG_TWO_PI - np.log((1 + np.exp(-0.5) / 2) / 2)
    assert bnneval.nll_mixture(column(0, 2), column(1, 2), [0.0]) == pytest.approx(by_hand, abs=EXACT)
    mean_of_logs = HALF_LOG_TWO_PI + (0 + 0.5 + np.log(2)) / 2
    assert by_hand < mean_of_logs - 0.1


def test_nll_does_not_underflow_far_from_every_component():
    # The density 50 standard deviations away is exp(-1250), which is 0 in float64.
    assert bnneval.nll_gaussian([0.0], [1.0], [50.0]) == pytest.approx(1250 + HALF_LOG_TWO_PI, rel=EXACT)
    nearer = 1250 + HALF_LOG_TWO_PI + np.log(2)  # the other component is 150 away and adds nothing
    assert bnneval.nll_mixture(column(0, 100), column(1, 1), [150.0]) == pytest.approx(nearer, rel=EXACT)


def test_nll_beyond_the_largest_float_is_infinite_without_a_warning():
    assert bnneval.nll_mixture(column(0, 0), column(1e-200, 1e-200), [1.0]) == np.inf
    assert bnneval.nll_mixture(column(0, 1), column(1e-200, 1), [1.0]) == pytest.approx(HALF_LOG_TWO_PI + np.log(2))


def test_crps_of_a_gaussian_at_its_mean_and_far_away():
    # At the mean: 2 sigma phi(0) - sigma / sqrt(pi) = sigma (sqrt 2 - 1) / sqrt(pi). Far away: |y - mean| - sigma / sqrt(pi).
    assert bnneval.crps_gaussian([7.0], [3.0], [7.0]) == pytest.approx(3 * (np.sqrt(2) - 1) / ROOT_PI, abs=EXACT)
    assert bnneval.crps_gaussian([0.0], [3.0], [1000.0]) == pytest.approx(1000 - 3 / ROOT_PI, rel=EXACT)


def test_crps_of_three_samples_as_pairs_and_as_an_integral():
    # Samples 0, 1, 5 and y = 2: E|X - y| = (2 + 1 + 3) / 3 = 2, and |x_s - x_t| over 3 pairs sums to 1 + 5 + 4 = 10.
    x, y = column(5, 0, 1), [2.0]
    assert bnneval.crps_samples(x, y) == pytest.approx(2 - 2 * 10 / 9 / 2, abs=EXACT)
    assert bnneval.crps_samples(x, y, fair=True) == pytest.approx(2 - 2 * 10 / 6 / 2, abs=EXACT)
    integral = 1 * (1 / 3) ** 2 + 1 * (2 / 3) ** 2 + 3 * (1 - 2 / 3) ** 2  # over [0, 1], [1, 2] and [2, 5]
    assert bnneval.crps_samples(x, y) == pytest.approx(integral, abs=EXACT)


@pytest.mark.parametrize("s", [2, 3])
def test_fair_crps_is_unbiased_over_all_draws_from_a_population(s):
    # A population of three numbers. The mean over all 3^s samples of size s is exact, without random numbers.
    population, y = np.array([-1.0, 0.5, 4.0]), 1.25
    samples = np.array(list(itertools.product(population, repeat=s))).T
    target = np.full(samples.shape[1], y)
    truth = bnneval.crps_samples(population[:, None], [y])
    assert bnneval.crps_samples(samples, target, fair=True) == pytest.approx(truth, abs=EXACT)
    between = np.abs(population - population[:, None]).mean()
    assert bnneval.crps_samples(samples, target) == pytest.approx(truth + between / (2 * s), abs=EXACT)


def test_crps_of_two_distant_components_is_that_of_two_samples_minus_their_width():
    # E|X - y| = 10. Half of the pairs are within a component, at mean distance 2 / sqrt(pi), half are 20 apart.
    by_hand = 10 - (1 / 2 * 2 / ROOT_PI + 1 / 2 * 20) / 2
    assert bnneval.crps_mixture(column(-10, 10), column(1, 1), [0.0]) == pytest.approx(by_hand, abs=EXACT)


def test_crps_of_narrow_components_is_that_of_samples():
    x, y = np.array([[0.0, 3.0], [1.0, 3.0], [5.0, 3.0]]), [2.0, 3.0]
    narrow = crps_mixture_per_target(x, np.full_like(x, 1e-300), y)  # |z| is infinite, or 0 for the second target
    assert narrow == pytest.approx(crps_samples_per_target(x, y), abs=EXACT)


def test_scores_are_means_over_targets():
    means, stds, y = np.array([[0.0, 1.0], [2.0, 1.5]]), np.array([[1.0, 2.0], [0.5, 3.0]]), np.array([1.0, -4.0])
    for metric in (bnneval.nll_mixture, bnneval.crps_mixture):
        single = [metric(means[:, [i]], stds[:, [i]], y[[i]]) for i in range(2)]
        assert metric(means, stds, y) == pytest.approx(np.mean(single), abs=EXACT)
    assert nll_mixture_per_target(means, stds, y).shape == (2,)


def test_standard_deviations_split_by_the_law_of_total_variance():
    # Variances 1, 9, 26: mean 12. Means 0, 3, 6: variance 6 with S, 9 with S - 1 in the denominator.
    means, stds = column(0, 3, 6), np.sqrt(column(1, 9, 26))
    assert bnneval.mixture_mean(means, stds).item() == 3
    assert bnneval.aleatoric_std(means, stds).item() == pytest.approx(np.sqrt(12), abs=EXACT)
    assert bnneval.epistemic_std(means, stds).item() == pytest.approx(np.sqrt(6), abs=EXACT)
    assert bnneval.total_std(means, stds).item() == pytest.approx(np.sqrt(18), abs=EXACT)


def test_a_single_weight_sample_has_no_epistemic_std():
    split = bnneval.std_split([[1.0, 2.0]], [[3.0, 4.0]])
    assert (split.total.tolist(), split.aleatoric.tolist(), split.epistemic.tolist()) == ([3, 4], [3, 4], [0, 0])


def test_interval_score_by_hand():
    # alpha = 0.2: width 2 for all; y = 4 is 1 above (2 / 0.2 * 1 = 10), y = 0.5 is 0.5 below (5), y = 3 is on the edge.
    lower, upper, y = np.full(4, 1.0), np.full(4, 3.0), np.array([2.0, 4.0, 0.5, 3.0])
    assert bnneval.interval_score(lower, upper, y, level=0.8) == pytest.approx((2 + 12 + 7 + 2) / 4, abs=EXACT)


def test_both_ends_of_an_interval_are_covered():
    assert bnneval.coverage([0.0] * 4, [1.0] * 4, [0.0, 1.0, np.nextafter(1, 2), -1e-9]) == 0.5


def test_the_level_of_an_interval_is_its_probability():
    lower, upper = bnneval.central_interval_gaussian([0.0], [1.0], level=0.6826894921370859)
    assert (lower.item(), upper.item()) == (pytest.approx(-1, abs=EXACT), pytest.approx(1, abs=EXACT))


def test_intervals_of_samples_cover_exactly_their_level_of_exchangeable_numbers():
    # Each of 20 numbers in turn is the target, the other 19 are samples. At level 0.9 the ends are the smallest and the
    # largest sample, and 18 of the 20 numbers lie between them; at level 0.5 the ends are the 5th and the 15th.
    numbers = np.random.default_rng(0).normal(size=20)
    samples = np.array([np.delete(numbers, i) for i in range(20)]).T
    for level, covered in ((0.9, 18), (0.5, 10), (0.1, 2)):
        bounds = bnneval.central_interval_samples(samples, level)
        assert bnneval.coverage(*bounds, numbers) == covered / 20


def test_the_interval_of_few_samples_ends_at_the_outermost_samples():
    lower, upper = bnneval.central_interval_samples(column(4, 1, 2), level=0.99)
    assert (lower.item(), upper.item()) == (1, 4)
    lower, upper = bnneval.central_interval_samples(column(4), level=0.5)
    assert (lower.item(), upper.item()) == (4, 4)


def test_quantiles_of_distant_components_are_quantiles_within_a_component():
    # F(x) = 1/4 is the median of the left component; in the gap F is 1/2 to rounding, from about -10 + 8.2 to 10 - 8.2.
    means, stds = column(-10, 10), column(1, 1)
    assert mixture_quantile(means, stds, 0.25).item() == pytest.approx(-10, abs=1e-12)
    assert mixture_quantile(means, stds, 0.75).item() == pytest.approx(10, abs=1e-12)
    assert -3 < mixture_quantile(means, stds, 0.5).item() < 0
    assert 0 < mixture_quantile(means, stds, np.nextafter(0.5, 1)).item() < 3


def test_pit_of_samples_is_the_middle_of_the_possible_ranks():
    # Samples 1, 2, 2, 3, so ranks are in fifths: below all, at the tie, between, above all.
    samples = np.repeat(column(1, 2, 2, 3), 4, axis=1)
    assert bnneval.pit_samples(samples, [0.0, 2.0, 2.5, 9.0]) == pytest.approx([0.1, 0.5, 0.7, 0.9], abs=EXACT)


def test_pit_of_exchangeable_numbers_takes_each_value_once():
    numbers = np.random.default_rng(1).normal(size=8)
    samples = np.array([np.delete(numbers, i) for i in range(8)]).T
    pit = bnneval.pit_samples(samples, numbers)
    assert np.sort(pit) == pytest.approx((np.arange(8) + 0.5) / 8, abs=EXACT)
    assert bnneval.pit_histogram(pit, bins=4).counts.tolist() == [2, 2, 2, 2]


def test_randomised_pit_fills_the_range_of_possible_ranks_and_is_determined_by_the_seed():
    # Samples 1, 2, 2, 3 and y = 2: the range is [1/5, 4/5]. One of 10,000 uniform numbers misses the outer 1 % of it at
    # either end with probability 2 * 0.99^10000 = 4e-44.
    samples, y = np.repeat(column(1, 2, 2, 3), 10_000, axis=1), np.full(10_000, 2.0)
    pit = bnneval.pit_samples(samples, y, np.random.default_rng(0))
    assert (pit >= 0.2).all()
    assert (pit <= 0.8).all()
    assert pit.min() < 0.206
    assert pit.max() > 0.794
    assert (pit == bnneval.pit_samples(samples, y, np.random.default_rng(0))).all()


def test_pit_of_a_mixture_averages_the_components():
    assert bnneval.pit_mixture(column(-50, 0, 50), column(1, 1, 1), [0.0]) == pytest.approx(
        (1 + 0.5 + 0) / 3, abs=EXACT
    )
    assert bnneval.pit_gaussian([0.0, 0.0], [1e-300, 1.0], [1e300, -1e300]).tolist() == [1, 0]


def test_pit_bins_are_closed_above_and_the_first_one_at_zero_too():
    histogram = bnneval.pit_histogram([0.0, 0.25, 0.25, 0.5, 0.51, 1.0], bins=4)
    assert histogram.counts.tolist() == [3, 1, 1, 1]
    assert histogram.edges.tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_quantile_calibration_of_predictions_that_are_too_low():
    # Every target is above the predicted 0.8-quantile: nothing below 0.25 and 0.5, all below 0.9.
    curve = bnneval.quantile_calibration([0.85, 0.9], levels=[0.25, 0.5, 0.9])
    assert curve.observed.tolist() == [0, 0, 1]
    assert curve.error == pytest.approx((0.25 + 0.5 + 0.1) / 3, abs=EXACT)


def test_quantile_calibration_is_perfect_if_pit_values_are_the_levels_they_should_be():
    curve = bnneval.quantile_calibration(np.arange(1, 21) / 20)
    assert curve.levels.tolist() == [k / 20 for k in range(1, 20)]
    assert curve.error == 0


def test_the_report_has_every_metric_as_a_plain_number():
    rng = np.random.default_rng(2)
    means, stds, y = rng.normal(size=(3, 50)), rng.uniform(0.5, 2, (3, 50)), rng.normal(size=50)
    report = bnneval.regression_report(means, stds, y, level=0.8, bins=5)
    bounds = bnneval.central_interval_mixture(means, stds, 0.8)
    pit = bnneval.pit_mixture(means, stds, y)
    split = bnneval.std_split(means, stds)
    histogram, curve = bnneval.pit_histogram(pit, 5), bnneval.quantile_calibration(pit)
    assert report == {
        "targets": 50,
        "weight_samples": 3,
        "rmse": bnneval.rmse(means.mean(axis=0), y),
        "mae": bnneval.mae(means.mean(axis=0), y),
        "nll": bnneval.nll_mixture(means, stds, y),
        "crps": bnneval.crps_mixture(means, stds, y),
        "level": 0.8,
        "coverage": bnneval.coverage(*bounds, y),
        "interval_width": (bounds.upper - bounds.lower).mean(),
        "interval_score": bnneval.interval_score(*bounds, y, 0.8),
        "quantile_error": curve.error,
        "total_std_mean": split.total.mean(),
        "aleatoric_std_mean": split.aleatoric.mean(),
        "epistemic_std_mean": split.epistemic.mean(),
        "quantiles": {"levels": curve.levels.tolist(), "observed": curve.observed.tolist()},
        "pit": {"edges": histogram.edges.tolist(), "counts": histogram.counts.tolist()},
    }
    assert strict_json.loads(strict_json.dumps(report)) == report
    lines = bnneval.table(report).splitlines()
    assert (len(lines), lines[0].split()) == (14, ["targets", "50"])


def test_lists_torch_tensors_and_narrow_floats_are_accepted():
    means, stds, y = (
        np.array([[0.1, 0.7]], np.float32),
        np.array([[1.5, 0.3]], np.float32),
        np.array([0.2, 0.9], np.float32),
    )
    expected = bnneval.regression_report(*(x.astype(np.float64) for x in (means, stds, y)))
    assert bnneval.regression_report(means, stds, y) == expected
    assert bnneval.regression_report(means.tolist(), stds.tolist(), y.tolist()) == expected
    torch = pytest.importorskip("torch")
    assert bnneval.regression_report(*map(torch.tensor, (means, stds, y))) == expected
