"""Temperature scaling and isotonic recalibration: closed forms, scikit-learn and scipy, and what never gets worse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import bnneval
from bnneval import apply_temperature, fit_isotonic, fit_temperature, strict_json
from bnneval.isotonic import _share


def overconfident(n, samples=1, classes=4, scale=3.0, seed=0):
    """Logits (S, N, C) that are `scale` times too large, and labels drawn from the softmax of the smaller ones."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, classes))
    p = special.softmax(z, axis=1)
    labels = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return scale * (z + 0.5 * rng.normal(size=(samples, n, classes))), labels


@pytest.mark.parametrize(("right", "n"), [(3, 4), (9, 10), (60, 100), (99, 100)])
@pytest.mark.parametrize("gap", [0.5, 4.0])
def test_two_classes_with_one_logit_gap_have_a_closed_form(right, n, gap):
    # softmax((gap, 0) / T) is right / n at T = gap / log(right / (n - right)).
    logits, labels = np.tile([gap, 0.0], (n, 1)), np.arange(n) >= right
    fitted = fit_temperature(logits, labels)
    assert fitted.temperature == pytest.approx(
        gap / np.log(right / (n - right)), rel=1e-6
    )  # NLL is flat at its minimum
    share = right / n
    assert fitted.nll_after == pytest.approx(-share * np.log(share) - (1 - share) * np.log(1 - share), abs=1e-12)


def test_binary_temperature_is_the_slope_of_a_logistic_regression_without_intercept():
    rng = np.random.default_rng(1)
    z = rng.normal(0, 4, 2000)
    labels = (rng.random(2000) < special.expit(0.4 * z)).astype(int)
    slope = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10).fit(z[:, None], labels).coef_[0, 0]
    fitted = fit_temperature(np.column_stack([np.zeros(2000), z]), labels)
    assert 1 / fitted.temperature == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("samples", [1, 5])
def test_the_minimum_is_that_of_scipy_over_probabilities(samples):
    logits, labels = overconfident(500, samples)

    def nll(t):  # independent of the code: averaged probabilities, not logarithms
        return bnneval.nll(special.softmax(logits / t, axis=-1).mean(axis=0), labels)

    fitted = fit_temperature(logits, labels)
    assert fitted.nll_before == pytest.approx(nll(1.0), rel=1e-12)
    assert fitted.nll_after == pytest.approx(nll(fitted.temperature), rel=1e-12)
    best = optimize.brute(lambda t: nll(t[0]), [(0.5, 8)], Ns=60, finish=optimize.fmin)
    assert fitted.temperature == pytest.approx(best[0], rel=1e-3)
    assert fitted.nll_after <= nll(best[0]) + 1e-10


def test_the_scale_of_the_logits_is_recovered():
    # 1 / T is estimated with a standard error of about 1.5 % from 20,000 samples; the noise of the logits is off.
    rng = np.random.default_rng(2)
    z = 2 * rng.normal(size=(20_000, 4))
    labels = (special.softmax(z, axis=1).cumsum(axis=1) > rng.random((20_000, 1))).argmax(axis=1)
    assert fit_temperature(3 * z, labels).temperature == pytest.approx(3, rel=0.06)
    calibrated = fit_temperature(z, labels)
    assert calibrated.temperature == pytest.approx(1, rel=0.06)  # T = 1 is recovered
    assert bnneval.ece(apply_temperature(3 * z, 3), labels) < 0.02 < bnneval.ece(apply_temperature(3 * z, 1), labels)


def test_probabilities_are_averaged_after_the_division_and_not_logits():
    logits, labels = overconfident(400, samples=6)
    through_samples = fit_temperature(logits, labels)
    of_mean = fit_temperature(logits.mean(axis=0), labels)
    assert abs(through_samples.temperature - of_mean.temperature) > 0.02
    p = apply_temperature(logits, through_samples.temperature)
    assert p.shape == logits.shape
    assert bnneval.nll(p, labels) == pytest.approx(through_samples.nll_after, rel=1e-12)


@st.composite
def logits_and_labels(draw):
    n, samples, classes = draw(st.integers(1, 12)), draw(st.integers(1, 4)), draw(st.integers(2, 4))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    z = rng.normal(size=(samples, n, classes)) * draw(st.sampled_from([0.01, 1.0, 10.0, 200.0]))
    return z, rng.integers(classes, size=n)


@given(logits_and_labels())
def test_the_nll_never_rises_and_one_sample_keeps_its_accuracy(drawn):
    z, labels = drawn
    fitted = fit_temperature(z, labels)
    assert fitted.nll_after <= fitted.nll_before
    assert 0.01 <= fitted.temperature <= 100 * (1 + 1e-12)
    assert (fitted.n, fitted.weight_samples) == (len(labels), len(z))
    before, after = apply_temperature(z[0], 1.0), apply_temperature(z[0], fit_temperature(z[0], labels).temperature)
    assert (before.argmax(axis=1) == after.argmax(axis=1)).all()


@given(logits_and_labels(), st.floats(-50, 50))
def test_logits_and_log_probabilities_give_the_same_temperature(drawn, constant):
    z, labels = drawn
    fitted, of_logs = fit_temperature(z, labels), fit_temperature(special.log_softmax(z, axis=-1) + constant, labels)
    assert of_logs.nll_after == pytest.approx(fitted.nll_after, rel=1e-7, abs=1e-9)


