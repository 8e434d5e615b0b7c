"""Split conformal prediction: by hand, the exact finite-sample coverage by simulation, and too few samples."""

from itertools import pairwise
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import bnneval
from bnneval import conformal_threshold, prediction_sets

# Probabilities of the labels: 0.9, 0.6, 0.3, 0.2; LAC scores 0.1, 0.4, 0.7, 0.8.
PROBS = np.array([[0.9, 0.1, 0.0], [0.6, 0.3, 0.1], [0.5, 0.3, 0.2], [0.5, 0.3, 0.2]])
LABELS = np.array([0, 0, 1, 2])


@pytest.mark.parametrize(
    ("coverage", "score"), [(0.2, 0.1), (0.21, 0.4), (0.4, 0.4), (0.6, 0.7), (0.8, 0.8), (0.81, np.inf)]
)
def test_the_threshold_is_the_kth_smallest_score_with_k_of_n_plus_one_by_hand(coverage, score):
    chosen = conformal_threshold(PROBS, LABELS, coverage)
    assert chosen.threshold == pytest.approx(score, abs=1e-15)
    assert (chosen.n, chosen.coverage, chosen.method) == (4, coverage, "lac")


def test_lac_sets_by_hand():
    chosen = conformal_threshold(PROBS, LABELS, 0.6)  # classes with a probability of at least 0.3
    sets = prediction_sets([[0.5, 0.3, 0.2], [0.98, 0.01, 0.01], [0.31, 0.35, 0.34]], chosen)
    assert sets.tolist() == [[True, True, False], [True, False, False], [True, True, True]]


def test_aps_scores_by_hand():
    from bnneval.conformal import _scores

    # Falling: 0.5, 0.3, 0.2; before them 0, 0.5, 0.8. The first of tied classes is before the other.
    found = _scores(np.array([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4]]), "aps", np.array([0.5, 0.25]))
    assert found == pytest.approx(np.array([[0.9, 0.25, 0.65], [0.1, 0.85, 0.5]]))


def test_aps_gives_larger_sets_to_harder_images():
    rng = np.random.default_rng(0)
    easy, hard = rng.dirichlet([20, 1, 1, 1], 500), rng.dirichlet([2, 2, 2, 2], 500)
    probs = np.concatenate([easy, hard])
    labels = np.array([rng.choice(4, p=p) for p in probs])
    sizes = prediction_sets(probs, conformal_threshold(probs, labels, 0.9, "aps")).sum(axis=1)
    assert sizes[:500].mean() + 1 < sizes[500:].mean()


def pool(size, seed=1):
    """Predictions of an overconfident classifier of six classes, and labels."""
    rng = np.random.default_rng(seed)
    truth = rng.dirichlet(np.full(6, 0.4), size)
    labels = (truth.cumsum(axis=1) > rng.random((size, 1))).argmax(axis=1)
    sharp = truth**2 + 1e-6 * rng.random(truth.shape)
    return sharp / sharp.sum(axis=1, keepdims=True), labels


@pytest.mark.parametrize("method", ["lac", "aps"])
def test_coverage_over_1000_random_splits_is_in_the_exact_beta_binomial_band(method):
    # A random split of a pool without ties puts the scores in random order, so the number of covered labels is exactly
    # beta-binomial(m, k, n + 1 - k), and splits are independent. Three checks, with false alarms of 1e-3 (a single split
    # outside a band of probability 1 - 1e-6), 6e-5 (mean, four standard deviations) and 1e-3 (chi-squared test of the
    # distribution in ten classes); the seeds are fixed.
    n, m, asked = 100, 150, 0.9
    probs, labels = pool(n + m)
    k = ceil((n + 1) * 9 / 10)
    exact = stats.betabinom(m, k, n + 1 - k)
    rng, covered = np.random.default_rng(2), []
    for split in range(1000):
        order = rng.permutation(n + m)
        held_out, new = order[:n], order[n:]
        chosen = conformal_threshold(probs[held_out], labels[held_out], asked, method, seed=split)
        sets = prediction_sets(probs[new], chosen)
        covered.append(int(sets[np.arange(m), labels[new]].sum()))
    low, high = exact.ppf(5e-7), exact.ppf(1 - 5e-7)
    assert low <= min(covered)
    assert max(covered) <= high
    assert np.mean(covered) == pytest.approx(m * k / (n + 1), abs=4 * exact.std() / np.sqrt(1000))
    edges = np.unique(exact.ppf(np.linspace(0, 1, 11)[1:-1]))
    counts = np.bincount(np.searchsorted(edges, covered), minlength=len(edges) + 1)
    expected = 1000 * np.diff(np.concatenate([[0], exact.cdf(edges), [1]]))
    assert stats.chisquare(counts, expected).pvalue > 1e-3


