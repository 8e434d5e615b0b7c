"""Time and memory of a report on a million predictions, and time of ECE against scikit-learn's calibration curve."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import statistics, time
import numpy as np, bnneval
from sklearn.calibration import calibration_curve
rng = np.random.default_rng(0)
probs, labels = rng.dirichlet(np.ones(10), 10**6), rng.integers(10, size=10**6)
start = time.process_time()
bnneval.report(probs, labels)
seconds = time.process_time() - start
high_water = next(line for line in open('/proc/self/status') if line.startswith('VmHWM'))
gigabytes = int(high_water.split()[1]) / 1e6
confidence, correct = probs.max(axis=1), probs.argmax(axis=1) == labels
ours, theirs = [], []
for _ in range(21):
    start = time.process_time()
    bnneval.ece(probs, labels)
    middle = time.process_time()
    calibration_curve(correct, confidence, n_bins=15)
    ours.append(middle - start)
    theirs.append(time.process_time() - middle)
print(seconds, gigabytes, statistics.median(ours) / statistics.median(theirs))
"""


# VmHWM because ru_maxrss of a child starts at that of its parent process, which may have run large tests.
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from Linux's /proc")
@pytest.mark.deep
def test_a_million_predictions_take_under_ten_seconds_and_two_gigabytes_and_ece_no_longer_than_a_calibration_curve():
    # CPU time equals wall time on one thread of an idle machine. Other processes still affect it through the caches
    # (ratios vary from 0.68 to 0.83), so the best of three counts.
    ratios = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
        seconds, gigabytes, ratio = map(float, done.stdout.split())
        assert seconds < 10
        assert gigabytes < 2
        ratios.append(ratio)
    assert min(ratios) <= 1
