"""Sizes that cannot fit in memory are refused with an estimate, before anything is allocated."""

from __future__ import annotations

import re
import resource
from pathlib import Path

import pytest
import torch

from psdenets import BadInput, Config, build
from psdenets.data.spec import SPECS
from psdenets.evaluate import main as evaluate
from psdenets.models import sizes
from psdenets.models.sizes import require_network_fits, require_training_fits
from psdenets.registries import HIDDEN_DRIFTS
from psdenets.systems import SYSTEMS
from psdenets.train import main

TOO_LARGE = {
    "samples": ["--samples", "100000000"],
    "test samples": ["--test-samples", "100000000"],
    "steps": ["--steps", "1000000000"],
    "steps of an ODENet": ["--model", "odenet", "--steps", "1000000000"],
    "width": ["--preset", "digits-strided", "--width", "1000000000"],
    "width of a ResNet": ["--model", "resnet32", "--width", "1000000000"],
    "f_q": ["--drift", "1-1000000000-1"],
    "blocks": ["--blocks", "9" * 30],
    "samples of a mean-field network": ["--model", "mfvi", "--samples", "10000000000"],
}


@pytest.fixture(autouse=True)
def small_machine(monkeypatch):
    """A machine of 16 GB, of which a test can take 2 GB more than it has: an estimate that fails does not fill memory."""
    monkeypatch.setattr(sizes, "memory_of_machine", lambda: 16 * 10**9)
    before = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 2 * 10**9, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_size_that_cannot_fit_is_refused_with_an_estimate(name, tmp_path, capsys):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert main(["--out", str(tmp_path / "run"), *TOO_LARGE[name]]) == 2
    error = capsys.readouterr().err
    assert re.search(r"would take at least \S+ [GTP]B of memory, and this machine has 16.0 GB\n$", error)
    assert error.count("\n") == 1
    assert not (tmp_path / "run").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_more_threads_than_a_machine_can_have_are_refused(capsys):
    assert main(["--threads", "100000"]) == 2
    assert "expected --threads from 1 to 1024, got 100000" in capsys.readouterr().err


def test_too_many_weight_samples_are_refused_in_evaluation_and_prediction(small_run, tmp_path, capsys):
    assert evaluate([str(small_run), "--samples", "100000000", "--out", str(tmp_path / "out")]) == 2
    assert "the predictions of 100,000,000 weight samples for 40 images would take at least" in capsys.readouterr().err
    model = build(Config(width=2, steps=2, drift="1-2-1"))
    with pytest.raises(BadInput, match="samples to be a whole number from 1 to 1,000,000"):
        model.predict_proba(torch.zeros(1, 1, 8, 8), samples=100_000_000)


@pytest.mark.parametrize("options", [{}, {"width": 256, "steps": 200}, {"samples": 64, "test_samples": 1000}])
def test_sizes_that_fit_are_accepted(options):
    config = Config(**options)
    assert require_network_fits(config, SPECS["digits"]) is None
    assert require_training_fits(config, SPECS["digits"], 360) is None


@pytest.mark.parametrize("block", HIDDEN_DRIFTS)
def test_the_estimate_of_the_weights_is_a_lower_bound(block):
    config = Config(width=16, drift="1-2-1", block=block, dataset="mnist", blocks="1", squeeze_input=1)
    real = sum(p.numel() for p in build(config).parameters())
    assert sizes._weights_of_a_block(config, SPECS["mnist"]) <= real


@pytest.mark.parametrize("model", [name for name in SYSTEMS if name not in ("psde", "sde-bnn")])
def test_the_estimate_is_a_lower_bound_for_other_systems(model):
    config = Config(model=model)
    numbers = sum(p.numel() for p in build(config).state_dict().values())
    assert sizes._weights_of_a_block(config, SPECS["digits"]) <= numbers