@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9, 0.95, 0.99])
def test_on_the_held_out_samples_themselves_exactly_k_labels_are_covered(coverage):
    probs, labels = pool(300)
    chosen = conformal_threshold(probs, labels, coverage)
    inside = prediction_sets(probs, chosen)[np.arange(300), labels].sum()
    assert inside == ceil(round(301 * coverage, 9))


def test_a_coverage_whose_product_is_a_whole_number_does_not_round_up():
    # In floating point 0.07 * 100 = 7.000000000000001, whose ceiling is 8.
    probs, labels = pool(99)
    chosen = conformal_threshold(probs, labels, 0.07)
    assert prediction_sets(probs, chosen)[np.arange(99), labels].sum() == 7


@pytest.mark.parametrize(("coverage", "fewest"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99)])
def test_too_few_samples_give_every_class_and_say_so(coverage, fewest):
    probs, labels = pool(fewest)
    assert conformal_threshold(probs, labels, coverage).enough
    if fewest == 1:
        return
    for method in ("lac", "aps"):
        chosen = conformal_threshold(probs[1:], labels[1:], coverage, method)
        assert not chosen.enough
        assert prediction_sets(probs, chosen).all()
        assert f"{fewest - 1} labelled samples are too few" in chosen.describe()
        assert f"need {fewest}: every set contains every class" in chosen.describe()


@given(st.integers(1, 40), st.floats(0.05, 0.95), st.sampled_from(["lac", "aps"]), st.integers(0, 1000))
def test_tied_scores_cover_at_least_what_was_asked_on_the_held_out_samples(n, coverage, method, seed):
    rng = np.random.default_rng(seed)
    coarse = np.round(rng.dirichlet(np.ones(3), n) * 4) + (np.arange(3) == 0)
    probs, labels = coarse / coarse.sum(axis=1, keepdims=True), rng.integers(3, size=n)
    chosen = conformal_threshold(probs, labels, coverage, "lac", seed)
    assert prediction_sets(probs, chosen)[np.arange(n), labels].mean() >= min(coverage, 1)
    assert conformal_threshold(probs, labels, coverage, method, seed) == conformal_threshold(
        probs, labels, coverage, method, seed
    )


def test_sets_grow_with_the_coverage():
    probs, labels = pool(400)
    for method in ("lac", "aps"):
        sets = [prediction_sets(probs, conformal_threshold(probs, labels, c, method)) for c in (0.5, 0.7, 0.9, 0.99)]
        for smaller, larger in pairwise(sets):
            assert (smaller <= larger).all()


def test_batches_give_the_same_sets_as_all_samples_at_once():
    probs, labels = pool(200)
    chosen = conformal_threshold(probs, labels, 0.8, "aps", seed=3)
    whole = prediction_sets(probs, chosen)
    parts = [prediction_sets(probs[at : at + 64], chosen, start=at) for at in range(0, 200, 64)]
    assert (whole == np.concatenate(parts)).all()


def test_uniform_numbers_depend_on_the_seed_and_differ_between_held_out_and_new_samples():
    from bnneval.conformal import _uniform

    assert (_uniform(0, 0, 0, 50) != _uniform(0, 1, 0, 50)).all()
    assert (_uniform(0, 1, 0, 50) != _uniform(1, 1, 0, 50)).all()
    assert (_uniform(4, 1, 7, 5) == _uniform(4, 1, 0, 12)[7:]).all()


def test_weight_samples_are_averaged_and_names_are_accepted():
    rng = np.random.default_rng(3)
    samples, labels = rng.dirichlet(np.ones(3), (4, 50)), rng.integers(3, size=50)
    chosen = conformal_threshold(samples, labels)
    assert chosen._replace(weight_samples=1) == conformal_threshold(samples.mean(axis=0), labels)
    assert chosen == conformal_threshold(samples, np.array(list("abc"))[labels], classes=list("abc"))
    assert (prediction_sets(samples, chosen) == prediction_sets(bnneval.mean_probs(samples), chosen)).all()
    assert chosen.describe() == "sets with 90 % coverage on average, LAC, from 50 labelled samples"
