"""Forms of predictions and labels: binary probabilities, booleans, names, weight samples, tensors; and aliases."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

import bnneval
from bnneval.strict_json import dumps

RNG = np.random.default_rng(0)
P1 = RNG.random(200)  # probabilities of class 1
BINARY = np.column_stack([1 - P1, P1])
Y = (RNG.random(200) < P1).astype(int)
SAMPLES, LABELS = RNG.dirichlet(np.ones(3), (4, 200)), RNG.integers(3, size=200)
NAMES = ["cat", "dog", "owl"]
METRICS = [
    bnneval.accuracy, bnneval.nll, bnneval.brier, bnneval.ece, bnneval.mce, bnneval.classwise_ece, bnneval.aurc,
]  # fmt: skip


@pytest.mark.parametrize("metric", METRICS)
def test_binary_probabilities_are_those_of_class_1(metric):
    assert metric(P1, Y) == metric(BINARY, Y)
    assert metric(P1.tolist(), Y.astype(bool)) == metric(BINARY, Y)
    assert metric(1 - P1, Y) != metric(P1, Y)


@pytest.mark.parametrize("metric", METRICS)
def test_weight_samples_are_averaged(metric):
    assert metric(SAMPLES, LABELS) == metric(SAMPLES.mean(axis=0), LABELS)
    assert metric(SAMPLES, LABELS) != metric(SAMPLES[0], LABELS)


@pytest.mark.parametrize("metric", METRICS)
def test_labels_may_be_names_in_the_order_of_the_columns(metric):
    probs, named = SAMPLES[0], np.array(NAMES)[LABELS]
    assert metric(probs, named, classes=NAMES) == metric(probs, LABELS)
    assert metric(probs, named.tolist(), classes=np.array(NAMES)) == metric(probs, LABELS)
    order = [2, 0, 1]
    assert metric(probs[:, order], named, classes=[NAMES[c] for c in order]) == pytest.approx(metric(probs, LABELS))


def test_integers_are_looked_up_in_classes_as_well():
    assert bnneval.accuracy([[0.9, 0.1], [0.2, 0.8]], [7, 3], classes=[7, 3]) == 1.0


def test_results_say_how_many_weight_samples_were_averaged():
    named = np.array(NAMES)[LABELS]
    for probs, samples in ((SAMPLES, 4), (SAMPLES[0], 1)):
        assert bnneval.reliability(probs, LABELS).weight_samples == samples
        assert bnneval.risk_coverage(probs, LABELS).weight_samples == samples
        assert bnneval.abstention_threshold(probs, LABELS, 0.5).weight_samples == samples
        assert bnneval.conformal_threshold(probs, LABELS).weight_samples == samples
        assert bnneval.fit_temperature(np.log(probs), LABELS).weight_samples == samples
        assert bnneval.fit_isotonic(probs, LABELS).weight_samples == samples
        assert bnneval.report(probs, named, classes=NAMES).get("weight_samples", 1) == samples


def test_entropy_of_weight_samples_is_that_of_their_average():
    assert (bnneval.predictive_entropy(SAMPLES) == bnneval.predictive_entropy(SAMPLES.mean(axis=0))).all()


def test_a_report_takes_binary_probabilities_and_names():
    expected = dumps(
        bnneval.report(BINARY, Y, BINARY[:50])
    )  # as JSON, because NaN of empty bins is not equal to itself
    assert dumps(bnneval.report(P1, Y.astype(bool), P1[:50])) == expected
    assert dumps(bnneval.report(P1, np.where(Y, "yes", "no"), P1[:50], classes=["no", "yes"])) == expected


def test_the_other_functions_take_names_too():
    probs, other, named = SAMPLES[0], SAMPLES[1], np.array(NAMES)[LABELS]
    for score in ("error", "nll", "brier"):
        assert bnneval.compare(probs, other, named, score, classes=NAMES) == bnneval.compare(
            probs, other, LABELS, score
        )
    few = {"resamples": 5}
    assert bnneval.bootstrap_ece(probs, named, classes=NAMES, **few) == bnneval.bootstrap_ece(probs, LABELS, **few)
    assert bnneval.paired_ece(probs, other, named, classes=NAMES, **few) == bnneval.paired_ece(
        probs, other, LABELS, **few
    )
    assert bnneval.nll_one_sample(SAMPLES, named, classes=NAMES) == bnneval.nll_one_sample(SAMPLES, LABELS)
    assert bnneval.accuracy_one_sample(SAMPLES, named, classes=NAMES) == bnneval.accuracy_one_sample(SAMPLES, LABELS)


def test_n_bins_is_another_name_for_bins():
    probs = SAMPLES[0]
    for metric in (bnneval.ece, bnneval.mce, bnneval.classwise_ece):
        assert metric(probs, LABELS, n_bins=7) == metric(probs, LABELS, bins=7) != metric(probs, LABELS)
    assert len(bnneval.reliability(probs, LABELS, n_bins=7).counts) == 7
    assert dumps(bnneval.report(probs, LABELS, n_bins=7)) == dumps(bnneval.report(probs, LABELS, bins=7))
    assert bnneval.Evaluation(n_bins=7).bins == 7
    few = {"resamples": 5}
    assert bnneval.bootstrap_ece(probs, LABELS, n_bins=7, **few) == bnneval.bootstrap_ece(probs, LABELS, 7, **few)
    assert bnneval.paired_ece(probs, probs, LABELS, n_bins=7, **few) == bnneval.paired_ece(
        probs, probs, LABELS, 7, **few
    )


def test_n_bins_is_another_name_for_bins_of_shift_evaluations():
    images, probs = np.zeros((50, 16, 16, 3), np.uint8), SAMPLES[0, :50]
    trial = (lambda x: probs[: len(x)], images, LABELS[:50], ("contrast",), (1,))
    found = [bnneval.evaluate_shift(*trial, **option).clean.ece for option in ({"n_bins": 7}, {"bins": 7}, {})]
    assert found[0] == found[1] == bnneval.ece(probs, LABELS[:50], 7) != found[2]


def test_tensors_that_require_grad_are_read_and_left_alone():
    torch = pytest.importorskip("torch")
    logits = torch.tensor(np.log(SAMPLES[0]), requires_grad=True)
    probs, labels = logits.softmax(-1), torch.tensor(LABELS)
    assert bnneval.nll(probs, labels) == pytest.approx(bnneval.nll(SAMPLES[0], LABELS), rel=1e-12)
    assert bnneval.fit_temperature(logits, labels).n == 200
    assert bnneval.Evaluation().update(probs, labels).compute()["accuracy"] == bnneval.accuracy(SAMPLES[0], LABELS)
    probs.sum().backward()  # the graph is intact
    assert logits.grad is not None


SCORES = RNG.normal(size=200) + Y


@pytest.mark.parametrize("labels", [Y, Y.astype(bool), Y.astype(float), Y.tolist()])
@pytest.mark.parametrize(
    "function", [bnneval.roc, bnneval.auroc, bnneval.aupr, bnneval.fpr_at_tpr, bnneval.bootstrap_auroc]
)
def test_the_argument_order_of_scikit_learn_is_caught(function, labels):
    with pytest.raises(ValueError, match=r"got labels, only 0 and 1: write auroc\(s\[y == 0\], s\[y == 1\]\)") as error:
        function(labels, SCORES)
    assert "\n" not in str(error.value)


def test_what_the_message_says_gives_the_number_of_scikit_learn():
    from sklearn.metrics import roc_auc_score

    assert bnneval.auroc(SCORES[Y == 0], SCORES[Y == 1]) == pytest.approx(roc_auc_score(Y, SCORES), abs=1e-12)


def test_hard_predictions_in_the_order_of_scikit_learn_are_caught_and_floats_are_scores():
    with pytest.raises(ValueError, match="can be given as floats"):
        bnneval.auroc(Y, (P1 > 0.5).astype(int))
    assert bnneval.auroc([0.0, 1.0], [1.0, 1.0]) == 0.75


def test_scores_that_only_resemble_labels_are_accepted():
    assert bnneval.auroc([0, 1], [0, 1, 1]) == pytest.approx(7 / 12)  # not as many: 1/2 + 2 + 1/2 + 1/2 of 6 pairs
    assert bnneval.auroc([0, 0], [0.3, 0.4]) == 1.0  # labels of one class are not an evaluation
    assert bnneval.bootstrap_auroc([0.0, 1.0, 2.0], [0.0, 1.0, 3.0], resamples=50).value == pytest.approx(5 / 9)


def test_the_version_is_that_of_the_package():
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert bnneval.__version__ == tomllib.loads(text)["project"]["version"]
