"""Calibration, uncertainty, out-of-distribution and corruption metrics for probabilistic classifiers.

Every function takes probabilities as anything `numpy.asarray` accepts, and raises ValueError for logits.
"""

from bnneval.calibration import classwise_ece, ece, mce, reliability
from bnneval.cifar10c import Cifar10C
from bnneval.corruptions import CORRUPTIONS, corrupt, textures
from bnneval.predictive import mean_probs
from bnneval.report import report, table
from bnneval.roc import Roc, aupr, auroc, fpr_at_tpr, roc
from bnneval.scoring import accuracy, accuracy_one_sample, brier, nll, nll_one_sample
from bnneval.selective import aurc, risk_coverage
from bnneval.shift import evaluate_cifar10c, evaluate_shift, mean_corruption_error
from bnneval.statistics import bootstrap_auroc, bootstrap_ece, compare, over_seeds, paired_difference
from bnneval.uncertainty import (
    disagreement,
    entropy_split,
    epistemic_share,
    expected_entropy,
    mutual_information,
    predictive_entropy,
)

# fmt: off
__all__ = [
    "CORRUPTIONS", "Cifar10C", "Roc", "accuracy", "accuracy_one_sample", "aupr", "aurc", "auroc", "bootstrap_auroc",
    "bootstrap_ece", "brier", "classwise_ece", "compare", "corrupt", "disagreement", "ece", "entropy_split",
    "epistemic_share", "evaluate_cifar10c", "evaluate_shift", "expected_entropy", "fpr_at_tpr", "mce",
    "mean_corruption_error", "mean_probs", "mutual_information", "nll", "nll_one_sample", "over_seeds",
    "paired_difference", "predictive_entropy", "reliability", "report", "risk_coverage", "roc", "table", "textures",
]
