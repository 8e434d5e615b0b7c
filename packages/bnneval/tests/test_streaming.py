"""A streaming evaluation equals the one-shot functions, for any batches, merged in any way, saved and loaded."""

import subprocess
import sys
from math import fsum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bnneval
from bnneval import Evaluation

SAME = 1e-12  # compensated sums of numbers of order one


def expected(probs, labels, bins=15, norm="l1", scheme="width"):
    """The same metrics from the one-shot functions."""
    found = {
        "images": probs.shape[-2], "classes": probs.shape[-1], "accuracy": bnneval.accuracy(probs, labels),
        "ece": bnneval.ece(probs, labels, bins, norm, scheme), "nll": bnneval.nll(probs, labels),
        "brier": bnneval.brier(probs, labels), "entropy": float(bnneval.predictive_entropy(probs).mean()),
    }  # fmt: skip
    if probs.ndim == 2:
        return found
    return found | {
        "weight_samples": len(probs), "epistemic_share": bnneval.epistemic_share(probs),
        "disagreement": bnneval.disagreement(probs), "nll_one_sample": bnneval.nll_one_sample(probs, labels),
        "accuracy_one_sample": bnneval.accuracy_one_sample(probs, labels),
    }  # fmt: skip


def data(n, samples=None, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(classes, 0.5), (n,) if samples is None else (samples, n)), rng.integers(
        classes, size=n
    )


def batches(probs, labels, cuts):
    return zip(np.split(probs, cuts, axis=-2), np.split(labels, cuts), strict=True)


@st.composite
def split_data(draw):
    n, samples = draw(st.integers(1, 60)), draw(st.sampled_from([None, 1, 4]))
    cuts = sorted(draw(st.sets(st.integers(1, n - 1), max_size=n - 1))) if n > 1 else []
    return *data(n, samples, draw(st.integers(2, 5)), draw(st.integers(0, 10**6))), cuts


@given(split_data(), st.integers(1, 30), st.sampled_from(["l1", "l2", "max"]), st.sampled_from(["width", "mass"]))
def test_any_split_into_batches_equals_the_one_shot_functions(drawn, bins, norm, scheme):
    probs, labels, cuts = drawn
    evaluation = Evaluation(bins, norm, scheme)
    for p, y in batches(probs, labels, cuts):
        assert evaluation.update(p, y) is evaluation
    assert evaluation.compute() == pytest.approx(expected(probs, labels, bins, norm, scheme), abs=SAME, rel=SAME)


@given(split_data(), st.sampled_from(["width", "mass"]), st.randoms(use_true_random=False))
def test_merging_saved_evaluations_in_any_order_equals_the_one_shot_functions(drawn, scheme, random):
    probs, labels, cuts = drawn
    states = [Evaluation(7, scheme=scheme).update(p, y).state() for p, y in batches(probs, labels, cuts)]
    random.shuffle(states)
    total = Evaluation(7, scheme=scheme)
    for state in states:
        total.merge(Evaluation.from_state(state))
    assert total.compute() == pytest.approx(expected(probs, labels, 7, scheme=scheme), abs=SAME, rel=SAME)


def test_single_samples_of_very_different_losses_lose_no_digits():
    # NLL of 700 nats next to 1e-13: a plain running sum of 20,000 numbers is off by more than 1e-12 of itself.
    p = np.where(np.arange(20_000) % 2, np.exp(-700.0), 1 - 1e-13)
    probs, labels = np.column_stack([p, 1 - p]), np.zeros(20_000, int)
    evaluation = Evaluation()
    for at in range(0, 20_000, 10):
        evaluation.update(probs[at : at + 10], labels[at : at + 10])
    assert evaluation.compute()["nll"] == pytest.approx(fsum(-np.log(p)) / 20_000, rel=1e-15)


def test_sums_are_compensated():
    from bnneval.streaming import _Sums

    sums = _Sums(np.zeros(1), np.zeros(1))
    for x in (1e16, 1.0, 1.0, -1e16):  # a plain sum is 0
        sums.add(np.array([x]))
    assert sums.value() == [2.0]


def test_an_infinite_nll_stays_infinite():
    evaluation = Evaluation().update([[1.0, 0.0]], [1]).update([[0.5, 0.5]], [0]).update([[1.0, 0.0]], [1])
    assert evaluation.compute()["nll"] == np.inf
    assert evaluation.compute()["brier"] == pytest.approx((2 + 0.5 + 2) / 3)


def test_memory_is_bounded_for_equal_width_bins_and_nine_bytes_per_sample_for_equal_mass():
    probs, labels = data(1000)
    sizes = {scheme: [] for scheme in ("width", "mass")}
    for scheme, found in sizes.items():
        evaluation = Evaluation(scheme=scheme)
        for _ in range(3):
            evaluation.update(probs, labels)
            found.append(sum(array.nbytes for array in evaluation.state().values()))
    assert len(set(sizes["width"])) == 1
    assert sizes["width"][0] < 1000
    assert np.diff(sizes["mass"]).tolist() == [9000, 9000]


