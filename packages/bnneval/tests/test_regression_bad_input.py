"""Invalid predictions and targets raise a one-line ValueError that says what was expected and what was given."""

import numpy as np
import pytest

import bnneval

ONE, TWO, Y = np.array([0.5, 1.5]), np.array([[0.5, 1.5], [1.0, 2.0], [3.0, 1.0]]), np.array([1.0, 2.0])

SAMPLES = [bnneval.crps_samples, bnneval.pit_samples]
GAUSSIAN = [bnneval.crps_gaussian, bnneval.nll_gaussian, bnneval.pit_gaussian]
MIXTURE = [bnneval.crps_mixture, bnneval.nll_mixture, bnneval.pit_mixture, bnneval.regression_report]
POINT = [bnneval.rmse, bnneval.mae]
CALLS = (
    [(metric, (TWO,)) for metric in SAMPLES]
    + [(metric, (ONE, ONE)) for metric in GAUSSIAN]
    + [(metric, (TWO, TWO)) for metric in MIXTURE]
    + [(metric, (ONE,)) for metric in POINT]
    + [(bnneval.coverage, (ONE, ONE + 1)), (lambda *a: bnneval.interval_score(*a, 0.9), (ONE, ONE + 1))]
)


def replaced(a, index, value):
    b = a.copy()
    b[index] = value
    return b


@pytest.mark.parametrize(("metric", "prediction"), CALLS)
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (Y[:1], r"y of shape \(2,\), got \(1,\)$"),
        (np.append(Y, 0), r"y of shape \(2,\), got \(3,\)$"),
        (Y[None], r"y of shape \(N,\), got \(1, 2\)$"),
        (1.0, r"y of shape \(N,\), got \(\)$"),
        ([], r"at least one value in y, got an empty array$"),
        (np.array([1, np.nan]), r"finite y, got nan at index 1$"),
        (np.array([-np.inf, 1]), r"finite y, got -inf at index 0$"),
        (["a", "b"], r"expected y to be numbers, got dtype"),
        ([1.0, [2.0]], r"expected y that numpy.asarray takes, got list"),
        (Y + 0j, r"expected y to be numbers, got dtype complex128"),
    ],
)
def test_every_metric_rejects_wrong_targets(metric, prediction, y, message):
    with pytest.raises(ValueError, match=message) as error:
        metric(*prediction, y)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("metric", SAMPLES)
@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (ONE, r"samples of shape \(S, N\), got \(2,\)"),
        (TWO[None], r"samples of shape \(S, N\), got \(1, 3, 2\)"),
        (np.zeros((0, 2)), "at least one value in samples, got an empty array"),
        (replaced(TWO, (1, 0), np.inf), r"finite samples, got inf at index \(1, 0\)"),
        (replaced(TWO, (2, 1), np.nan), r"finite samples, got nan at index \(2, 1\)"),
    ],
)
def test_every_metric_rejects_wrong_samples(metric, samples, message):
    with pytest.raises(ValueError, match=message):
        metric(samples, Y)


@pytest.mark.parametrize("metric", GAUSSIAN)
@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        (TWO, TWO, r"mean of shape \(N,\), got \(3, 2\)"),
        (ONE, TWO, r"std of shape \(N,\), got \(3, 2\)"),
        (ONE, ONE[:1], r"std of shape \(2,\) like mean, got \(1,\)"),
        (ONE, replaced(ONE, 1, 0), r"std > 0, got 0.0 at index 1"),
        (ONE, -ONE, r"std > 0, got -0.5 at index 0"),
        (ONE, replaced(ONE, 0, np.inf), "finite std, got inf at index 0"),
        (replaced(ONE, 0, np.nan), ONE, "finite mean, got nan at index 0"),
        ([], [], "at least one value in mean, got an empty array"),
    ],
)
def test_every_metric_rejects_wrong_gaussians(metric, mean, std, message):
    with pytest.raises(ValueError, match=message):
        metric(mean, std, Y)


