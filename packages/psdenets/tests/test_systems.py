"""A system is a value in one registry; no other code compares the name of a system."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch
from torch import nn

import psdenets
from psdenets import Config, load
from psdenets.models.point import PointEstimate
from psdenets.options.fields import part
from psdenets.options.training import TrainingOptions
from psdenets.references import Reference, resolve
from psdenets.systems import SYSTEMS, NetworkOptions, System
from psdenets.train import main

SOURCE = Path(psdenets.__file__).parent


def test_no_file_compares_the_name_of_a_system():
    asking = re.compile(r"\bmodel\b\s*(==|!=|(not )?in\b)\s*[(\"'A-Z]|\bmodel\.startswith")
    found = [
        f"{path.name}: {line.strip()}"
        for path in SOURCE.rglob("*.py")
        if path.name != "systems.py"
        for line in path.read_text().splitlines()
        if asking.search(line) and "self.model not in SYSTEMS" not in line
    ]
    assert found == []


@pytest.mark.parametrize("system", SYSTEMS.values(), ids=SYSTEMS)
def test_the_references_of_a_system_can_be_resolved(system):
    assert callable(resolve(system.build.text))
    assert callable(resolve(system.fit.text))
    assert system.summary


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_options_of_a_system_are_a_dataclass_of_its_own(name):
    options = Config(model=name).system
    assert dataclasses.is_dataclass(options)
    assert all(type(options) is not type(Config(model=other).system) for other in SYSTEMS if other != name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.net = None
    groups = [field.name for field in dataclasses.fields(options)]
    assert set(options.flat()) == set(SYSTEMS[name].takes({}))
    assert all(getattr(options, group) is not None for group in groups)


class LinearOptions(NetworkOptions):
    training: TrainingOptions = part(TrainingOptions, only=("epochs", "batch_size", "lr"))


def linear(config, spec):
    pixels = spec.channels * spec.height * spec.width
    generator = torch.Generator().manual_seed(config.seed)
    net = nn.Sequential(nn.Flatten(), nn.Linear(pixels, len(spec.classes)))
    with torch.no_grad():
        net[1].weight.copy_(torch.randn(net[1].weight.shape, generator=generator) / pixels)
    return PointEstimate(config, spec, net)


def test_a_new_baseline_needs_one_value_in_the_registry(monkeypatch, tmp_path, capsys):
    """This file defines all of it: options, network, and an entry in the registry."""
    build, fit = Reference(f"{__name__}:linear"), Reference("psdenets.training.session:descend")
    system = System("linear", "a linear classifier", build, fit, LinearOptions, {"epochs": 2, "lr": 0.05})
    monkeypatch.setitem(SYSTEMS, "linear", system)
    out = tmp_path / "run"
    assert main(["--model", "linear", "--limit-test", "40", "--out", str(out)]) == 0
    model = load(out)
    assert model.config == Config(model="linear", limit_test=40, out=str(out))
    assert model.parameter_counts() == {"weights": 650}
    assert main(["--model", "linear", "--sigma", "1"]) == 2
    assert "expected --sigma with --model psde or sde-bnn only, got it with --model linear" in capsys.readouterr().err
