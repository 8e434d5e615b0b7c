"""`--tune-sigma`: the factor of sigma that predicts best, or the largest one that is as good."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from psdenets import Config, build, load
from psdenets.data import load_splits
from psdenets.runs.checksums import Folder
from psdenets.runs.predictions import predict
from psdenets.runs.weights import load_weights, save_weights
from psdenets.seeds import generator
from psdenets.train import main
from psdenets.training.tune_sigma import search, tune_sigma


def bowl(lowest, curvature=0.01, error=0.0):
    """NLLs that are lowest at a power of the step; with the standard error `error` of a difference by one power."""
    spread = np.array([-1.0, 1.0] * 20) * error * math.sqrt(39)
    return lambda power: curvature * (power - lowest) ** 2 + spread * power


@given(st.integers(-6, 6))
def test_best_finds_the_lowest_nll_on_either_side(lowest):
    assert search(bowl(lowest), "best").factor == pytest.approx(1.25**lowest)


@given(st.integers(-5, 5), st.floats(0, 0.05))
def test_widest_is_the_largest_factor_that_is_not_significantly_worse_than_the_best(lowest, error):
    found = search(bowl(lowest, error=error), "widest")
    power = round(math.log(found.factor, 1.25))
    assert power >= lowest
    tried = {round(math.log(factor, 1.25)) for factor in found.nll}
    # the nll exceeds the lowest by 0.01 k^2, k powers away, and the standard error there is k * error
    as_good = [k for k in tried if 0.01 * (k - lowest) ** 2 <= 1.645 * abs(k - lowest) * error + 1e-12]
    assert power == max(as_good)


def test_factors_with_infinite_nll_are_not_chosen():
    def nlls(power):
        return np.full(40, math.inf) if power > 0 else bowl(3)(power)

    assert search(nlls, "best").factor == 1
    assert search(nlls, "widest").factor == 1


@pytest.mark.parametrize("flags", [("--cut", "full"), ("--cut", "horizontal"), ("--cut", "vertical")])
def test_the_factor_is_saved_with_the_weights_and_used_by_every_prediction(flags, tmp_path, small, capsys):
    out = tmp_path / "r"
    assert main(["--out", str(out), *small, *flags, "--sigma", "0.4", "--tune-sigma", "widest"]) == 0
    factor = json.loads((out / "metrics.json").read_text())["sigma_factor"]
    assert f"sigma times {factor:.3g}" in capsys.readouterr().out
    model = load(out)
    assert float(model.sigma_factor) == pytest.approx(factor)
    for block in model.deep_blocks:
        assert block.process.prior.constant_sigma == pytest.approx(0.4 * factor)
    test = load_splits(model.config).test
    again = predict(model, test, 2, generator(model.config.seed, "final"))
    with np.load(out / "predictions.npz") as saved:
        np.testing.assert_array_equal(saved["probs"], again.probs)


def test_the_noise_of_the_weights_is_multiplied_by_the_factor_and_the_drift_is_not():
    config = Config(cut="full", steps=8, width=4, sigma=0.2)
    model = build(config).eval()
    before, mean = (draw(model) for draw in (drawn, without_noise))
    model.set_sigma(3.0)
    after, unchanged = (draw(model) for draw in (drawn, without_noise))
    torch.testing.assert_close(unchanged, mean, rtol=0, atol=0)
    torch.testing.assert_close(after - mean, 3 * (before - mean), rtol=1e-4, atol=1e-6)


def drawn(model):
    return model.draw(2, torch.Generator().manual_seed(0)).paths[0].w


def without_noise(model):
    return model.mean_weights().paths[0].w


def test_the_factor_is_chosen_on_the_images_given():
    config = Config(cut="full", steps=3, width=4, sigma=0.5, limit_train=64, test_samples=3)
    splits = load_splits(config)
    model = build(config, splits.spec).eval()
    found = tune_sigma(model, splits.val.first(30), "best")
    assert found.factor in found.nll
    assert found.nll[found.factor] == min(found.nll.values())
    model.set_sigma(found.factor)
    nll = predict(model, splits.val.first(30), 3, generator(config.seed, "tune sigma")).metrics()["nll"]
    assert nll == pytest.approx(found.nll[found.factor])


def test_weights_saved_before_there_was_a_factor_load_with_factor_1(small_run, tmp_path):
    for name in ("config.json", "data.json"):
        (tmp_path / name).write_bytes((small_run / name).read_bytes())
    weights = load_weights(small_run / "model.safetensors")
    assert float(weights.pop("sigma_factor")) == 1
    save_weights(weights, tmp_path / "model.safetensors")
    Folder(tmp_path).record(["config.json", "data.json", "model.safetensors"])
    model = load(tmp_path)
    assert float(model.sigma_factor) == 1
    assert model.deep_blocks[0].process.prior.constant_sigma == pytest.approx(model.config.system.process.sigma)
