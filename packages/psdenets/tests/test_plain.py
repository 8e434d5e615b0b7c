"""PSDENETS_PLAIN=1 replaces every fast layer with PyTorch's own operations; results agree up to rounding."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from psdenets import build, preset
from psdenets.nn.fast.switch import enabled
from psdenets.training.allocator import keep_freed_memory

strided = partial(preset, "digits-strided")  # the network of the paper, at the size of the digits

HERE = Path(__file__).parent
CORE = ["test_layers.py", "test_blocks.py", "test_add_map.py", "test_networks.py", "test_models.py", "test_plain.py"]
CONFIGS = [
    strided(
        width=4, steps=3, drift="1-4-1", activation="softplus", squeeze_input=0, augment_channels=0
    ),  # one channel: thin and wide
    strided(width=6, steps=3, drift="1-4-1", activation="swish", blocks="1-1", cut="full"),
    strided(width=5, steps=2, drift="1-4-1", block="3-1-3", activation="rbf", squeeze_input=0, augment_channels=0),
]


def fast_functions(y):
    """Names of the functions of `psdenets.nn.fast` in the graph of y."""
    found, seen, nodes = set(), set(), [y.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        function = getattr(type(node), "_forward_cls", None)
        if function is not None and function.__module__.startswith("psdenets.nn.fast"):
            found.add(function.__name__)
        nodes += [before for before, _ in node.next_functions]
    return found


def logits_and_gradients(config):
    model = build(config).double()
    g = torch.Generator().manual_seed(0)
    x = torch.rand(3, 1, 8, 8, generator=g, dtype=torch.float64)
    with torch.no_grad():  # a drift whose last layer is zero would hide errors
        for p in model.parameters():
            p += 0.05 * torch.randn(p.shape, generator=g, dtype=p.dtype)
    logits, kl = model(x, torch.Generator().manual_seed(1))
    (logits.sin().sum() + 1e-3 * kl).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return logits.detach(), gradients, fast_functions(logits)


@pytest.mark.skipif(not enabled(), reason="fast layers are switched off")
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.system.flow.block}-{c.system.flow.activation}")
def test_plain_and_fast_networks_agree_up_to_rounding(config, request):
    logits, gradients, _ = logits_and_gradients(config)
    request.getfixturevalue("plain")
    plain_logits, plain_gradients, functions = logits_and_gradients(config)
    assert functions == set()
    torch.testing.assert_close(logits, plain_logits, rtol=0, atol=1e-11)  # sums of a few hundred terms in another order
    assert gradients.keys() == plain_gradients.keys()
    for name, gradient in gradients.items():
        scale = max(1.0, plain_gradients[name].abs().max().item())
        torch.testing.assert_close(gradient / scale, plain_gradients[name] / scale, rtol=0, atol=1e-11)


@pytest.mark.skipif(not enabled(), reason="fast layers are switched off")
def test_fast_functions_are_used_by_default():
    _, _, functions = logits_and_gradients(CONFIGS[0])
    assert functions == {"_Add", "_Softplus", "_ToThin", "_ToWide", "_ChannelsLastGradient"}


@pytest.mark.usefixtures("plain")
def test_plain_networks_compile_nothing_and_need_no_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    logits, _, functions = logits_and_gradients(CONFIGS[0].replace(compile=True))
    assert functions == set()
    assert torch.equal(logits, logits_and_gradients(CONFIGS[0])[0])


@pytest.mark.usefixtures("plain")
def test_plain_training_does_not_change_the_allocator():
    assert not keep_freed_memory()


@pytest.mark.parametrize(("value", "expected"), [("1", "False"), ("0", "True"), ("", "True")])
def test_the_environment_variable_switches_fast_layers_off(value, expected):
    script = "from psdenets.nn.fast.switch import enabled; print(enabled())"
    env = {**os.environ, "PSDENETS_PLAIN": value}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


@pytest.mark.skipif(not enabled(), reason="this run already has plain layers")
def test_the_core_of_the_suite_passes_with_plain_layers():
    env = {**os.environ, "PSDENETS_PLAIN": "1"}
    words = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not deep", "-p", "no:cacheprovider", "-p", "no:xdist"]
    done = subprocess.run([*words, *(str(HERE / name) for name in CORE)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
