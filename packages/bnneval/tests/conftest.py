"""Hypothesis profiles: fixed examples in an ordinary run, 2,000 random ones with HYPOTHESIS_PROFILE=deep."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("bnneval", derandomize=True, deadline=None, max_examples=100, suppress_health_check=SLOW)
settings.register_profile("deep", deadline=None, max_examples=2000, suppress_health_check=SLOW)
settings.load_profile("deep" if os.environ.get("HYPOTHESIS_PROFILE") == "deep" else "bnneval")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def photos():
    """Eight synthetic 32 x 32 images with edges, colours and smooth ramps."""
    generator = np.random.default_rng(7)
    row, column = np.mgrid[:32, :32] / 31
    images = []
    for _ in range(8):
        base = generator.uniform(0, 200, 3) + 55 * np.stack([row, column, row * column], axis=-1)
        top, left = generator.integers(2, 16, 2)
        base[top : top + 12, left : left + 12] = generator.uniform(0, 255, 3)
        images.append(np.clip(base + generator.normal(0, 3, base.shape), 0, 255))
    return np.array(images).astype(np.uint8)


@pytest.fixture(scope="session")
def cifar10():
    """The first 1,000 CIFAR-10 test images and labels, if PSDENETS_DATA points to the binary version."""
    root = os.environ.get("PSDENETS_DATA")
    file = Path(root or ".") / "cifar-10-batches-bin" / "test_batch.bin"
    if root is None or not file.is_file():
        pytest.skip("PSDENETS_DATA does not point to cifar-10-batches-bin")
    records = np.fromfile(file, np.uint8, count=3073 * 1000).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0].astype(np.int64)