@pytest.mark.parametrize(
    "metric",
    [
        *MIXTURE,
        lambda means, stds, _: bnneval.std_split(means, stds),
        lambda means, stds, _: bnneval.total_std(means, stds),
        lambda means, stds, _: bnneval.mixture_mean(means, stds),
        lambda means, stds, _: bnneval.central_interval_mixture(means, stds),
    ],
)
@pytest.mark.parametrize(
    ("means", "stds", "message"),
    [
        (ONE, ONE, r"means of shape \(S, N\), got \(2,\)"),
        (TWO, TWO[:2], r"stds of shape \(3, 2\) like means, got \(2, 2\)"),
        (TWO, TWO[:, :1], r"stds of shape \(3, 2\) like means, got \(3, 1\)"),
        (TWO, replaced(TWO, (2, 0), -1), r"stds > 0, got -1.0 at index \(2, 0\)"),
        (TWO, replaced(TWO, (0, 1), np.nan), r"finite stds, got nan at index \(0, 1\)"),
        (replaced(TWO, (0, 1), np.inf), TWO, r"finite means, got inf at index \(0, 1\)"),
        (np.zeros((0, 2)), np.ones((0, 2)), "at least one value in means, got an empty array"),
        (np.zeros((3, 0)), np.ones((3, 0)), "at least one value in means, got an empty array"),
    ],
)
def test_every_metric_rejects_wrong_mixtures(metric, means, stds, message):
    with pytest.raises(ValueError, match=message):
        metric(means, stds, Y)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bnneval.coverage(ONE, ONE[:1], Y), r"upper of shape \(2,\) like lower, got \(1,\)"),
        (lambda: bnneval.coverage([0, 3], [1, 2], Y), r"lower <= upper, got lower=3.0, upper=2.0 at index 1"),
        (
            lambda: bnneval.interval_score([0, 3], [1, 2], Y, 0.9),
            r"lower <= upper, got lower=3.0, upper=2.0 at index 1",
        ),
        (lambda: bnneval.coverage([0, -np.inf], [1, 2], Y), "finite lower, got -inf at index 1"),
        (lambda: bnneval.interval_score(ONE, ONE, Y, 1.0), "0 < level < 1, got 1.0"),
        (lambda: bnneval.interval_score(ONE, ONE, Y, 95), "0 < level < 1, got 95"),
        (lambda: bnneval.central_interval_samples(TWO, 0), "0 < level < 1, got 0"),
        (lambda: bnneval.central_interval_samples(ONE), r"samples of shape \(S, N\), got \(2,\)"),
        (lambda: bnneval.central_interval_gaussian(ONE, ONE, np.nan), "0 < level < 1, got nan"),
        (lambda: bnneval.central_interval_gaussian(ONE, -ONE), "std > 0, got -0.5 at index 0"),
        (lambda: bnneval.central_interval_mixture(TWO, TWO, 1.5), "0 < level < 1, got 1.5"),
        (lambda: bnneval.regression_report(TWO, TWO, Y, level=-1), "0 < level < 1, got -1"),
        (lambda: bnneval.regression_report(TWO, TWO, Y, bins=0), "integer bins in 1..100000, got 0"),
        (lambda: bnneval.crps_samples(TWO[:1], Y, fair=True), "at least two samples per target for fair=True, got 1"),
        (lambda: bnneval.pit_histogram([0.5, 1.5]), "0 <= values <= 1, got 1.5 at index 1"),
        (lambda: bnneval.pit_histogram([]), "at least one value in values, got an empty array"),
        (lambda: bnneval.pit_histogram([0.5], bins=2.5), "integer bins in 1..100000, got 2.5"),
        (lambda: bnneval.quantile_calibration([-0.1]), "0 <= values <= 1, got -0.1 at index 0"),
        (lambda: bnneval.quantile_calibration([0.5], levels=[0.5, 5]), "0 <= levels <= 1, got 5.0 at index 1"),
        (lambda: bnneval.quantile_calibration([0.5], levels=[]), "at least one value in levels, got an empty array"),
        (lambda: bnneval.quantile_calibration([0.5], levels=0.5), r"levels of shape \(N,\), got \(\)"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)
