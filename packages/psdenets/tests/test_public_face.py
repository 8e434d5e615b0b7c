"""`import psdenets`, `python -m psdenets` and the console scripts."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import psdenets
from psdenets import Config, build
from psdenets.__main__ import COMMANDS, main

PACKAGES = Path(__file__).parents[2]


def test_dir_shows_the_public_names_and_each_exists():
    assert set(dir(psdenets)) == {*psdenets.__all__, "__version__"}
    assert all(hasattr(psdenets, name) for name in dir(psdenets))


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_without_a_command_all_commands_are_listed(argv, capsys):
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(any(line.split()[:1] == [name] for line in lines) for name in COMMANDS)


def test_an_unknown_command_gives_a_one_line_error_with_a_suggestion(capsys):
    assert main(["evalute", "runs/a"]) == 2
    error = capsys.readouterr().err
    assert "did you mean evaluate?" in error
    assert error.count("\n") == 1
    assert main(["zzz"]) == 2
    assert "did you mean" not in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_arguments_are_passed_to_the_command(name, capsys):
    try:
        status = main([name, "--help"])
    except SystemExit as end:  # as argparse does
        status = end.code
    assert status == 0
    assert f"psdenets.{name}" in capsys.readouterr().out
    assert main([name, "--no-such-flag"]) == 2
    assert capsys.readouterr().err.startswith(f"psdenets.{name}: error: ")


def test_help_does_not_import_torch():
    code = "import sys, psdenets.__main__ as m; m.main(['--help']); dir(sys.modules['psdenets']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("package", ["psdenets", "bnneval"])
def test_the_console_script_refers_to_a_function(package):
    project = tomllib.loads((PACKAGES / package / "pyproject.toml").read_text())["project"]
    module, name = project["scripts"][package].split(":")
    assert callable(getattr(import_module(module), name))


def test_repr_of_a_model_shows_images_classes_channels_cut_and_sigma():
    shown = repr(build(Config(dataset="cifar10", width=2, steps=2, drift="1-2-1")))
    assert "psde, images 3 x 32 x 32, 10 classes" in shown
    assert "TimedConv(2, 2, k=3, stride=2)" in shown
    assert "channels=16, steps=2" in shown
    assert "cut=Cut(t1=0.9, t2=1.0" in shown
    assert "sigma=0.05" in shown
    assert re.search(r"DeterministicHead\(\d+, 10\)", shown)
