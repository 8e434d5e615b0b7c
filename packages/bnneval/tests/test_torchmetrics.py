"""Agreement with torchmetrics at its own precision, and known differences from it."""

from contextlib import suppress

import numpy as np
import pytest

import bnneval

with suppress(ImportError):  # torchmetrics imports torchvision; psdenets, if installed, works around a broken one
    from psdenets.data.torchvision_import import import_torchvision

    import_torchvision()

try:
    import torch
    from torchmetrics.classification import BinaryAUROC
    from torchmetrics.functional.classification import (
        binary_auroc,
        binary_calibration_error,
        multiclass_accuracy,
        multiclass_calibration_error,
    )
except (ImportError, RuntimeError, OSError) as error:  # missing, or with a torchvision built for another torch
    pytest.skip(f"torchmetrics cannot be imported: {error}", allow_module_level=True)

FLOAT32 = 2e-6  # torchmetrics accumulates a few hundred float32 numbers


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("seed", range(10))
def test_ece_agrees_with_torchmetrics_away_from_confidence_one(seed, norm):
    rng = np.random.default_rng(seed)
    probs, labels = rng.dirichlet(np.ones(5) * 0.5, 300), rng.integers(5, size=300)
    theirs = multiclass_calibration_error(torch.tensor(probs), torch.tensor(labels), 5, n_bins=15, norm=norm)
    assert bnneval.ece(probs, labels, 15, norm) == pytest.approx(float(theirs), abs=FLOAT32)


@pytest.mark.parametrize("seed", range(10))
def test_auroc_and_accuracy_agree_with_torchmetrics_on_scores_in_the_unit_interval(seed):
    rng = np.random.default_rng(seed)
    inside, outside = rng.random(50), rng.random(70) ** 0.5
    truth = torch.tensor([0] * 50 + [1] * 70)
    theirs = binary_auroc(torch.tensor(np.concatenate([inside, outside])), truth)
    assert bnneval.auroc(inside, outside) == pytest.approx(float(theirs), abs=FLOAT32)
    probs, labels = rng.dirichlet(np.ones(4), 200), rng.integers(4, size=200)
    right = multiclass_accuracy(torch.tensor(probs), torch.tensor(labels), 4, average="micro")
    assert bnneval.accuracy(probs, labels) == pytest.approx(float(right), abs=FLOAT32)


def test_confidence_exactly_one_is_in_the_last_bin_here_and_in_a_separate_bin_in_torchmetrics():
    # torchmetrics issue 3510. Confidence 0.95 right and 1.0 wrong share one bin: |1/2 - 0.975| = 0.475.
    probs, labels = np.array([[0.05, 0.95], [0.0, 1.0]]), np.array([1, 0])
    assert bnneval.ece(probs, labels, bins=10) == pytest.approx(0.475, abs=1e-15)
    theirs = multiclass_calibration_error(torch.tensor(probs), torch.tensor(labels), 2, n_bins=10)
    assert float(theirs) == pytest.approx((0.05 + 1.0) / 2, abs=FLOAT32)
    binary = binary_calibration_error(torch.tensor([0.95, 1.0]), torch.tensor([1, 0]), n_bins=10)
    assert float(binary) == pytest.approx(0.525, abs=FLOAT32)


def test_scores_are_never_transformed_here_but_batch_by_batch_in_torchmetrics():
    # torchmetrics issue 2195: a batch with a score outside [0, 1] goes through a sigmoid, the next batch may not.
    assert bnneval.auroc([0.95], [1.5]) == 1.0
    metric = BinaryAUROC()
    for score, truth in ((0.95, 0), (1.5, 1)):
        metric.update(torch.tensor([score]), torch.tensor([truth]))
    assert float(metric.compute()) == 0.0  # 0.95 stayed, 1.5 became 0.82
    assert float(binary_auroc(torch.tensor([0.95, 1.5]), torch.tensor([0, 1]))) == 1.0


def test_large_scores_keep_their_order_here_but_tie_in_torchmetrics():
    # The same sigmoid saturates: all scores above 17 become 1 in float32.
    assert bnneval.auroc([98.0], [98.4, 99.0]) == 1.0
    assert float(binary_auroc(torch.tensor([98.0, 98.4, 99.0]), torch.tensor([0, 1, 1]))) == 0.5


def test_logits_are_rejected_here_but_silently_converted_in_torchmetrics():
    logits, labels = torch.tensor([[3.0, 1.0], [-1.0, 2.0]]), torch.tensor([0, 1])
    assert float(multiclass_calibration_error(logits, labels, 2)) > 0
    with pytest.raises(ValueError, match="logits need a softmax first"):
        bnneval.ece(logits, labels)
