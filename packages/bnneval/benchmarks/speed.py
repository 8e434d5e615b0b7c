"""Time of a report, and of ECE against scikit-learn's calibration curve: medians of interleaved runs.

python benchmarks/speed.py [--n 1000000] [--classes 10] [--runs 21]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.calibration import calibration_curve

import bnneval
from bnneval.corruptions import CORRUPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable


def interleaved(runs: int, **functions: Callable[[], Any]) -> dict[str, float]:
    """Median seconds of each function, run in turn so that a busy moment of the machine affects all of them."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(runs):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Print the timings."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--runs", type=int, default=21)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(options.classes), options.n)
    labels, ood = rng.integers(options.classes, size=options.n), rng.dirichlet(np.ones(options.classes) * 3, options.n)

    start = time.perf_counter()
    bnneval.report(probs, labels, ood)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"report on {options.n} x {options.classes} ID and OOD each: {seconds:.2f} s, peak memory {peak:.2f} GB")

    confidence, correct = probs.max(axis=1), probs.argmax(axis=1) == labels
    medians = interleaved(
        options.runs,
        ece=lambda: bnneval.ece(probs, labels),
        calibration_curve=lambda: calibration_curve(correct, confidence, n_bins=15),
    )
    for name, median in medians.items():
        print(f"{name}: {1000 * median:.1f} ms")
    print(f"ratio {medians['ece'] / medians['calibration_curve']:.2f}")

    images = rng.integers(0, 256, (200, 32, 32, 3), dtype=np.uint8)
    for name in CORRUPTIONS:
        start = time.perf_counter()
        bnneval.corrupt(images, name, 3)
        print(f"{name}: {1e6 * (time.perf_counter() - start) / len(images):.0f} us per image")


if __name__ == "__main__":
    main()
