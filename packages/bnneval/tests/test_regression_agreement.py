"""Agreement of the metrics for regression with scipy, scikit-learn, numerical integration and sums over all pairs."""

import numpy as np
import pytest
from scipy import integrate, optimize, stats
from sklearn import metrics

import bnneval
from bnneval.intervals import interval_score_per_target
from bnneval.mixture import mixture_cdf, mixture_quantile
from bnneval.regression import (
    crps_gaussian_per_target,
    crps_mixture_per_target,
    crps_samples_per_target,
    nll_mixture_per_target,
)

EXACT = 1e-12  # sums of up to 60 numbers of order ten in a different order
INTEGRATED = 1e-9  # the error that `quad` is asked for, times ten


def random_mixture(rng, n=1):
    """Up to 6 components with standard deviations from 0.05 to 5, and targets in and outside of them."""
    s = int(rng.integers(1, 7))
    means, stds = 3 * rng.normal(size=(s, n)), np.exp(rng.uniform(np.log(0.05), np.log(5), (s, n)))
    return means, stds, means[0] + rng.choice([0.3, 3, 20], n) * rng.normal(size=n)


def integral_of_squares(cdf, y, ends):
    """CRPS by its definition, integral (F(x) - 1[x >= y])^2 dx; `ends` contain all of F's mass and where F bends."""
    lowest, highest = min(*ends, y), max(*ends, y)
    options = {"epsabs": 1e-10, "epsrel": 1e-10, "limit": 500}
    below = integrate.quad(lambda x: cdf(x) ** 2, lowest, y, points=[e for e in ends if e < y], **options)[0]
    above = integrate.quad(lambda x: (1 - cdf(x)) ** 2, y, highest, points=[e for e in ends if e > y], **options)[0]
    return below + above


def test_crps_of_a_mixture_is_the_integral_that_defines_it_on_60_random_cases():
    rng = np.random.default_rng(10)
    for _ in range(60):
        means, stds, y = random_mixture(rng)
        m, sigma = means[:, 0], stds[:, 0]
        ends = np.concatenate([m - 9 * sigma, m - 2 * sigma, m, m + 2 * sigma, m + 9 * sigma])
        expected = integral_of_squares(lambda x, m=m, s=sigma: stats.norm.cdf(x, m, s).mean(), y[0], ends)
        assert bnneval.crps_mixture(means, stds, y) == pytest.approx(expected, abs=INTEGRATED)


def test_crps_of_a_gaussian_is_the_integral_that_defines_it():
    for mean, std, y in ((0, 1, 0), (0, 1, 3), (2, 0.1, 1.8), (-5, 4, 20), (1, 2, 1.5)):
        ends = mean + std * np.array([-9, -2, 0, 2, 9])
        expected = integral_of_squares(lambda x, m=mean, s=std: stats.norm.cdf(x, m, s), y, ends)
        assert bnneval.crps_gaussian([mean], [std], [y]) == pytest.approx(expected, abs=INTEGRATED)


def test_crps_of_samples_is_the_sum_over_all_pairs_on_300_random_cases():
    rng = np.random.default_rng(11)
    for _ in range(300):
        s, n = int(rng.integers(2, 12)), int(rng.integers(1, 6))
        x, y = 5 * rng.normal(size=(s, n)), 5 * rng.normal(size=n)
        if rng.integers(2):
            x, y = np.round(x), np.round(y)  # many ties
        to_target, between = np.abs(x - y).mean(axis=0), np.abs(x[:, None] - x).sum(axis=(0, 1))
        biased, fair = to_target - between / (2 * s**2), to_target - between / (2 * s * (s - 1))
        assert np.abs(crps_samples_per_target(x, y) - biased).max() < EXACT
        assert np.abs(crps_samples_per_target(x, y, fair=True) - fair).max() < EXACT


def test_crps_of_many_samples_approaches_that_of_their_distribution():
    # The CRPS of 10^5 samples differs from that of N(0, 1) by at most integral |F_S - F| (|F_S| + |F|) dx, about
    # 2 * 0.8 / sqrt(10^5) = 0.005 on average; the bound is eight times as large.
    x = np.random.default_rng(12).normal(size=(100_000, 1))
    for fair in (False, True):
        assert bnneval.crps_samples(x, [0.7], fair=fair) == pytest.approx(
            bnneval.crps_gaussian([0], [1], [0.7]), abs=0.04
        )


def test_nll_and_pit_agree_with_scipy_on_300_random_cases():
    rng = np.random.default_rng(13)
    for _ in range(300):
        means, stds, y = random_mixture(rng, n=4)
        z = (y - means) / stds
        logs = stats.norm.logpdf(y, means, stds)
        expected = -np.logaddexp.reduce(logs, axis=0) + np.log(len(means))
        assert nll_mixture_per_target(means, stds, y) == pytest.approx(expected, rel=EXACT, abs=EXACT)
        assert np.abs(bnneval.pit_mixture(means, stds, y) - stats.norm.cdf(z).mean(axis=0)).max() < EXACT
        assert bnneval.nll_gaussian(means[0], stds[0], y) == pytest.approx(-logs[0].mean(), rel=EXACT)
        assert np.abs(bnneval.pit_gaussian(means[0], stds[0], y) - stats.norm.cdf(z[0])).max() < EXACT


def test_standard_deviations_agree_with_the_second_moments():
    rng = np.random.default_rng(14)
    for _ in range(100):
        means, stds, _ = random_mixture(rng, n=4)
        variance = (means**2 + stds**2).mean(axis=0) - means.mean(axis=0) ** 2
        assert bnneval.total_std(means, stds) ** 2 == pytest.approx(
            variance, rel=1e-10
        )  # the two moments cancel in part