def test_probability_zero_is_minus_infinity_and_stays_zero():
    with np.errstate(divide="ignore"):
        z = np.log(np.array([[0.9, 0.1, 0.0]] * 10))
    fitted = fit_temperature(z, [0] * 7 + [1] * 3)
    p = apply_temperature(z, fitted.temperature)
    assert p[0] == pytest.approx([0.7, 0.3, 0.0], abs=1e-6)
    impossible = fit_temperature(z, [2] + [0] * 9)
    assert (impossible.temperature, impossible.nll_after) == (1.0, np.inf)


def test_extreme_logits_do_not_underflow():
    fitted = fit_temperature([[2000.0, 0.0], [2000.0, 0.0], [0.0, 2000.0]], [0, 1, 1])
    assert fitted.nll_before == pytest.approx(2000 / 3)  # one of three is wrong by 2,000 nats
    assert fitted.temperature == pytest.approx(100, rel=1e-6)  # the limit of the search: 2,000 / log 2 is beyond it
    assert fitted.nll_after == pytest.approx(20 / 3, rel=1e-6)


def test_if_all_predictions_are_right_the_temperature_is_the_lower_limit():
    assert fit_temperature([[0.5, 0.0], [0.0, 0.5]], [0, 1]).temperature == pytest.approx(0.01, rel=1e-6)


def test_apply_temperature_of_one_is_the_softmax():
    z = np.random.default_rng(3).normal(size=(2, 5, 3))
    assert apply_temperature(z, 1.0) == pytest.approx(special.softmax(z, axis=-1), abs=1e-15)


def binned_probs(n, classes=3, seed=0, ties=False):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(classes, 0.7), n)
    labels = (np.sqrt(p) / np.sqrt(p).sum(axis=1, keepdims=True)).cumsum(axis=1) > rng.random((n, 1))
    if ties:
        p = np.round(p * 5) + 1
        p /= p.sum(axis=1, keepdims=True)
    return p, labels.argmax(axis=1)


@pytest.mark.parametrize("ties", [False, True])
def test_the_functions_are_the_isotonic_regressions_of_scikit_learn(ties):
    probs, labels = binned_probs(300, ties=ties)
    fitted = fit_isotonic(probs, labels)
    grid = np.linspace(0, 1, 1001)
    for c, (x, y) in enumerate(fitted.knots):
        theirs = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(probs[:, c], labels == c)
        assert np.interp(grid, x, y) == pytest.approx(theirs.predict(grid), abs=1e-12)
        assert (np.diff(y) >= 0).all()


def test_isotonic_recalibration_lowers_nll_and_ece_on_new_data():
    fitted = fit_isotonic(*binned_probs(5000))
    probs, labels = binned_probs(5000, seed=1)
    new = fitted.apply(probs)
    assert bnneval.nll(new, labels) < bnneval.nll(probs, labels)
    assert bnneval.ece(new, labels) < 0.03 < bnneval.ece(probs, labels)


@given(st.integers(1, 30), st.integers(2, 4), st.booleans(), st.integers(0, 10**6))
def test_isotonic_recalibration_never_raises_the_nll_of_its_own_data_and_gives_distributions(n, classes, ties, seed):
    probs, labels = binned_probs(n, classes, seed, ties)
    fitted = fit_isotonic(probs, labels)
    new = fitted.apply(probs)
    assert fitted.nll_after <= fitted.nll_before
    assert bnneval.nll(new, labels) == fitted.nll_after
    assert (new > 0).all()  # a label that was never seen keeps some probability, so the NLL of new data is finite
    assert new.sum(axis=1) == pytest.approx(1, abs=1e-9)


def test_the_share_is_the_minimum_of_the_nll():
    probs, labels = binned_probs(200)
    fitted = fit_isotonic(probs, labels)
    shares = np.linspace(0, 200 / 201, 2001)
    losses = [bnneval.nll(fitted._replace(share=a).apply(probs), labels) for a in shares]
    assert fitted.nll_after <= min(losses) + 1e-12
    worse = fit_isotonic([[0.9, 0.1], [0.9, 0.1]], [0, 0])  # nothing to learn about class 1, everything is right
    assert worse.share == pytest.approx(2 / 3)


def test_a_share_inside_its_range_by_hand():
    # -log(0.5 + 0.4 a) - log(0.5 - 0.2 a) has its minimum at a = 5/8, below the limit 2/3; reversed, it falls nowhere.
    better, worse = np.array([0.9, 0.3]), np.array([0.3, 0.3])
    assert _share(np.array([0.5, 0.5]), better) == pytest.approx(0.625, abs=1e-12)
    assert _share(np.array([0.5, 0.5]), worse) == 0
    assert _share(worse, np.array([0.5, 0.5])) == 2 / 3


def test_a_share_of_zero_changes_nothing():
    probs, labels = binned_probs(50)
    assert (fit_isotonic(probs, labels)._replace(share=0.0).apply(probs) == probs).all()


def test_an_isotonic_map_survives_json():
    probs, labels = binned_probs(100)
    fitted = fit_isotonic(probs, labels)
    restored = bnneval.Isotonic.from_dict(strict_json.loads(strict_json.dumps(fitted.to_dict())))
    assert (restored.apply(probs) == fitted.apply(probs)).all()
    assert restored[1:] == fitted[1:]
