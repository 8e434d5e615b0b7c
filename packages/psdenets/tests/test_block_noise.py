"""The noise of different blocks, samples and calls is independent."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch

from psdenets import build, preset

strided = partial(preset, "digits-strided")  # the network of the paper, at the size of the digits


def noise_of(model, samples, generator):
    """dB of every block, (samples, steps, d) each: (dw - f_q dt) / sigma on a fully stochastic network."""
    weights = model.draw(samples, generator)
    noises = []
    with torch.no_grad():
        for block, path in zip(model.deep_blocks, weights.paths, strict=True):
            dt = path.ts.diff()[:, None]
            f = torch.stack(
                [block.process.drift(t, w) for t, w in zip(path.ts[:-1], path.w.unbind(1), strict=False)], 1
            )
            noises.append((path.w.diff(dim=1) - f * dt) / model.config.system.process.sigma / dt.sqrt())
    return noises


def correlation(a, b):
    """Correlation of the first numbers of two streams, and how many pairs were used."""
    n = min(a[0].numel(), b[0].numel())
    a, b = (x.flatten(1)[:, :n].flatten().double() for x in (a, b))
    return torch.corrcoef(torch.stack([a, b]))[0, 1].item(), len(a)


@pytest.fixture
def model():
    return build(strided(cut="full", blocks="2-1", width=4, steps=4, drift="1-4-1", head="meanfield"))


def test_noise_of_different_blocks_is_independent(model):
    noises = noise_of(model, 3, torch.Generator().manual_seed(0))
    assert noises[0].shape == noises[1].shape != noises[2].shape
    for a, b in itertools.combinations(noises, 2):
        r, n = correlation(a, b)
        assert n > 5000
        assert abs(r) < 5 / n**0.5  # n independent pairs of normals: fails by chance once in 1,700,000 times
    assert not (noises[0] == noises[1]).any()
    for noise in noises:
        # checks the formula for dB: the variance is 1 within 5 standard errors
        assert noise.var().item() == pytest.approx(1, abs=5 * (2 / noise.numel()) ** 0.5)


def test_noise_of_different_samples_and_calls_is_independent(model):
    generator = torch.Generator().manual_seed(0)
    first, second = noise_of(model, 2, generator), noise_of(model, 2, generator)
    for a, b in zip(first, second, strict=True):
        for x, y in ((a[:1], a[1:]), (a, b)):
            r, n = correlation(x, y)
            assert abs(r) < 5 / n**0.5


def test_blocks_of_the_same_shape_start_with_different_weights(model):
    w0, w1 = (block.process.w0 for block in model.deep_blocks[:2])
    r, n = correlation(w0[None], w1[None])
    assert abs(r) < 5 / n**0.5
    assert not torch.equal(w0, w1)


def test_noise_of_the_head_is_independent_of_the_noise_of_the_blocks(model):
    weights = model.draw(2, torch.Generator().manual_seed(0))
    head = (weights.head.weight - model.head.weight) / model.head.weight_log_std.exp()
    for noise in noise_of(model, 2, torch.Generator().manual_seed(0)):
        r, n = correlation(head.detach(), noise)
        assert abs(r) < 5 / n**0.5
