"""Properties of the metrics for regression that hold for all valid inputs, drawn by hypothesis."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import bnneval
from bnneval.mixture import mixture_cdf, mixture_quantile
from bnneval.regression import crps_gaussian_per_target, crps_mixture_per_target, crps_samples_per_target

# Few distinct whole numbers, so that ties are common.
NUMBERS = st.integers(-3, 3).map(float) | st.floats(-100, 100)
STDS = st.sampled_from([0.01, 1.0, 1.0, 2.0]) | st.floats(0.01, 10)
PROBABILITIES = st.floats(0.001, 0.999)
SHIFTS, SCALES = st.floats(-100, 100), st.floats(0.1, 10)
RANDOMS = st.randoms(use_true_random=False)
ROUND = 1e-11  # sums of a few dozen numbers of order 100, in a different order


@st.composite
def arrays(draw, elements, *shape):
    size = int(np.prod(shape))
    return np.array(draw(st.lists(elements, min_size=size, max_size=size))).reshape(shape)


@st.composite
def sampled(draw, min_samples=1):
    """Samples (S, N) and targets (N,)."""
    s, n = draw(st.integers(min_samples, 6)), draw(st.integers(1, 4))
    return draw(arrays(NUMBERS, s, n)), draw(arrays(NUMBERS, n))


@st.composite
def mixtures(draw, max_components=5):
    """Means (S, N), standard deviations (S, N) and targets (N,)."""
    s, n = draw(st.integers(1, max_components)), draw(st.integers(1, 4))
    return draw(arrays(NUMBERS, s, n)), draw(arrays(STDS, s, n)), draw(arrays(NUMBERS, n))


def near(a, b, tolerance=ROUND):
    """Equal to a tolerance relative to the larger of 1 and the number."""
    return bool((np.abs(np.subtract(a, b)) <= tolerance * np.maximum(1, np.abs(b))).all())


@given(mixtures())
def test_crps_of_gaussians_and_mixtures_is_above_zero_and_at_most_the_mean_distance(drawn):
    means, stds, y = drawn
    crps = crps_mixture_per_target(means, stds, y)
    assert (crps > 0).all()
    assert (crps <= (np.abs(means - y) + stds).mean(axis=0)).all()  # E|X - y| <= |m - y| + E|X - m|
    assert (crps_gaussian_per_target(means[0], stds[0], y) > 0).all()


@given(sampled(min_samples=2))
def test_crps_of_samples_is_at_least_zero_and_the_fair_one_at_most_the_other(drawn):
    fair, biased = crps_samples_per_target(*drawn, fair=True), crps_samples_per_target(*drawn)
    assert (fair >= 0).all()
    assert (fair <= biased).all()
    assert (biased <= np.abs(drawn[0] - drawn[1]).mean(axis=0) + ROUND).all()


@given(st.data(), st.integers(1, 5))
def test_crps_of_a_point_mass_is_the_absolute_error(data, s):
    x, y = data.draw(arrays(NUMBERS, 3)), data.draw(arrays(NUMBERS, 3))
    copies = np.tile(x, (s, 1))
    assert near(bnneval.crps_samples(copies, y), bnneval.mae(x, y))
    assert near(bnneval.crps_mixture(copies, np.full_like(copies, 1e-12), y), bnneval.mae(x, y))
    assert near(bnneval.crps_gaussian(x, np.full_like(x, 1e-12), y), bnneval.mae(x, y))


@given(mixtures(max_components=1))
def test_a_mixture_of_one_component_is_a_gaussian(drawn):
    means, stds, y = drawn
    for name in ("nll", "crps", "pit"):
        mixture, gaussian = getattr(bnneval, f"{name}_mixture"), getattr(bnneval, f"{name}_gaussian")
        assert near(mixture(means, stds, y), gaussian(means[0], stds[0], y))
    mixture = bnneval.central_interval_mixture(means, stds, 0.9)
    assert near(mixture, bnneval.central_interval_gaussian(means[0], stds[0], 0.9))
    assert near(bnneval.total_std(means, stds), stds[0])


@given(mixtures(), st.integers(2, 3))
def test_repeating_every_component_changes_nothing(drawn, times):
    means, stds, y = drawn
    many = np.tile(means, (times, 1)), np.tile(stds, (times, 1))
    for metric in (bnneval.nll_mixture, bnneval.crps_mixture, bnneval.pit_mixture):
        assert near(metric(*many, y), metric(means, stds, y))
    assert near(bnneval.std_split(*many), bnneval.std_split(means, stds))
    assert near(bnneval.crps_samples(many[0], y), bnneval.crps_samples(means, y))


@given(mixtures(), RANDOMS)
def test_the_order_of_components_and_of_targets_does_not_matter(drawn, random):
    means, stds, y = drawn
    rows = np.array(random.sample(range(len(means)), len(means)))
    columns = np.array(random.sample(range(len(y)), len(y)))
    shuffled = means[rows][:, columns], stds[rows][:, columns], y[columns]
    for metric in (bnneval.nll_mixture, bnneval.crps_mixture):
        assert near(metric(*shuffled), metric(*drawn))
    assert near(bnneval.pit_mixture(*shuffled), bnneval.pit_mixture(*drawn)[columns])
    assert near(bnneval.total_std(*shuffled[:2]), bnneval.total_std(means, stds)[columns])
    assert near(bnneval.crps_samples(shuffled[0], shuffled[2]), bnneval.crps_samples(means, y))
    assert (bnneval.pit_samples(shuffled[0], shuffled[2]) == bnneval.pit_samples(means, y)[columns]).all()


@given(mixtures(), SHIFTS, SCALES, st.sampled_from([-1, 1]))
def test_scores_of_mixtures_follow_a_change_of_unit_of_origin_and_of_sign(drawn, shift, scale, sign):
    means, stds, y = drawn
    moved = sign * scale * means + shift, scale * stds, sign * scale * y + shift
    # Rounding of the shifted numbers, 1e-14, is divided by std, at least 0.001, and multiplied by z, at most 2e5.
    assert near(bnneval.nll_mixture(*moved), bnneval.nll_mixture(*drawn) + np.log(scale), 1e-6)
    assert near(bnneval.crps_mixture(*moved), scale * bnneval.crps_mixture(*drawn), 1e-10)
    pit = bnneval.pit_mixture(*drawn)
    assert near(bnneval.pit_mixture(*moved), pit if sign > 0 else 1 - pit, 1e-8)
    assert near(bnneval.std_split(*moved[:2]), scale * np.array(bnneval.std_split(means, stds)), 1e-10)


@given(sampled(min_samples=2), SHIFTS, SCALES, st.booleans())
def test_crps_of_samples_follows_a_change_of_unit_and_of_origin(drawn, shift, scale, fair):
    samples, y = drawn
    for factor in (scale, -scale):
        moved = bnneval.crps_samples(factor * samples + shift, factor * y + shift, fair=fair)
        assert near(moved, scale * bnneval.crps_samples(samples, y, fair=fair), 1e-10)


@given(sampled())
def test_pit_of_samples_is_between_zero_and_one_and_reflects_with_the_numbers(drawn):
    samples, y = drawn
    pit = bnneval.pit_samples(samples, y)
    assert ((pit > 0) & (pit < 1)).all()
    assert near(bnneval.pit_samples(-samples, -y), 1 - pit)  # ties count the same from both sides


@given(sampled(), st.integers(0, 100))
def test_randomised_pit_is_within_half_a_tie_of_the_mid_rank(drawn, seed):
    samples, y = drawn
    randomised = bnneval.pit_samples(samples, y, np.random.default_rng(seed))
    half = ((samples == y).sum(axis=0) + 1) / (len(samples) + 1) / 2
    assert (np.abs(randomised - bnneval.pit_samples(samples, y)) <= half + ROUND).all()


@given(mixtures())
def test_a_mixture_scores_at_least_as_well_as_its_components_on_average(drawn):
    # Both scores are convex in the predicted distribution.
    means, stds, y = drawn
    for mixture, gaussian in (
        (bnneval.nll_mixture, bnneval.nll_gaussian),
        (bnneval.crps_mixture, bnneval.crps_gaussian),
    ):
        components = np.mean([gaussian(m, sigma, y) for m, sigma in zip(means, stds, strict=True)])
        assert mixture(means, stds, y) <= components + ROUND * max(1, abs(components))


@given(mixtures())
def test_the_two_variances_add_up_to_the_total(drawn):
    total, aleatoric, epistemic = bnneval.std_split(*drawn[:2])
    assert near(total**2, aleatoric**2 + epistemic**2)
    assert ((total >= aleatoric) & (total >= epistemic) & (epistemic >= 0)).all()


@given(mixtures(), PROBABILITIES)
def test_the_cdf_at_a_quantile_is_its_level(drawn, p):
    means, stds, _ = drawn
    # x of order 100 has a rounding error of 1e-14, which the density, at most 0.4 / 0.01, multiplies.
    assert near(mixture_cdf(means, stds, mixture_quantile(means, stds, p)), p, 1e-11)


@given(mixtures(), st.floats(0.01, 0.98), st.floats(0.001, 0.019))
def test_intervals_grow_with_their_level(drawn, level, more):
    means, stds, _ = drawn
    for interval, prediction in (
        (bnneval.central_interval_mixture, (means, stds)),
        (bnneval.central_interval_gaussian, (means[0], stds[0])),
        (bnneval.central_interval_samples, (means,)),
    ):
        inner, outer = interval(*prediction, level), interval(*prediction, level + more)
        assert (outer.lower <= inner.lower + ROUND).all()
        assert (inner.lower <= inner.upper).all()
        assert (inner.upper <= outer.upper + ROUND).all()


@given(mixtures(), SHIFTS, SCALES, PROBABILITIES)
def test_the_interval_score_follows_a_change_of_unit_and_is_at_least_the_width(drawn, shift, scale, level):
    means, stds, y = drawn
    lower, upper = means[0] - stds[0], means[0] + stds[0]
    score = bnneval.interval_score(lower, upper, y, level)
    moved = bnneval.interval_score(scale * lower + shift, scale * upper + shift, scale * y + shift, level)
    assert near(moved, scale * score, 1e-9)  # the penalty multiplies rounding errors by up to 2000
    width = (upper - lower).mean()
    assert score >= width - ROUND
    if bnneval.coverage(lower, upper, y) == 1:
        assert near(score, width)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(1, 30))
def test_every_pit_value_is_in_one_bin_and_observed_shares_are_sums_of_bins(values, bins):
    histogram = bnneval.pit_histogram(values, bins)
    assert histogram.counts.sum() == len(values)
    curve = bnneval.quantile_calibration(values, histogram.edges)
    assert near(curve.observed[1:], np.cumsum(histogram.counts) / len(values))
    assert 0 <= curve.error <= 1


@given(mixtures(), PROBABILITIES)
def test_coverage_is_the_share_of_pit_values_between_the_tails(drawn, level):
    means, stds, y = drawn
    pit, tail = bnneval.pit_mixture(means, stds, y), (1 - level) / 2
    if np.abs(np.abs(pit - 0.5) - level / 2).min() > 1e-9:  # no target on an end of its interval, to rounding
        covered = bnneval.coverage(*bnneval.central_interval_mixture(means, stds, level), y)
        assert covered == ((pit > tail) & (pit < 1 - tail)).mean()


@given(st.data(), st.integers(1, 6), st.integers(1, 6))
def test_crps_is_proper_by_exactly_the_squared_distance_of_the_cdfs(data, k, s):
    # The truth puts equal weights on k numbers, so the expected score is a mean over k targets.
    truth, other = data.draw(arrays(NUMBERS, k)), data.draw(arrays(NUMBERS, s))

    def expected(x):
        return bnneval.crps_samples(np.tile(x[:, None], k), truth)

    grid = np.unique(np.concatenate([truth, other]))
    steps = [(x[:, None] <= grid[:-1]).mean(axis=0) for x in (truth, other)]
    distance = np.diff(grid) @ (steps[1] - steps[0]) ** 2
    assert near(expected(other) - expected(truth), distance)


@given(NUMBERS, STDS, st.floats(-2, 2), st.floats(0.5, 2))
def test_the_expected_crps_of_gaussians_is_lowest_at_the_truth(mean, std, shift, ratio):
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    y, weights = mean + std * nodes, weights / weights.sum()

    def expected(m, sigma):
        return weights @ crps_gaussian_per_target(np.full(60, m), np.full(60, sigma), y)

    truth, other = expected(mean, std), expected(mean + shift * std, ratio * std)
    # Sixty nodes integrate a CRPS that is at least half as wide as the weight to 1e-6.
    assert near(truth / std, 1 / np.sqrt(np.pi), 1e-6)
    assert other / std >= truth / std - 1e-6


@given(st.data(), st.integers(1, 12), st.sampled_from([0.5, 0.8, 0.9]))
def test_the_expected_interval_score_is_lowest_at_the_quantiles_of_the_truth(data, k, level):
    # The truth puts equal weights on k numbers, so the expected score is a mean over k targets.
    truth, other = data.draw(arrays(NUMBERS, k)), np.sort(data.draw(arrays(NUMBERS, 2)))
    best = np.quantile(truth, [(1 - level) / 2, (1 + level) / 2], method="inverted_cdf")

    def expected(ends):
        return bnneval.interval_score(np.full(k, ends[0]), np.full(k, ends[1]), truth, level)

    assert expected(best) <= expected(other) + ROUND
