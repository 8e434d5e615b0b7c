"""A million predictions: time and memory of the whole report, and ECE against scikit-learn's calibration curve."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource, statistics, time
import numpy as np, bnneval
from sklearn.calibration import calibration_curve
rng = np.random.default_rng(0)
probs, labels = rng.dirichlet(np.ones(10), 10**6), rng.integers(10, size=10**6)
start = time.perf_counter()
bnneval.report(probs, labels)
seconds = time.perf_counter() - start
gigabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
confidence, correct = probs.max(axis=1), probs.argmax(axis=1) == labels
ours, theirs = [], []
for _ in range(21):
    start = time.perf_counter()
    bnneval.ece(probs, labels)
    middle = time.perf_counter()
    calibration_curve(correct, confidence, n_bins=15)
    ours.append(middle - start)
    theirs.append(time.perf_counter() - middle)
print(seconds, gigabytes, statistics.median(ours) / statistics.median(theirs))
"""


@pytest.mark.deep
def test_a_million_predictions_take_under_ten_seconds_and_two_gigabytes_and_ece_about_a_calibration_curve():
    # Medians of 21 interleaved runs still sway by a fifth when others use the machine, hence the best of three and 1.2.
    ratios = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        seconds, gigabytes, ratio = map(float, done.stdout.split())
        assert seconds < 10
        assert gigabytes < 2
        ratios.append(ratio)
    assert min(ratios) <= 1.2
