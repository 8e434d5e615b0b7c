"""Every command and example of the README runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from psdenets import evaluate, predict, train, verify
from psdenets.options.fields import flag
from psdenets.systems import SYSTEMS

README = (Path(__file__).parents[1] / "README.md").read_text()
COMMANDS = re.findall(r"^\$ python -m psdenets\.(\w+)(.*)$", README, re.MULTILINE)
MAINS = {"train": train.main, "evaluate": evaluate.main, "predict": predict.main, "verify": verify.main}
QUICK = {
    "width": 4, "drift": "1-4-1", "limit_train": 64, "limit_test": 40, "batch_size": 32, "epochs": 1, "test_samples": 1,
    "chains": 2, "warmup": 5, "draws": 8, "leapfrog": 3,
}  # fmt: skip


def quick(args):
    """Flags that make a run small: those that its model has and that are not in `args` already."""
    model = args[args.index("--model") + 1] if "--model" in args else "psde"
    known = {"limit_train", "limit_test", *SYSTEMS[model].takes({})}
    names = [name for name in QUICK if name in known and flag(name) not in args]
    return [text for name in names for text in (flag(name), str(QUICK[name]))]


def test_the_readme_has_commands():
    assert len(COMMANDS) >= 12
    assert {name for name, _ in COMMANDS} == set(MAINS)


def test_every_command_runs_with_a_small_network(tmp_path, monkeypatch, capsys):
    """In the README's order, because a command may need an earlier run. The deep test below trains in full."""
    monkeypatch.chdir(tmp_path)
    Image.new("L", (8, 8), 99).save("digit.png")
    for k in range(40):
        for folder in ("pets/cat", "pets/dog", "new-pictures"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (20 + k, 30), (5 * k, 100, 255 * (folder == "pets/cat"))).save(f"{folder}/{k}.png")
    for name, rest in COMMANDS:
        args = shlex.split(rest)
        small = (
            quick(args) if name == "train" and not {"--resume", "--list-presets", "--laplace-of"} & set(args) else []
        )
        assert MAINS[name]([*args, *small]) == 0, (name, rest, capsys.readouterr().err)


@pytest.mark.parametrize("code", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_the_python_examples_run(code, tmp_path):
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=os.environ)


@pytest.mark.deep
@pytest.mark.parametrize(
    "flags",
    ["vertical", "vertical --order sde-first", "horizontal", "both", "full", "none"],
)
def test_digits_reach_97_percent_and_an_ece_of_3_percent(flags, tmp_path):
    """Each takes about a minute of CPU time. The README's two minutes are not checked, because the machine may be busy."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "psdenets.train", "--cut", *flags.split(), "--out", str(out)]
    subprocess.run(command, check=True)
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["accuracy"] >= 0.97
    assert metrics["ece"] <= 0.03
