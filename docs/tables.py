"""Compare regressors on three tables and write TABLES.md from tables.json, both in docs/.

    python docs/tables.py                       only write TABLES.md
    python docs/tables.py --measure [NAME...]   first measure these tables (default: all), the seeds not yet recorded

Every seed splits a table into 80 % for training and 20 % for testing. MC dropout and the deep ensemble train as long as
the ODE-first network did with that seed, and keep the weights with the lowest loss on a tenth of the training rows. The
tables are included in scikit-learn. The defaults of the networks were chosen on other tables, among them rows
of Friedman's function from another seed; those of the other regressors were not tuned.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bnneval import coverage, crps_mixture, nll_mixture, rmse
from bnneval.intervals import central_interval_mixture
from measured.regressors import REGRESSORS
from psdenets.runs.files import write_json, write_text

HERE = Path(__file__).parent
SEEDS = range(5)
METRICS = {"nll": "NLL (nats)", "crps": "CRPS", "rmse": "RMSE", "coverage": "coverage of 90 %", "seconds": "seconds"}
NOTE = (
    "Values are mean ± standard deviation over the seeds. Lower is better, except for the coverage, which should be "
    "90 %. Seconds are those of a shared CPU core."
)
ABOUT = {
    "diabetes": "442 patients, 10 columns: progression of the disease after a year",
    "friedman": "500 rows of Friedman's first function, 10 columns of which 5 matter, noise of std 1",
    "wine": "178 wines, 12 columns: alcohol from the other measurements",
}


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Columns and target."""
    from sklearn import datasets

    if name == "diabetes":
        found = datasets.load_diabetes()
        return found.data, found.target
    if name == "friedman":
        return datasets.make_friedman1(500, noise=1.0, random_state=0)
    wine = datasets.load_wine().data
    return wine[:, 1:], wine[:, 0]


def measure(name: str, seed: int) -> dict[str, dict[str, float]]:
    """Metrics of every regressor on one split, in the unit of the target."""
    x, y = table(name)
    order = np.random.default_rng(seed).permutation(len(x))
    test, train = np.split(order, [len(x) // 5])
    centre, spread = x[train].mean(0), x[train].std(0)
    x, (mean, std) = (x - centre) / spread, (y[train].mean(), y[train].std())
    found, budget = {}, 0.0
    for label, regressor in REGRESSORS.items():
        started = time.perf_counter()
        means, stds = regressor(x[train], (y[train] - mean) / std, x[test], seed, budget)
        seconds = time.perf_counter() - started
        budget = budget or seconds
        found[label] = _scores(mean + std * means, std * stds, y[test]) | {"seconds": seconds}
    return found


def _scores(means: np.ndarray, stds: np.ndarray, y: np.ndarray) -> dict[str, float]:
    lower, upper = central_interval_mixture(means, stds, 0.9)
    return {
        "nll": nll_mixture(means, stds, y),
        "crps": crps_mixture(means, stds, y),
        "rmse": rmse(means.mean(0), y),
        "coverage": coverage(lower, upper, y),
    }


def page(results: dict[str, Any]) -> str:
    """TABLES.md."""
    title, _, about = __doc__.strip().split("\n\n")
    lines = ["# Regression on tables", "", title, "", about.replace("\n", " "), NOTE, ""]
    for name, seeds in results.items():
        lines += [
            f"## {name}",
            "",
            f"{ABOUT[name]}; {len(seeds)} seeds.",
            "",
            f"| regressor | {' | '.join(METRICS.values())} |",
        ]
        lines.append("| --- |" + " --- |" * len(METRICS))
        for label in REGRESSORS:
            cells = [_cell(key, [one[label][key] for one in seeds.values()]) for key in METRICS]
            lines.append(f"| {label} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _cell(key: str, values: list[float]) -> str:
    form, unit = {"coverage": (".1f", 100), "seconds": (".1f", 1)}.get(key, (".4g", 1))
    mean, std = unit * float(np.mean(values)), unit * float(np.std(values, ddof=1))
    return f"{mean:{form}} ± {std:.2g}" + (" %" if key == "coverage" else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure if asked to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", nargs="*", metavar="NAME", choices=list(ABOUT), help="tables to measure")
    args = parser.parse_args(argv)
    file = HERE / "tables.json"
    results = json.loads(file.read_text()) if file.exists() else {}
    torch.set_num_threads(1)
    names = [] if args.measure is None else args.measure or list(ABOUT)
    for name, seed in itertools.product(names, map(str, SEEDS)):
        if seed not in results.get(name, {}):
            results.setdefault(name, {})[seed] = measure(name, int(seed))
            write_json(file, results)
    write_text(HERE / "TABLES.md", page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
