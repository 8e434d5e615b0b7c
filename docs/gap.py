"""Where weights are uncertain on the toy `gap`: train three cuts with five seeds, and write GAP.md from gap.json.

    python docs/gap.py                    only write GAP.md
    python docs/gap.py --train [CUT...]   train these cuts (default: all) with the seeds that are not recorded yet

A run is `python -m psdenets.train --dataset gap --cut CUT --seed SEED`, with the defaults of the toy. There are no data
for |x| < 0.7 and for |x| > 2. The epistemic std at x is the standard deviation of the predicted mean over 64 weight
samples. Its mean in the gap (|x| < 0.35) and outside (2.6 < |x| < 3.2) is divided by that inside the data (0.8 < |x| <
1.9). Coverage is the share of the 200 test points inside the central 90 % of the predictive distribution. The five
seeds share the test points, so even the mean coverage of a perfect prediction has a standard error of about 2 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import psdenets
from measured.record import commit, cpu, read, write
from psdenets.runs.files import write_text

HERE = Path(__file__).parent
SEEDS = range(5)
CUTS = {"vertical": "ODE-first", "full": "fully stochastic", "both": "both"}
REGIONS = {"inside": (0.8, 1.9), "gap": (0.0, 0.35), "outside": (2.6, 3.2)}
SAMPLES = 64
LEAST_RATIO, COVERAGE = 3.0, (0.85, 0.95)
HEADINGS = (
    "cut", "gap / inside, mean (worst)", "outside / inside, mean (worst)", "coverage, mean (range)", "RMSE", "NLL",
    "seconds", "bounds",
)  # fmt: skip


def epistemic_std(model: Any, low: float, high: float) -> float:
    """Mean over low <= |x| <= high of the standard deviation of the predicted mean over weight samples."""
    half = torch.linspace(low, high, 41)
    x = torch.cat([-half, half])[:, None, None, None]
    predictive, _ = model.predict_batches([x], SAMPLES, torch.Generator().manual_seed(0))
    return float(predictive[..., 0].std(0).mean())


def measure(cut: str, seed: int, runs: Path) -> dict[str, Any]:
    """Train or resume one run, and measure it."""
    name = f"{cut}-seed{seed}"
    run = psdenets.fit(dataset="gap", cut=cut, seed=seed, out=str(runs / name), resume=True, progress="none")
    return {
        "command": f"python -m psdenets.train --dataset gap --cut {cut} --seed {seed}",
        "commit": commit(),
        "cpu": cpu(),
        "cut": cut,
        "epistemic_std": {region: epistemic_std(run.model, *ends) for region, ends in REGIONS.items()},
        "metrics": {key: run.metrics[key] for key in ("coverage_90", "rmse", "nll", "crps", "seconds")},
    }


def page(entries: dict[str, dict[str, Any]]) -> str:
    """GAP.md."""
    title, _, about = __doc__.strip().split("\n\n")
    low, high = COVERAGE
    bounds = f"both ratios at least {LEAST_RATIO:g} with every seed, and a mean coverage from {low:.0%} to {high:.0%}"
    lines = ["# Uncertainty between and beyond the data", "", title, "", about.replace("\n", " "), ""]
    lines += [f"Bounds: {bounds}.", "", f"| {' | '.join(HEADINGS)} |", "|" + " --- |" * len(HEADINGS)]
    for cut, label in CUTS.items():
        found = [entry for entry in entries.values() if entry["cut"] == cut]
        if found:
            lines.append(f"| {label} | {' | '.join(_cells(found))} |")
    cpus = ", ".join(sorted({entry["cpu"] for entry in entries.values()}))
    note = "RMSE, NLL and seconds are mean ± standard deviation. The noise of the data has a std of 0.1."
    lines += ["", f"{note} Seconds are those of a shared core ({cpus})."]
    return "\n".join([*lines, ""])


def _cells(found: Sequence[dict[str, Any]]) -> list[str]:
    """A row of the table: one cut, all its seeds."""
    stds = {region: np.array([entry["epistemic_std"][region] for entry in found]) for region in REGIONS}
    gap, outside = stds["gap"] / stds["inside"], stds["outside"] / stds["inside"]
    coverage, rmse, nll, seconds = (
        np.array([entry["metrics"][key] for entry in found]) for key in ("coverage_90", "rmse", "nll", "seconds")
    )
    low, high = COVERAGE
    wide, calibrated = min(gap.min(), outside.min()) >= LEAST_RATIO, low <= coverage.mean() <= high
    missed = [*([] if wide else ["ratio"]), *([] if calibrated else ["coverage"])]
    verdict = f"missed: {', '.join(missed)}" if missed else "hold"
    return [
        f"{gap.mean():.1f} ({gap.min():.1f})",
        f"{outside.mean():.1f} ({outside.min():.1f})",
        f"{coverage.mean():.1%} ({coverage.min():.1%} - {coverage.max():.1%})",
        *(f"{values.mean():.3f} ± {values.std(ddof=1):.3f}" for values in (rmse, nll)),
        f"{seconds.mean():.0f} ± {seconds.std(ddof=1):.0f}",
        verdict if len(found) == len(SEEDS) else f"{verdict}, {len(found)} of {len(SEEDS)} seeds",
    ]


def main(argv: Sequence[str] | None = None, folder: Path = HERE) -> int:
    """Train if asked to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="*", metavar="CUT", choices=list(CUTS), help="cuts to train")
    parser.add_argument("--runs", type=Path, default=Path("runs/gap-seeds"), help="directory for the run directories")
    args = parser.parse_args(argv)
    file = folder / "gap.json"
    for seed in SEEDS:
        for cut in [] if args.train is None else args.train or CUTS:
            name = f"{cut}-seed{seed}"
            if name not in read(file):
                found = measure(cut, seed, args.runs)
                write(file, {**read(file), name: found})
    write_text(folder / "GAP.md", page(read(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
