from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings
from PIL import Image

settings.register_profile("ordinary", derandomize=True, deadline=None, max_examples=25)
settings.register_profile("deep", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ordinary"))

# Flags of a run that takes seconds: 4 x 4 pixels after the squeeze, few channels, few images.
SMALL = [
    "--preset",
    "digits-strided",
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


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep decoded pictures of the tests out of the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def rendered() -> None:
    """Render all figures in this test."""


@pytest.fixture(autouse=True)
def dots_for_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Build all figures, but write a dot in place of each: rendering takes five sixths of the time of a small run.

    They are rendered in tests that ask for `rendered`, for `small_run` and other shared runs, and in new processes.
    """
    if "rendered" in request.fixturenames:
        return

    def save_dot(_figure: object, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (1, 1)).save(path)

    monkeypatch.setattr("psdenets.runs.plots.save", save_dot)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Build plain layers in this test, as with PSDENETS_PLAIN=1."""
    from psdenets.nn.fast.switch import enabled

    monkeypatch.setenv("PSDENETS_PLAIN", "1")
    enabled.cache_clear()
    yield
    monkeypatch.undo()
    enabled.cache_clear()


@pytest.fixture
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs `python -m psdenets.NAME ...` in a new process."""

    def run(name: str, *args: object, cwd: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", f"psdenets.{name}", *map(str, args)],
            capture_output=True, text=True, cwd=cwd, env={**os.environ, **env}, timeout=300, check=False,
        )  # fmt: skip

    return run


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A finished run on the digits, shared by all tests. The fixture fails if a test has modified its files."""
    from psdenets.train import main

    path = tmp_path_factory.mktemp("runs") / "small"
    assert main(["--out", str(path), *SMALL]) == 0
    before = _contents(path)
    yield path
    assert _contents(path) == before


def _contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


# Flags of a run that takes seconds, for every system of Table 1.
BRIEF = ["--limit-train", "96", "--limit-test", "40", "--threads", "1"]
BRIEF_DESCENT = [*BRIEF, "--width", "4", "--batch-size", "16", "--epochs", "2"]


HMC = ["--model", "hmc", "--chains", "2", "--warmup", "10", "--draws", "8", "--leapfrog", "5", "--test-samples", "4"]
OWN_FLAGS = {
    "ensemble": ["--members", "2"],
    "mfvi": ["--test-samples", "3"],
    "mfvi-resnet32": ["--test-samples", "3", "--noise", "weights"],
    "mfvi-odenet": ["--test-samples", "3", "--steps", "3"],
    "mfvi-hyperodenet": ["--test-samples", "3", "--steps", "3", "--drift", "1-4-1"],
    "vbll": ["--test-samples", "3"],
    "resnet32-laplace": ["--test-samples", "3"],
    "sde-bnn": ["--test-samples", "3", "--steps", "3", "--drift", "1-4-1"],
    "odenet": ["--hidden-method", "dopri5", "--rtol", "1e-2"],
}


def needs(model: str) -> None:
    """Skip the test if an extra that the model needs is not installed."""
    if model == "hmc":
        pytest.importorskip("pyro")
    if model == "resnet32-laplace":
        from psdenets.data.torchvision_import import import_torchvision

        import_torchvision()
        pytest.importorskip("laplace")


@pytest.fixture(scope="session")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that returns a finished run of a system; each system is trained only once."""
    from psdenets.train import main

    made: dict[str, Path] = {}

    def run(model: str) -> Path:
        if model not in made:
            needs(model)
            path = tmp_path_factory.mktemp("runs") / model
            own = HMC if model == "hmc" else ["--model", model, *OWN_FLAGS.get(model, [])]
            size = [*BRIEF, "--width", "4"] if model == "hmc" else BRIEF_DESCENT
            assert main([*own, *size, "--out", str(path)]) == 0
            made[model] = path
        return made[model]

    return run


@pytest.fixture(scope="session")
def small_resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a ResNet on the digits."""
    from psdenets.train import main

    path = tmp_path_factory.mktemp("runs") / "resnet"
    assert main(["--model", "resnet32", "--out", str(path), *BRIEF_DESCENT]) == 0
    return path


@pytest.fixture
def brief() -> list[str]:
    """Flags of a run that takes seconds, for any system."""
    return list(BRIEF)


@pytest.fixture
def brief_descent() -> list[str]:
    """Flags of a run that takes seconds, for a system trained by Adam."""
    return list(BRIEF_DESCENT)


@pytest.fixture
def small() -> list[str]:
    """Flags of a PSDE-BNN run that takes seconds."""
    return list(SMALL)
