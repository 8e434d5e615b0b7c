"""`--gradient adjoint` computes exact gradients; schemes for which it could not are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from psdenets import BadInput, Config, build, load, preset
from psdenets.data import load_splits
from psdenets.runs.directory import RunDir
from psdenets.runs.predictions import predict
from psdenets.seeds import generator
from psdenets.train import main


@pytest.mark.parametrize("method", ["euler", "midpoint", "rk4"])
def test_a_scheme_that_is_not_reversible_gives_a_one_line_error_and_exit_status_2(method, tmp_path, capsys):
    assert main(["--gradient", "adjoint", "--hidden-method", method, "--out", str(tmp_path / "r")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"expected --hidden-method reversible_heun with --gradient adjoint, got {method}" in err
    assert not (tmp_path / "r").exists()
    with pytest.raises(BadInput, match="cannot recompute its states backward"):
        Config(model="sde-bnn", gradient="adjoint", hidden_method=method)


@pytest.mark.parametrize(
    ("gradient", "method"), [("backprop", "euler-mean"), ("checkpoint", "euler-mean"), ("adjoint", "reversible_heun")]
)
def test_the_gradient_mode_selects_the_default_scheme(gradient, method):
    config = preset("digits-strided", gradient=gradient, width=4, drift="1-4-1")
    chosen = build(config)
    named = build(config.replace(hidden_method=method))
    x = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    (a, _), (b, _) = (model(x, torch.Generator().manual_seed(0)) for model in (chosen, named))
    assert torch.equal(a, b)
    other = "midpoint" if gradient != "adjoint" else "reversible_heun"
    assert config.replace(hidden_method=other).system.flow.method(gradient) == other


@pytest.mark.parametrize("steps", [6, 16])
def test_adjoint_gradient_of_w0_equals_backprop_for_large_weights(steps):
    """The weights are three times as large as by default. Reversing Euler steps would have an error of 20 % or more."""
    x, y = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(0)).double(), torch.arange(8)
    grads = []
    for gradient in ("adjoint", "backprop"):
        model = build(
            preset(
                "digits-strided",
                cut="full",
                gradient=gradient,
                hidden_method="reversible_heun",
                steps=steps,
                gain=3.0,
                width=8,
            )
        ).double()
        logits, _ = model(x, torch.Generator().manual_seed(1))
        loss = torch.nn.functional.cross_entropy(logits, y)
        grads.append(torch.autograd.grad(loss, model.deep_blocks[0].process.w0)[0])
    assert ((grads[0] - grads[1]).norm() / grads[1].norm()).item() < 1e-12


def test_a_run_trained_with_the_adjoint_predicts_the_same_after_loading(tmp_path, small):
    assert main(["--gradient", "adjoint", "--out", str(tmp_path / "r"), *small]) == 0
    model = load(tmp_path / "r")
    predictions = predict(model, load_splits(model.config).test, 2, generator(model.config.seed, "final"))
    with np.load(tmp_path / "r" / "predictions.npz") as archive:
        np.testing.assert_allclose(predictions.probs, archive["probs"], rtol=0, atol=1e-12)


def test_a_run_of_an_earlier_version_with_euler_and_the_adjoint_still_loads_and_resumes(small_run, tmp_path):
    run, same = (Path(shutil.copytree(small_run, tmp_path / name)) for name in ("r", "same"))
    values = {**json.loads((run / "config.json").read_text()), "hidden_method": "euler"}
    (same / "config.json").write_text(json.dumps(values))
    (run / "config.json").write_text(json.dumps({**values, "gradient": "adjoint"}))
    for path in (run, same):
        RunDir(path).record()
    x = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    a, b = (load(path).predict_proba(x, 2, torch.Generator().manual_seed(0)) for path in (run, same))
    assert torch.equal(a, b)
    for name in ("metrics.json", "model.safetensors"):  # as if it had been interrupted
        (run / name).unlink()
    assert main(["--resume", "--out", str(run)]) == 0
    assert load(run).config.system.process.gradient == "backprop"
