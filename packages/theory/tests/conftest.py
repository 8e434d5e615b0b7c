"""Hypothesis is deterministic in the ordinary run and searches in the deep one (HYPOTHESIS_PROFILE=deep)."""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

slow_is_fine = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
settings.register_profile(
    "ordinary", derandomize=True, deadline=None, max_examples=25, suppress_health_check=slow_is_fine
)
settings.register_profile("deep", deadline=None, max_examples=2000, suppress_health_check=slow_is_fine)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ordinary"))

torch.set_num_threads(1)  # the tensors are too small for threads to help


@pytest.fixture(autouse=True)
def float64():
    """Tests compare numbers, so they compute in double precision unless they say otherwise."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