@pytest.mark.parametrize("p", [1e-9, 0.001, 0.025, 0.3, 0.5, 0.7, 0.975, 0.999, 1 - 1e-9])
def test_quantiles_of_mixtures_agree_with_a_root_finder_to_1e_9(p):
    rng = np.random.default_rng(15)
    for _ in range(20):
        means, stds, _ = random_mixture(rng)
        m, sigma = (means[:, 0], stds[:, 0]) if p <= 0.5 else (-means[:, 0], stds[:, 0])
        tail = p if p <= 0.5 else 1 - p
        ends = (m - 10 * sigma).min(), (m + 10 * sigma).max()
        root = optimize.brentq(lambda x, m=m, s=sigma, t=tail: stats.norm.cdf(x, m, s).mean() - t, *ends, xtol=1e-13)
        expected = root if p <= 0.5 else -root
        # Where F is flat, its relative rounding error of about 1e-15 moves the root by 1e-15 F / density.
        slack = 1e-14 * tail / stats.norm.pdf(root, m, sigma).mean()
        assert mixture_quantile(means, stds, p).item() == pytest.approx(expected, abs=max(1e-9, slack))


def test_intervals_agree_with_scipy_and_numpy():
    rng = np.random.default_rng(16)
    mean, std, samples = rng.normal(size=7), rng.uniform(0.1, 3, 7), rng.normal(size=(30, 7))
    for level in (0.05, 0.5, 0.9, 0.999):
        ours = np.stack(bnneval.central_interval_gaussian(mean, std, level))
        assert ours == pytest.approx(np.stack(stats.norm.interval(level, mean, std)), abs=EXACT)
        ours = np.stack(bnneval.central_interval_mixture(mean[None], std[None], level))
        assert ours == pytest.approx(np.stack(stats.norm.interval(level, mean, std)), abs=EXACT)
        ours = np.stack(bnneval.central_interval_samples(samples, level))
        tails = [(1 - level) / 2, (1 + level) / 2]
        assert ours == pytest.approx(stats.mstats.mquantiles(samples, tails, alphap=0, betap=0, axis=0), abs=EXACT)


def test_interval_score_is_the_sum_of_two_pinball_losses():
    rng = np.random.default_rng(17)
    for level in (0.1, 0.5, 0.8, 0.95):
        lower, y = rng.normal(size=40), 3 * rng.normal(size=40)
        upper, alpha = lower + rng.exponential(size=40), 1 - level
        pinball = [
            metrics.mean_pinball_loss(y, lower, alpha=alpha / 2),
            metrics.mean_pinball_loss(y, upper, alpha=1 - alpha / 2),
        ]
        ours = bnneval.interval_score(lower, upper, y, level)
        assert ours == pytest.approx(2 / alpha * sum(pinball), rel=EXACT)
        assert interval_score_per_target(lower, upper, y, level).mean() == ours


def test_rmse_and_mae_agree_with_sklearn():
    mean, y = np.random.default_rng(18).normal(size=(2, 100))
    assert bnneval.rmse(mean, y) == pytest.approx(metrics.root_mean_squared_error(y, mean), abs=EXACT)
    assert bnneval.mae(mean, y) == pytest.approx(metrics.mean_absolute_error(y, mean), abs=EXACT)


def test_calibrated_predictions_have_uniform_pit_and_their_nominal_coverage():
    # Each bound fails by chance with probability below 2 exp(-2 * 20000 * 0.02^2) = 2e-7 (Dvoretzky, Kiefer, Wolfowitz).
    rng, n = np.random.default_rng(19), 20_000
    means, stds = 3 * rng.normal(size=(4, n)), rng.uniform(0.3, 2, (4, n))
    drawn = rng.integers(4, size=(31, n)), rng.normal(size=(31, n))
    samples = np.take_along_axis(means, drawn[0], 0) + np.take_along_axis(stds, drawn[0], 0) * drawn[1]
    y, samples = samples[0], samples[1:]
    for pit in (
        bnneval.pit_mixture(means, stds, y),
        bnneval.pit_samples(samples, y, rng),
        bnneval.pit_samples(samples[:1], y, rng),
    ):
        assert np.abs(np.sort(pit) - np.arange(1, n + 1) / n).max() < 0.02
        assert bnneval.quantile_calibration(pit).error < 0.02
    for bounds in (bnneval.central_interval_mixture(means, stds, 0.8), bnneval.central_interval_samples(samples, 0.8)):
        assert bnneval.coverage(*bounds, y) == pytest.approx(0.8, abs=0.02)
    narrow = bnneval.pit_mixture(means, stds / 10, y)
    assert (
        bnneval.quantile_calibration(narrow).error
        > bnneval.quantile_calibration(bnneval.pit_mixture(means, stds, y)).error
    )


def test_one_call_for_many_targets_equals_one_call_for_each():
    rng = np.random.default_rng(20)
    means, stds, y = rng.normal(size=(5, 30)), rng.uniform(0.1, 2, (5, 30)), rng.normal(size=30)
    single = [crps_mixture_per_target(means[:, [i]], stds[:, [i]], y[[i]]).item() for i in range(30)]
    assert crps_mixture_per_target(means, stds, y) == pytest.approx(single, abs=EXACT)
    assert crps_gaussian_per_target(means[0], stds[0], y) == pytest.approx(
        crps_mixture_per_target(means[:1], stds[:1], y), abs=EXACT
    )
    quantiles = [mixture_quantile(means[:, [i]], stds[:, [i]], 0.1).item() for i in range(30)]
    assert mixture_quantile(means, stds, 0.1) == pytest.approx(quantiles, abs=EXACT)
    assert mixture_cdf(means, stds, mixture_quantile(means, stds, 0.1)) == pytest.approx(0.1, abs=EXACT)
