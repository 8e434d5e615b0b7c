"""Compare likelihoods on data whose noise depends on x, by scores of bnneval and by bounds on the log evidence.

python examples/likelihoods.py [FOLDER]      less than a minute on one core
"""

import sys
from pathlib import Path

import torch

import bnneval
import psdenets
from psdenets.data import load_splits
from psdenets.runs.bounds import evidence_bounds

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/likelihoods")
LIKELIHOODS = {
    "gaussian": {"likelihood": "gaussian", "spread": "learned"},  # one trained scale
    "predicted": {"likelihood": "gaussian", "spread": "predicted"},  # a scale for every row
    "student-t": {"likelihood": "student-t", "spread": "predicted"},
}

for name, options in LIKELIHOODS.items():
    out = str(folder / name)
    given = {"dataset": "heteroscedastic", "cut": "full", "schedule": "constant", "select": "last", **options}
    before = psdenets.fit(given, epochs=10, out=out, progress="none").metrics["nll"]
    run = psdenets.fit(out=out, epochs=15, resume=True, progress="none")  # the same bytes as 15 epochs at once
    print(f"{name}: NLL after 10 epochs {before:.3f}, after 15 {run.metrics['nll']:.3f} nats")
    shown = {key: run.metrics[key] for key in ("rmse", "crps", "coverage_90")}
    print("  " + ", ".join(f"{key} {value:.3f}" for key, value in shown.items()))
    print(f"  {evidence_bounds(run.model, load_splits(run.config).train, 16, torch.Generator().manual_seed(0))}")
    if options["likelihood"] == "gaussian":
        location, scale = run.predictions.probs[..., 0], run.predictions.probs[..., 1]  # (weight samples, test rows)
        pit = bnneval.pit_mixture(location, scale, run.predictions.labels)
        print(f"  error of predicted quantiles {bnneval.quantile_calibration(pit).error:.3f}")
