from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import settings

settings.register_profile("ordinary", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("deep", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ordinary"))

# A run of seconds: 4 x 4 pixels after the squeeze, few channels, few images.
SMALL = [
    "--width",
    "4",
    "--steps",
    "3",
    "--drift",
    "1-4-1",
    "--limit-train",
    "96",
    "--limit-test",
    "40",
    "--batch-size",
    "16",
    "--epochs",
    "2",
    "--test-samples",
    "2",
    "--threads",
    "1",
]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `python -m psdenets.NAME ...` as a person would."""

    def run(name: str, *args: object, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", f"psdenets.{name}", *map(str, args)],
            capture_output=True, text=True, cwd=cwd, env={**os.environ, **env}, timeout=300, check=False,
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the digits."""
    from psdenets.train import main

    path = tmp_path_factory.mktemp("runs") / "small"
    assert main(["--out", str(path), *SMALL]) == 0
    return path


@pytest.fixture
def small() -> list[str]:
    """Flags of a run that takes seconds."""
    return list(SMALL)
