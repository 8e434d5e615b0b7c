"""Each metric on a case worked out by hand, and known mistakes of other implementations."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import bnneval
from bnneval.uncertainty import entropy_split

LN2 = np.log(2)


def modules():
    return [m.name for m in pkgutil.walk_packages(bnneval.__path__, "bnneval.") if not m.name.endswith("__main__")]


@pytest.mark.parametrize("name", modules())
def test_docstring_examples_print_what_they_show(name):
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS, extraglobs={"np": np})
    assert failed == 0


def test_ece_of_two_bins_by_hand():
    # Bin (0.5, 1]: confidences 0.6 and 0.8 right, 1.0 wrong: |2/3 - 0.8|. Bin [0, 0.5]: one sample at 0.5, wrong.
    probs = [[0.6, 0.4], [0.8, 0.2], [1.0, 0.0], [0.5, 0.5]]
    labels = [0, 0, 1, 1]
    assert bnneval.ece(probs, labels, bins=2) == pytest.approx(3 / 4 * (0.8 - 2 / 3) + 1 / 4 * 0.5, abs=1e-15)
    assert bnneval.mce(probs, labels, bins=2) == pytest.approx(0.5, abs=1e-15)
    rms = np.sqrt(3 / 4 * (0.8 - 2 / 3) ** 2 + 1 / 4 * 0.25)
    assert bnneval.ece(probs, labels, bins=2, norm="l2") == pytest.approx(rms, abs=1e-15)


def test_equal_mass_bins_split_samples_evenly():
    probs = np.array([[0.5 + 0.01 * k, 0.5 - 0.01 * k] for k in range(40)])
    counts = bnneval.reliability(probs, np.zeros(40, int), bins=4, scheme="mass").counts
    assert counts.tolist() == [10, 10, 10, 10]


def test_classwise_ece_by_hand():
    # Class 0: predicted 0.2, never true; class 1: 0.3, never; class 2: 0.5, always. Mean gap (0.2 + 0.3 + 0.5) / 3.
    probs, labels = [[0.2, 0.3, 0.5]] * 3, [2, 2, 2]
    assert bnneval.classwise_ece(probs, labels) == pytest.approx(1 / 3, abs=1e-15)


def test_saturated_wrong_predictions_have_the_largest_ece_and_are_not_dropped():
    # Half-open bins up to 1 would drop all of these and report 0.
    logits = np.zeros((1000, 10), dtype=np.float32)
    logits[:, 3] = 40
    probs = np.exp(logits - 40) / np.exp(logits - 40).sum(axis=1, keepdims=True)
    assert probs[0, 3] == 1.0
    assert bnneval.ece(probs, np.zeros(1000, int)) == 1.0


def test_brier_of_a_confident_correct_prediction_does_not_grow_with_the_class_index():
    # (p_true - class index)^2 would give 65.61 for class 9.
    probs = np.full((1, 10), 0.1 / 9)
    probs[0, 9] = 0.9
    assert bnneval.brier(probs, [9]) == pytest.approx(0.1**2 + 9 * (0.1 / 9) ** 2, abs=1e-15)


def test_nll_is_a_mean_over_samples_not_over_batches():
    probs = np.full((9994, 10), 0.1)
    assert bnneval.nll(probs, np.zeros(9994, int)) == pytest.approx(np.log(10), abs=1e-12)


def test_nll_of_an_impossible_label_is_infinite_and_not_clipped():
    assert bnneval.nll([[1.0, 0.0], [0.5, 0.5]], [1, 0]) == np.inf


def test_certain_predictions_have_entropy_zero_and_none_is_dropped():
    entropy = bnneval.predictive_entropy(np.eye(10))
    assert entropy.tolist() == [0.0] * 10


def test_probabilities_are_averaged_not_their_logarithms():
    samples = np.array([[[0.9, 0.1]], [[0.1, 0.9]]])
    assert bnneval.mean_probs(samples).tolist() == [[0.5, 0.5]]
    geometric = np.exp(np.log(samples).mean(axis=0))
    assert geometric.sum() == pytest.approx(0.6)  # averaged log-probabilities are not a distribution
    with pytest.raises(ValueError, match="sum to 1"):
        bnneval.nll(geometric, [0])


def test_entropy_splits_into_disagreement_and_ambiguity():
    disagree = entropy_split([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert np.allclose([disagree.total, disagree.aleatoric, disagree.epistemic], [[LN2], [0], [LN2]], atol=1e-15)
    ambiguous = entropy_split([[[0.5, 0.5]], [[0.5, 0.5]]])
    assert np.allclose([ambiguous.total, ambiguous.aleatoric, ambiguous.epistemic], [[LN2], [LN2], [0]], atol=1e-15)


# Three weight samples, two images. Image 0: (1, 0), (0, 1), (1, 0); the mean is (2/3, 1/3). Image 1: always (3/4, 1/4).
THREE = np.array([[[1.0, 0.0], [0.75, 0.25]], [[0.0, 1.0], [0.75, 0.25]], [[1.0, 0.0], [0.75, 0.25]]])


def test_epistemic_share_is_a_ratio_of_means_by_hand():
    # Every sample is certain of image 0, so all its entropy, ln 3 - 2/3 ln 2, comes from disagreement; none of image 1's.
    first, second = np.log(3) - 2 / 3 * LN2, 2 * LN2 - 3 / 4 * np.log(3)
    assert bnneval.epistemic_share(THREE) == pytest.approx(first / (first + second), abs=1e-15)
    mean_of_ratios = (1 + 0) / 2
    assert abs(bnneval.epistemic_share(THREE) - mean_of_ratios) > 0.01


def test_disagreement_counts_single_predictions_by_hand():
    assert bnneval.disagreement(THREE) == 1 / 6  # sample 1 of image 0, out of 3 samples of 2 images


def test_scores_of_one_sample_are_averaged_over_samples_by_hand():
    labels = [0, 1]
    assert bnneval.accuracy_one_sample(THREE, labels) == pytest.approx((1 / 2 + 0 + 1 / 2) / 3, abs=1e-15)
    assert bnneval.accuracy(bnneval.mean_probs(THREE), labels) == 1 / 2
    softer = 0.5 * THREE + 0.25  # p_y is 3/4, 1/4, 3/4 for image 0 and 3/8 for image 1
    logs = [np.log(4 / 3), np.log(4), np.log(4 / 3)]
    assert bnneval.nll_one_sample(softer, labels) == pytest.approx((np.mean(logs) + np.log(8 / 3)) / 2, abs=1e-15)
    assert bnneval.nll_one_sample(softer, labels) > bnneval.nll(bnneval.mean_probs(softer), labels)


def test_one_impossible_sample_makes_the_nll_of_one_sample_infinite_but_not_that_of_the_average():
    assert bnneval.nll_one_sample(THREE, [0, 0]) == np.inf
    assert np.isfinite(bnneval.nll(bnneval.mean_probs(THREE), [0, 0]))


def test_a_single_weight_sample_has_no_epistemic_share_and_the_ordinary_scores():
    one, labels = np.random.default_rng(0).dirichlet(np.ones(5), (1, 100)), np.arange(100) % 5
    assert bnneval.epistemic_share(one) == bnneval.disagreement(one) == 0
    assert bnneval.nll_one_sample(one, labels) == bnneval.nll(one[0], labels)
    assert bnneval.accuracy_one_sample(one, labels) == bnneval.accuracy(one[0], labels)


def test_epistemic_share_is_zero_if_all_samples_are_certain_of_the_same_class():
    assert bnneval.epistemic_share([np.eye(4)] * 3) == 0  # 0 / 0 otherwise


def test_the_first_of_tied_classes_counts_in_disagreement():
    tied = [[[0.5, 0.5]], [[0.5, 0.5]]]
    assert bnneval.disagreement(tied) == 0
    assert bnneval.disagreement([[[1.0, 0.0]], [[0.0, 1.0]]]) == 0.5  # the mean is a tie, which predicts class 0


def test_aupr_of_an_uninformative_score_is_the_share_of_ood():
    assert bnneval.aupr([1.0] * 30, [1.0] * 10) == 0.25


def test_fpr_at_tpr_does_not_interpolate():
    # 20 OOD scores: 95 % are 19 of them, so the threshold is the second lowest, 2.
    outside, inside = np.arange(1, 21), [0.5, 1.5, 2.5, 3.5]
    assert bnneval.fpr_at_tpr(inside, outside) == 0.5
    assert bnneval.fpr_at_tpr(inside, outside, tpr=1.0) == 0.75


def test_risk_of_tied_samples_is_the_mean_over_their_orders():
    # Two tied samples, one wrong: risk at coverage 1/2 is 0 or 1, on average 1/2.
    curve = bnneval.risk_coverage([[0.8, 0.2], [0.8, 0.2]], [0, 1])
    assert curve.risk.tolist() == [0.5, 0.5]
    assert curve.coverage.tolist() == [0.5, 1.0]


def test_risk_coverage_accepts_a_custom_confidence():
    probs, labels = [[0.9, 0.1], [0.8, 0.2]], [1, 0]
    assert bnneval.aurc(probs, labels) == 0.75
    assert bnneval.aurc(probs, labels, confidence=[0.0, 1.0]) == 0.25


def test_torch_tensors_and_lists_are_accepted():
    torch = pytest.importorskip("torch")
    probs, labels = torch.tensor([[0.75, 0.25], [0.5, 0.5]]), torch.tensor([0, 1])
    assert bnneval.ece(probs, labels, bins=1) == bnneval.ece(probs.tolist(), labels.tolist(), bins=1) == 0.125
    assert bnneval.ece(probs.requires_grad_(), labels, bins=1) == 0.125
    assert probs.requires_grad


def test_importing_the_package_loads_nothing_heavy():
    import subprocess
    import sys

    heavy = ("matplotlib", "sklearn", "torch", "PIL", "pandas", "scipy.stats", "scipy.optimize")
    code = f"import sys, bnneval; print([name for name in {heavy} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
