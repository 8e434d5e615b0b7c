"""CRPS of Gaussians and of samples agrees with properscoring, if it is installed."""

import numpy as np
import pytest

import bnneval
from bnneval.regression import crps_gaussian_per_target, crps_samples_per_target

properscoring = pytest.importorskip("properscoring")

EXACT = 1e-12  # sums of up to 50 numbers of order ten in a different order


def test_crps_of_gaussians_agrees(rng):
    mean, std, y = 5 * rng.normal(size=1000), rng.uniform(0.01, 5, 1000), 5 * rng.normal(size=1000)
    expected = properscoring.crps_gaussian(y, mean, std)
    assert np.abs(crps_gaussian_per_target(mean, std, y) - expected).max() < EXACT
    assert bnneval.crps_gaussian(mean, std, y) == pytest.approx(expected.mean(), abs=EXACT)


@pytest.mark.parametrize("s", [1, 2, 3, 50])
@pytest.mark.parametrize("decimals", [0, 6])
def test_crps_of_samples_agrees_with_and_without_ties(rng, s, decimals):
    samples, y = (5 * rng.normal(size=(s, 200))).round(decimals), (5 * rng.normal(size=200)).round(decimals)
    expected = properscoring.crps_ensemble(y, samples.T)
    assert np.abs(crps_samples_per_target(samples, y) - expected).max() < EXACT
