"""scikit-learn estimators: its own checks, pipelines and searches, and predictions that equal those of the network."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from psdenets import PSDEClassifier, PSDERegressor
from psdenets.data.tables import rows_of
from psdenets.seeds import generator

SMALL = {
    "epochs": 25, "width": 8, "steps": 2, "test_samples": 4, "lr": 0.03, "batch_size": 100, "samples": 1,
    "sigma": 0.1, "options": {"drift": "1-4-1", "block": "1-1"},
}  # fmt: skip  # scikit-learn asks for R^2 > 0.5; with this sigma it is 0.74 to 0.80 over six seeds


@parametrize_with_checks([PSDEClassifier(**SMALL), PSDERegressor(**SMALL)])
def test_scikit_learns_own_checks_pass(estimator, check):
    check(estimator)


def blobs(n=120, seed=0):
    g = np.random.default_rng(seed)
    y = g.integers(3, size=n)
    return g.normal(size=(n, 2)) + 3 * np.stack([np.cos(2 * y), np.sin(2 * y)], axis=1), np.array(["a", "b", "c"])[y]


def line(n=200, seed=0):
    g = np.random.default_rng(seed)
    x = g.uniform(-1, 1, size=(n, 1))
    return x, 100 + 30 * x[:, 0] + 3 * g.normal(size=n)


@pytest.fixture(scope="module")
def regressor():
    return PSDERegressor(**{**SMALL, "epochs": 60, "batch_size": 16, "sigma": 0.3}, cut="full").fit(*line())


def test_a_classifier_predicts_labels_and_averaged_probabilities():
    x, y = blobs()
    model = PSDEClassifier(**SMALL).fit(x, y)
    probs = model.predict_proba(x)
    assert model.score(x, y) > 0.9
    np.testing.assert_array_equal(model.predict(x), model.classes_[probs.argmax(1)])
    np.testing.assert_allclose(probs.sum(1), 1, atol=1e-12)  # sums of three float64
    rows, g = rows_of(x, "x").double(), generator(model.seed_, "predict")
    np.testing.assert_allclose(probs, model.model_.predict_proba(rows, 4, g).numpy(), atol=1e-12)
    assert len(model.history_) == SMALL["epochs"]


def test_a_classifier_of_images_accepts_bytes_and_fractions():
    g = np.random.default_rng(0)
    y = g.integers(2, size=60)
    x = g.integers(0, 60, size=(60, 8, 8), dtype=np.uint8)
    x[y == 1, :4] += 150
    model = PSDEClassifier(epochs=3, steps=2, batch_size=20, test_samples=2).fit(x, y)
    assert model.score(x, y) > 0.9
    np.testing.assert_array_equal(model.predict(x / 255.0), model.predict(x))


def test_the_standard_deviation_has_the_noise_of_the_data(regressor):
    x, y = line(seed=1)
    mean, std = regressor.predict(x, return_std=True)
    assert regressor.score(x, y) > 0.95  # a perfect fit has 1 - 9 / (300 + 9) = 0.97
    assert 2 < std.mean() < 5  # the noise has 3
    locations, scales = regressor.predict_mixture(x)
    np.testing.assert_allclose(std**2, locations.var(0) + (scales**2).mean(0))  # the law of total variance
    low, high = regressor.predict_interval(x, 0.9)
    assert np.all((low < mean) & (mean < high))
    assert 0.75 < ((low <= y) & (y <= high)).mean() <= 1
    narrow, wide = (np.diff(regressor.predict_interval(x, level), axis=0).mean() for level in (0.5, 0.99))
    assert narrow < (high - low).mean() < wide


def test_predictions_depend_on_the_seed_alone(regressor):
    x, y = line()
    again = clone(regressor).fit(x, y)
    np.testing.assert_array_equal(again.predict(x), regressor.predict(x))
    other = clone(regressor).set_params(random_state=1).fit(x, y)
    assert not np.array_equal(other.predict(x), regressor.predict(x))


def test_estimators_work_in_pipelines_searches_and_cross_validation():
    x, y = line(80)
    quick = {**SMALL, "epochs": 3}
    search = GridSearchCV(PSDERegressor(**quick), {"sigma": [0.1, 1.0], "cut": ["full", "none"]}, cv=2).fit(x, y)
    assert set(search.best_params_) == {"sigma", "cut"}
    pipeline = make_pipeline(StandardScaler(), PSDEClassifier(**quick))
    scores = cross_val_score(pipeline, *blobs(60), cv=2)
    assert scores.shape == (2,)


def test_a_fit_changes_neither_threads_nor_the_global_random_state():
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    PSDERegressor(**{**SMALL, "epochs": 1}).fit(*line(40))
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"cut": "diagonal"}, "expected --cut to be one of"),
        ({"options": {"nothing": 1}}, "unknown option nothing"),
        ({"sigma": -1.0}, "expected --sigma"),
        ({"options": {"likelihood": "categorical"}}, "expected --likelihood gaussian or .* for the numbers"),
    ],
)
def test_a_wrong_parameter_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        PSDERegressor(**parameters).fit(*line(20))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (line(20)[0], line(20)[1][:-1], "inconsistent numbers of samples"),
        (line(20)[0], np.full(20, np.nan), "Input y contains NaN"),
        (np.full((20, 1), np.nan), line(20)[1], "Input X contains NaN"),
        (line(20)[0], np.array(["a", "b"] * 10), "could not convert string to float"),
    ],
    ids=["short y", "NaN in y", "NaN in x", "text"],
)
def test_a_regressor_refuses_bad_data_and_keeps_what_it_learned(x, y, message, regressor):
    before = regressor.predict(line(5)[0])
    with pytest.raises(ValueError, match=message):
        regressor.fit(x, y)
    np.testing.assert_array_equal(regressor.predict(line(5)[0]), before)