def test_the_diagram_is_that_of_the_one_shot_function():
    probs, labels = data(300, samples=3)
    for scheme in ("width", "mass"):
        evaluation = Evaluation(10, scheme=scheme)
        for p, y in batches(probs, labels, [100, 250]):
            evaluation.update(p, y)
        for ours, theirs in zip(evaluation.reliability(), bnneval.reliability(probs, labels, 10, scheme), strict=True):
            assert np.allclose(ours, theirs, atol=SAME, equal_nan=True)


def test_processes_exchange_npz_files_without_pickle(tmp_path):
    probs, labels = data(100, samples=2, classes=3)
    named = np.array(["a", "b", "c"])[labels]
    np.savez(tmp_path / "half.npz", probs=probs[:, 50:], labels=named[50:])
    code = (
        "import sys, numpy as np; from bnneval import Evaluation; f = np.load(sys.argv[1], allow_pickle=False);"
        "e = Evaluation(classes=['a', 'b', 'c']).update(f['probs'], f['labels']); np.savez(sys.argv[2], **e.state())"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "half.npz", tmp_path / "state.npz"], check=True)
    evaluation = Evaluation(classes=["a", "b", "c"]).update(probs[:, :50], named[:50])
    with np.load(tmp_path / "state.npz", allow_pickle=False) as state:
        evaluation.merge(Evaluation.from_state(state))
    assert evaluation.compute() == pytest.approx(expected(probs, labels), abs=SAME)


def test_a_state_is_a_copy_that_later_batches_do_not_change():
    probs, labels = data(10)
    for scheme in ("width", "mass"):
        evaluation = Evaluation(scheme=scheme).update(probs, labels)
        state, before = evaluation.state(), evaluation.compute()
        evaluation.update(probs[:3], labels[:3])
        assert Evaluation.from_state(state).compute() == before
        restored = Evaluation.from_state(state).update(probs[:3], labels[:3])
        assert restored.compute() == evaluation.compute()


def test_merging_an_empty_evaluation_changes_nothing_and_an_empty_one_takes_the_other():
    probs, labels = data(10)
    evaluation = Evaluation().update(probs, labels)
    before = evaluation.compute()
    assert evaluation.merge(Evaluation()).compute() == before
    assert Evaluation().merge(evaluation).compute() == before
    assert Evaluation.from_state(Evaluation().state()).merge(evaluation).compute() == before


def test_an_evaluation_merged_with_itself_counts_every_sample_twice():
    probs, labels = data(10)
    for scheme in ("width", "mass"):
        evaluation = Evaluation(scheme=scheme).update(probs, labels)
        doubled = evaluation.merge(evaluation).compute()
        twice = expected(np.tile(probs, (2, 1)), np.tile(labels, 2), scheme=scheme)
        assert doubled == pytest.approx(twice, abs=SAME)


def test_binary_probabilities_and_names_are_accepted():
    evaluation = Evaluation(classes=["no", "yes"]).update([0.9, 0.2], ["yes", "yes"])
    assert evaluation.compute()["accuracy"] == 0.5
    assert evaluation.compute()["classes"] == 2


def test_a_batch_of_another_kind_is_rejected_and_changes_nothing():
    probs, labels = data(10, samples=3)
    evaluation = Evaluation().update(probs, labels)
    before = evaluation.compute()
    bad = [
        (probs[:2], labels, r"expected \(3, N, 5\) as before, got \(2, N, 5\)"),
        (probs[0], labels, r"expected \(3, N, 5\) as before, got \(N, 5\)"),
        (np.full((3, 10, 2), 0.5), labels % 2, r"got \(3, N, 2\)"),
        (probs, labels + 5, "labels in 0..4"),
        (2 * probs, labels, "sum to 1"),
    ]
    for p, y, message in bad:
        with pytest.raises(ValueError, match=message):
            evaluation.update(p, y)
        assert evaluation.compute() == before
    with pytest.raises(ValueError, match=r"expected \(3, N, 5\) as before"):
        evaluation.merge(Evaluation().update(probs[0], labels))
    with pytest.raises(ValueError, match="expected an evaluation with bins, norm, scheme, classes"):
        evaluation.merge(Evaluation(10).update(probs, labels))


def test_a_state_that_is_damaged_is_rejected():
    state = Evaluation(scheme="mass").update(*data(10)).state()
    for change, message in (
        ({"counts": None}, "got no counts"),
        ({"format": 2}, "format 1, got format 2"),
        ({"counts": np.zeros(3, np.int64)}, r"expected counts in the state to be int64 \(4,\), got int64 \(3,\)"),
        ({"sums": np.zeros((2, 5), np.float32)}, "expected sums in the state to be float64"),
        ({"confidence": np.zeros(3)}, "expected 10 confidences in the state, got 3"),
    ):
        damaged = {key: value for key, value in (state | change).items() if value is not None}
        with pytest.raises(ValueError, match=message):
            Evaluation.from_state(damaged)
