"""The examples of the top-level README run, and its links resolve."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
QUICK = "--epochs 1 --limit-train 64 --limit-test 40 --test-samples 1"


def test_there_is_an_example_for_each_package():
    for package in ("sdeweights", "psdenets", "bnneval"):
        assert any(f"from {package} import" in example for example in EXAMPLES)
    assert any("python -m theory" in command for command in COMMANDS)


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_python_example_runs(example):
    subprocess.run([sys.executable, "-c", example], check=True)


def test_the_commands_run_in_order(tmp_path):
    """Training is shortened here; `nox -s pictures` runs it in full."""
    assert len(COMMANDS) >= 3
    for command in COMMANDS:
        prompt, python, *arguments = shlex.split(command)
        assert (prompt, python) == ("$", "python")
        quick = shlex.split(QUICK) if "psdenets.train" in arguments else []
        subprocess.run([sys.executable, *arguments, *quick], check=True, cwd=tmp_path)


def test_the_readme_shows_the_command_that_ci_runs():
    (block,) = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    _, train, test = block.splitlines()
    assert train.endswith("python -m psdenets.train --cut vertical")
    assert test == "pip install nox && nox -s tests"
    assert "nox -s tests" in (ROOT / ".ci" / "run").read_text()


def test_every_link_within_the_repository_resolves():
    targets = [t for t in re.findall(r"\]\(([^)]+)\)", README) if "://" not in t]
    assert len(targets) >= 10
    missing = [t for t in targets if not (ROOT / t.partition("#")[0]).exists()]
    assert not missing
    for target in targets:
        file, _, anchor = target.partition("#")
        if anchor:
            page = ROOT / file
            text = (page / "README.md" if page.is_dir() else page).read_text()
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, target
