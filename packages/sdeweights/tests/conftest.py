"""Test setup: double precision, a fixture for both Euler solvers, and hypothesis profiles.

Hypothesis draws the same examples in every ordinary run, and new ones in the deep run (HYPOTHESIS_PROFILE=deep).
"""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

from sdeweights.testing import EULERS

slow_is_fine = [HealthCheck.too_slow, HealthCheck.filter_too_much]
settings.register_profile(
    "ordinary", derandomize=True, deadline=None, max_examples=50, suppress_health_check=slow_is_fine
)
settings.register_profile("deep", deadline=None, max_examples=2000, suppress_health_check=slow_is_fine)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ordinary"))


torch.set_num_threads(1)  # the tensors are too small for threads to help


@pytest.fixture(autouse=True)
def float64():
    """Use double precision by default; tests that need another dtype set it explicitly."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(params=EULERS, scope="session")
def euler(request):
    """The plain and the fused Euler schemes, as keyword arguments of `WeightProcess.sample`."""
    return dict(zip(("solver", "ode_solver"), EULERS[request.param], strict=True))
