"""Features of frozen encoders: those of a run, any module, the cache, and a head trained on them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import psdenets
from psdenets import BadInput, encoder_of, features, fit
from psdenets.data import load_splits
from psdenets.data.images import to_unit
from psdenets.runs.features import Encoder

TINY = {"epochs": 1, "limit_train": 64, "limit_test": 20, "batch_size": 32, "progress": "none"}


@pytest.mark.parametrize("options", [{"model": "resnet32", "width": 4}, {"cut": "none"}, {"cut": "full"}], ids=str)
def test_the_last_layer_of_a_run_applied_to_its_features_gives_its_logits(options, tmp_path):
    run = fit(None, out=str(tmp_path / "a"), **TINY, **options)
    encoder, images = encoder_of(tmp_path / "a"), load_splits(run.config).test
    found = torch.from_numpy(features(encoder, images.pixels))
    head = run.model.net.head if options.get("model") == "resnet32" else run.model.head
    weights = run.model.mean_weights()
    expected = run.model.logits(to_unit(images.pixels), weights)[0]
    torch.testing.assert_close(found @ head.weight.T + head.bias, expected, rtol=1e-5, atol=1e-5)  # batches of 20


class Counting(nn.Module):
    """Mean and maximum of an image; counts its calls."""

    def __init__(self, factor=1.0):
        super().__init__()
        self.register_buffer("factor", torch.tensor(factor))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.factor * torch.stack([x.mean((1, 2, 3)), x.amax((1, 2, 3))], dim=1)


def images(n=10, seed=0):
    return np.random.default_rng(seed).integers(256, size=(n, 6, 6), dtype=np.uint8)


def test_features_are_computed_once_for_the_same_encoder_and_images(tmp_path):
    encoder, cache = Counting().eval(), tmp_path / "a.npz"
    first = features(encoder, images(), cache=cache, batch_size=4)
    assert encoder.calls == 3
    np.testing.assert_allclose(first[:, 1], images().max((1, 2)) / 255, rtol=1e-6)
    np.testing.assert_array_equal(features(encoder, images(), cache=cache), first)
    assert encoder.calls == 3
    features(encoder, images(seed=1), cache=cache)
    assert encoder.calls == 4
    other = Counting(2.0).eval()
    np.testing.assert_allclose(features(other, images(), cache=cache), 2 * first, rtol=1e-6)
    assert other.calls == 1


def test_an_encoder_with_gradients_or_in_training_mode_is_refused_and_the_cache_stays(tmp_path):
    features(Counting().eval(), images(), cache=tmp_path / "a.npz")
    before = (tmp_path / "a.npz").read_bytes()
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    for wrong in (encoder.train(), encoder.eval()):
        with pytest.raises(BadInput, match="expected a frozen encoder"):
            features(wrong, images(), cache=tmp_path / "a.npz")
    assert (tmp_path / "a.npz").read_bytes() == before
    assert features(encoder.eval().requires_grad_(False), images()).shape == (10, 2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_images_get_the_dtype_of_the_encoder(dtype):
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(4, 2, bias=False)).to(dtype).eval().requires_grad_(False)
    with torch.no_grad():
        encoder[1].weight.copy_(torch.eye(4)[:2])
    found = psdenets.features(encoder, np.full((3, 2, 2), 255, np.uint8))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.ones((3, 2)))


def test_features_that_are_not_finite_are_refused():
    with pytest.raises(BadInput, match="expected finite features"):
        features(Counting(float("inf")).eval(), images())


def test_an_ensemble_has_no_single_encoder(tmp_path):
    model = psdenets.build(psdenets.Config(model="ensemble", members=2, width=2))
    with pytest.raises(BadInput, match="expected a network of one set of weights, got --model ensemble"):
        Encoder(model)


def test_a_partially_stochastic_head_trains_on_features(tmp_path):
    g = np.random.default_rng(0)
    y = g.integers(2, size=120)
    x = np.where(y[:, None, None] == 1, images(120) // 2, 128 + images(120) // 2).astype(np.uint8)
    table = features(Counting().eval(), x)
    run = fit(None, data=(table, y), cut="full", epochs=15, lr=0.03, batch_size=20, width=8, steps=2,
              out=str(tmp_path / "a"), progress="none")  # fmt: skip
    assert run.metrics["accuracy"] > 0.9
