"""Metrics of probabilistic predictions: of classes (calibration, uncertainty, OOD, corruption) and of numbers.

Every function takes anything `numpy.asarray` accepts. Those for classes take probabilities, and raise ValueError for
logits.
"""

from bnneval.calibration import classwise_ece, ece, mce, reliability
from bnneval.cifar10c import Cifar10C
from bnneval.corruptions import CORRUPTIONS, corrupt, textures
from bnneval.intervals import (
    central_interval_gaussian,
    central_interval_mixture,
    central_interval_samples,
    coverage,
    interval_score,
)
from bnneval.mixture import aleatoric_std, epistemic_std, mixture_mean, std_split, total_std
from bnneval.pit import pit_gaussian, pit_histogram, pit_mixture, pit_samples, quantile_calibration
from bnneval.predictive import mean_probs
from bnneval.regression import crps_gaussian, crps_mixture, crps_samples, mae, nll_gaussian, nll_mixture, rmse
from bnneval.report import regression_report, report, table
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
    "CORRUPTIONS", "Cifar10C", "Roc", "accuracy", "accuracy_one_sample", "aleatoric_std", "aupr", "aurc", "auroc",
    "bootstrap_auroc", "bootstrap_ece", "brier", "central_interval_gaussian", "central_interval_mixture",
    "central_interval_samples", "classwise_ece", "compare", "corrupt", "coverage", "crps_gaussian", "crps_mixture",
    "crps_samples", "disagreement", "ece", "entropy_split", "epistemic_share", "epistemic_std", "evaluate_cifar10c",
    "evaluate_shift", "expected_entropy", "fpr_at_tpr", "interval_score", "mae", "mce", "mean_corruption_error",
    "mean_probs", "mixture_mean", "mutual_information", "nll", "nll_gaussian", "nll_mixture", "nll_one_sample",
    "over_seeds", "paired_difference", "pit_gaussian", "pit_histogram", "pit_mixture", "pit_samples",
    "predictive_entropy", "quantile_calibration", "regression_report", "reliability", "report", "risk_coverage", "rmse",
    "roc", "std_split", "table", "textures", "total_std",
]
