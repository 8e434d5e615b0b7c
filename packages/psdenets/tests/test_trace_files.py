"""How often execution changes file in a training step, when a run is loaded, in a prediction and a weight path."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "trace_files.py"


@pytest.fixture(scope="module")
def counts() -> dict[str, tuple[int, int]]:
    done = subprocess.run([sys.executable, str(SCRIPT), "--json"], capture_output=True, text=True, check=False)
    found: dict[str, tuple[int, int]] = json.loads(done.stdout)
    assert done.returncode == int(any(count > bound for count, bound in found.values()))
    return found


@pytest.mark.parametrize("operation", ["training step", "psdenets.load", "prediction", "WeightProcess.sample"])
def test_the_number_of_file_changes_is_within_its_bound(counts, operation):
    count, bound = counts[operation]
    assert 20 < count <= bound
