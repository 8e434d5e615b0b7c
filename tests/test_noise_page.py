"""docs/noise_sweeps.py measures sweeps on validation images and writes NOISE.md."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from psdenets import Config, build
from psdenets.data import Images
from psdenets.presets import preset

DOCS = Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS))  # as `python docs/noise_sweeps.py` does

import noise_sweeps as noise  # noqa: E402
from measured.sweeps import SWEEPS  # noqa: E402

CASES = [case for sweep in SWEEPS.values() for case in sweep.cases]
ROW = {
    "accuracy": 0.99, "ece": 0.01, "nll": 0.02, "nll_one_sample": 0.03, "nll_no_noise": 0.025, "epistemic_share": 0.06,
    "ood_share": 0.11, "ood_auroc": 0.97,
}  # fmt: skip


def entry(case, **changes):
    return {
        "sweep": case.sweep, "label": case.label, "commit": "abc1234", "cpu": "A CPU", "seconds": 60.0, "config": {},
        "width": 0.98, "factors": {"1": {**ROW, **changes}},
    }  # fmt: skip


def images(model, n=8):
    shape = (n, model.spec.channels, model.spec.height, model.spec.width)
    pixels = torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return Images(pixels, torch.arange(n) % 10)


def test_a_row_of_the_page_has_the_metrics_of_its_case():
    case = SWEEPS["price"].cases[1]
    (line,) = [line for line in noise.page({case.name: entry(case)}).splitlines() if line.startswith(f"| {case.label}")]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:] == ["1", "99.00%", "1.00%", "0.0200", "0.0300", "0.0250", "6.0% / 11.0%", "0.9700", "0.980"]


def test_a_sweep_names_the_cases_that_are_missing_and_draws_no_conclusion_before():
    name, sweep = next(iter(SWEEPS.items()))
    told = sweep._replace(finding="told.")
    partly = "\n".join(noise.section(name, told, {sweep.cases[0].label: entry(sweep.cases[0])}))
    assert f"Not measured: {sweep.cases[1].label}" in partly
    assert "told." not in partly
    assert "Finding: told." in "\n".join(noise.section(name, told, {case.label: entry(case) for case in sweep.cases}))


def test_every_case_is_a_valid_config_with_a_name_of_its_own():
    for case in CASES:
        assert isinstance(preset(case.preset, **case.options), Config)
        assert case.preset.startswith(("mnist", "cifar10"))
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(set(case.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-./") for case in CASES)


def test_more_sigma_makes_weight_samples_differ_more():
    model = build("digits-cpu-sde-bnn").eval()
    some = images(model)
    quiet, loud = (noise.at_factor(model, factor, some, some) for factor in (0.1, 1.0))
    assert 0 < quiet["epistemic_share"] < loud["epistemic_share"]
    assert 0 < quiet["ood_share"] < loud["ood_share"]
    assert quiet["nll_no_noise"] == pytest.approx(loud["nll_no_noise"], abs=1e-6)  # the mean path does not depend on it
    assert loud["ood_auroc"] == pytest.approx(0.5)  # the same images on both sides


def test_an_untrained_posterior_is_as_wide_as_the_prior_and_a_network_without_noise_has_no_width():
    assert noise.width(build("digits-cpu-sde-bnn")) == pytest.approx(1, abs=1e-5)
    assert noise.width(build("digits-cpu-none")) is None


def test_an_unknown_sweep_is_bad_input(tmp_path, capsys):
    assert noise.main(["--train", "prise"], tmp_path) == 2
    assert "did you mean price?" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_page_in_docs_is_that_of_the_recorded_cases():
    assert (DOCS / "NOISE.md").read_text() == noise.page(noise.read(DOCS / "noise.json"))
