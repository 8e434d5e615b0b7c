"""`--compile` changes speed and nothing else."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest
import torch

from psdenets import BadInput, build, preset
from psdenets.nn.activations import ACTIVATIONS
from psdenets.nn.fast import compiled
from psdenets.nn.fast.switch import enabled
from psdenets.train import main

strided = partial(preset, "digits-strided")  # the network of the paper, at the size of the digits

fast_only = pytest.mark.skipif(not enabled(), reason="--compile has no effect on plain layers")
t64 = {"dtype": torch.float64}


def pair(dtype):
    g = torch.Generator().manual_seed(0)
    x = 4 * torch.randn(3, 2, 4, 4, generator=g, dtype=dtype)
    m = torch.randn(2, 4, 4, generator=g, dtype=dtype)
    return x.contiguous(memory_format=torch.channels_last).requires_grad_(), m.requires_grad_()


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
@pytest.mark.parametrize("name", compiled.KERNELS)
def test_values_and_derivatives_of_kernels_match_the_activations(name, dtype, atol):
    """Tests the kernels before compilation; their formulas differ from those of the plain activations."""
    x, m = pair(dtype)
    plain = ACTIVATIONS[name](x + m)
    y, slope = compiled.KERNELS[name](x, m)
    torch.testing.assert_close(y, plain, rtol=0, atol=atol)
    torch.testing.assert_close(slope, torch.autograd.grad(plain.sum(), x)[0], rtol=0, atol=atol)


@fast_only
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
def test_second_derivatives_raise_an_error_instead_of_being_wrong(monkeypatch):
    monkeypatch.setattr(compiled, "_compiled", lambda kernel: kernel)
    x, m = pair(torch.float64)
    (first,) = torch.autograd.grad(compiled.compiled_add_map("softplus")(x, m).sum(), x)
    torch.testing.assert_close(first, torch.sigmoid(x + m), rtol=0, atol=1e-12)
    with pytest.raises(RuntimeError, match="--compile supports first derivatives only"):
        torch.autograd.grad(compiled.compiled_add_map("softplus")(x, m).sum(), x, create_graph=True)


def test_the_polynomial_approximates_log1p_with_an_error_below_1e_8():
    e = np.linspace(1e-9, 1, 10_001)
    values = e * np.polynomial.Polynomial(compiled.LOGARITHM)(e)
    assert np.abs(values - np.log1p(e)).max() < 1e-8


@fast_only
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by torch's compiler about other parts of torch
def test_a_compiled_network_agrees_with_the_plain_one():
    """Logits and gradients agree to 1e-12 in float64, and the parameters have the same names."""
    config = strided(width=4, steps=4, drift="1-4-1", activation="softplus")
    plain, fast = (build(config.replace(compile=c)).double() for c in (False, True))
    assert list(plain.state_dict()) == list(fast.state_dict())
    x = torch.rand(3, 1, 8, 8, generator=torch.Generator().manual_seed(0), **t64)
    results = []
    for model in (plain, fast):
        logits, kl = model(x, torch.Generator().manual_seed(2))
        (logits.square().mean() + 1e-3 * kl).backward()
        results.append((logits.detach(), model.deep_blocks[0].process.w0.grad))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert results[0][1].abs().max() > 1e-3


@fast_only
def test_compiling_without_a_compiler_gives_a_one_line_error(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BadInput, match="expected a C\\+\\+ compiler for --compile, but no-such-compiler was not found"):
        build(strided(compile=True))
    assert main(["--preset", "digits-strided", "--compile", "--out", str(tmp_path / "run")]) == 2
    assert "no-such-compiler" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
