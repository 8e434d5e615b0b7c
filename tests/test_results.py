"""docs/results.py tabulates the run directories and lists the runs that are missing."""

from __future__ import annotations

import importlib.util
import json
import shlex
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from psdenets.evaluate import main as evaluate
from psdenets.runs.weights import FORMAT
from psdenets.train import main as train

SCRIPT = Path(__file__).parents[1] / "docs" / "results.py"
QUICK = "--cut none --width 4 --drift 1-4-1 --epochs 1 --limit-train 64 --limit-test 40 --batch-size 32 --test-samples 1 --threads 1"


def load():
    spec = importlib.util.spec_from_file_location("results", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row_of(name, runs):
    (row,) = [line for line in load().page(runs).splitlines() if line.startswith(f"| `{name}`")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_row_shows_the_metrics_of_its_run_and_its_verdict(tmp_path):
    run = tmp_path / "digits-none"
    assert train([*shlex.split(QUICK), "--out", str(run)]) == 0
    assert evaluate([str(run), "--ood", "noise", "--out", str(run / "ood-noise")]) == 0
    metrics = json.loads((run / "metrics.json").read_text())
    auroc = json.loads((run / "ood-noise" / "metrics.json").read_text())["metrics"]["ood"]["auroc"]
    cells = row_of("digits-none", tmp_path)
    assert cells[1:3] == [f"{metrics['accuracy']:.2%}", f"{metrics['ece']:.2%}"]
    assert f"{auroc:.4f}" in cells
    assert cells[-1] == "**no**"  # one epoch of 64 images is not enough for 97 %
    (run / "metrics.json").write_text(json.dumps({**metrics, "accuracy": 0.99, "ece": 0.01, "seconds": 5.0}))
    assert row_of("digits-none", tmp_path)[-1] == "yes"


@pytest.mark.parametrize(("mark", "warned"), [({"psdenets-format": str(FORMAT)}, False), (None, True)])
def test_the_page_warns_about_runs_of_an_earlier_format(tmp_path, mark, warned):
    save_file({"w": torch.zeros(1)}, tmp_path / "model.safetensors", mark)
    assert ("Format of the runs: 1. psdenets now writes" in load().page(tmp_path)) is warned


def test_the_page_in_the_repository_has_the_generated_introduction():
    assert load().INTRODUCTION in (SCRIPT.parent / "RESULTS.md").read_text()


def test_missing_runs_are_listed_with_their_commands(tmp_path):
    page = load().page(tmp_path)
    for name in load().RUNS.values():
        assert name.command in page
    assert "| `" not in page


def test_every_row_has_a_valid_command():
    from psdenets import cli

    for run in load().RUNS.values():
        arguments = shlex.split(run.command)[3:]
        assert cli.configure(cli.parse(arguments)).training.epochs >= 1


def test_a_system_gets_a_row_once_all_its_seeds_have_run(tmp_path):
    results = load()
    flags = "--model resnet32 --width 4 --epochs 1 --limit-train 64 --limit-test 40 --batch-size 32 --threads 1"
    values = []
    for seed in results.SEEDS:
        assert results.systems_section(tmp_path) == []
        run = tmp_path / f"systems-resnet32-seed{seed}"
        assert train([*shlex.split(flags), "--seed", str(seed), "--out", str(run)]) == 0
        assert evaluate([str(run), "--ood", "noise", "--out", str(run / "ood-kmnist")]) == 0
        values.append(json.loads((run / "metrics.json").read_text())["nll"])
    cells = row_of("resnet32", tmp_path)
    mean = sum(values) / 3
    deviation = (sum((v - mean) ** 2 for v in values) / 2) ** 0.5
    assert cells[3] == f"{mean:.4f} ± {deviation:.4f}"
    assert "`python -m psdenets.train --model resnet32 --seed K`" in cells


def test_every_system_has_a_valid_command(tmp_path):
    from psdenets import cli

    (tmp_path / "metrics.json").write_text('{"seconds": 3.0}')
    for run in load().systems().values():
        arguments = shlex.split(run.flags.format(runs="RUNS"))
        arguments = [str(tmp_path) if "RUNS" in argument else argument for argument in arguments]
        config = cli.configure(cli.parse(arguments))
        assert config.dataset == "digits"
