"""Metrics of probabilistic predictions: of classes (calibration, uncertainty, OOD, corruption) and of numbers.

Every function takes anything `numpy.asarray` accepts, and tensors that require grad. Those for classes take
probabilities, and raise ValueError for logits, except for `fit_temperature`, which takes logits.
"""

from bnneval.binomial import clopper_pearson
from bnneval.calibration import classwise_ece, ece, mce, reliability
from bnneval.cifar10c import Cifar10C
from bnneval.conformal import ConformalThreshold, conformal_threshold, prediction_sets
from bnneval.corruptions import CORRUPTIONS, corrupt, textures
from bnneval.files import read_predictions, to_frame, write_predictions
from bnneval.intervals import (
    central_interval_gaussian,
    central_interval_mixture,
    central_interval_samples,
    coverage,
    interval_score,
)
from bnneval.isotonic import Isotonic, fit_isotonic
from bnneval.mixture import aleatoric_std, epistemic_std, mixture_mean, std_split, total_std
from bnneval.paired import paired_auroc, paired_bootstrap, paired_ece
from bnneval.pit import pit_gaussian, pit_histogram, pit_mixture, pit_samples, quantile_calibration
from bnneval.predictive import mean_probs
from bnneval.regression import crps_gaussian, crps_mixture, crps_samples, mae, nll_gaussian, nll_mixture, rmse
from bnneval.report import regression_report, report, table
from bnneval.roc import Roc, aupr, auroc, fpr_at_tpr, roc
from bnneval.scoring import accuracy, accuracy_one_sample, brier, nll, nll_one_sample
from bnneval.selective import Abstention, abstention_threshold, aurc, risk_coverage
from bnneval.shift import evaluate_cifar10c, evaluate_shift, mean_corruption_error
from bnneval.statistics import bootstrap_auroc, bootstrap_ece, compare, over_seeds, paired_difference
from bnneval.streaming import Evaluation
from bnneval.temperature import Temperature, apply_temperature, fit_temperature
from bnneval.uncertainty import (
    disagreement,
    entropy_split,
    epistemic_share,
    expected_entropy,
    mutual_information,
    predictive_entropy,
)

__version__ = "0.1.0"

# fmt: off
__all__ = [
    "CORRUPTIONS", "Abstention", "Cifar10C", "ConformalThreshold", "Evaluation", "Isotonic", "Roc", "Temperature",
    "abstention_threshold", "accuracy", "accuracy_one_sample", "aleatoric_std", "apply_temperature", "aupr", "aurc",
    "auroc", "bootstrap_auroc", "bootstrap_ece", "brier", "central_interval_gaussian", "central_interval_mixture",
    "central_interval_samples", "classwise_ece", "clopper_pearson", "compare", "conformal_threshold", "corrupt",
    "coverage", "crps_gaussian", "crps_mixture", "crps_samples", "disagreement", "ece", "entropy_split",
    "epistemic_share", "epistemic_std", "evaluate_cifar10c", "evaluate_shift", "expected_entropy", "fit_isotonic",
    "fit_temperature", "fpr_at_tpr", "interval_score", "mae", "mce", "mean_corruption_error", "mean_probs",
    "mixture_mean", "mutual_information", "nll", "nll_gaussian", "nll_mixture", "nll_one_sample", "over_seeds",
    "paired_auroc", "paired_bootstrap", "paired_difference", "paired_ece", "pit_gaussian", "pit_histogram",
    "pit_mixture", "pit_samples", "prediction_sets", "predictive_entropy", "quantile_calibration", "read_predictions",
    "regression_report", "reliability", "report", "risk_coverage", "rmse", "roc", "std_split", "table", "textures",
    "to_frame", "total_std", "write_predictions",
]
