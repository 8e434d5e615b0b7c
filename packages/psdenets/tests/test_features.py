"""Learned stems and transitions, normalisation of weight samples, bfloat16, and noise scaled to each layer."""

from __future__ import annotations

import json
import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from psdenets import BadInput, Config, ImageSpec, build, load, preset
from psdenets.data import load_splits
from psdenets.models.priors import layer_scales, window_effect
from psdenets.nn.features import Enter, Norms, SampleNorm, Whitening, pooled
from psdenets.nn.hidden_drifts import hidden_drift
from psdenets.nn.scales import block_shapes
from psdenets.runs.checksums import Folder
from psdenets.runs.weights import load_weights, save_weights
from psdenets.train import main
from psdenets.training.loop import Trainer
from psdenets.training.step import TrainingStep
from sdeweights import Brownian, Cut, DiagonalDrift, Grid, WeightProcess, flow, path_action

strided = partial(preset, "digits-strided")
LEARNED = {
    "block": "pre-3", "activation": "relu", "blocks": "1-1", "channels": "6-8", "stem": "whiten", "steps": 2,
    "transition": "learned", "pool": "max", "squeeze_input": 0, "augment_channels": 0, "drift": "1-4-1",
}  # fmt: skip
FLAGS = [word for name, value in LEARNED.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def at(seed=0):
    return torch.Generator().manual_seed(seed)


def images(n=6, channels=1, size=8):
    return torch.rand(n, channels, size, size, generator=at())


def test_the_whitened_patches_are_uncorrelated_with_variance_one():
    stem = Whitening(3, activation=lambda h: h).double()
    mixing = torch.randn(3, 3, generator=at(), dtype=torch.float64)
    h = torch.einsum("cd,ndhw->nchw", mixing, torch.randn(200, 3, 12, 12, generator=at(1), dtype=torch.float64))
    stem.adapt(h)
    rows = stem(h)[:, :12].transpose(0, 1).flatten(1)
    # the directions come from the same patches, and the added variance of 5e-4 is at most 1 % of theirs
    torch.testing.assert_close(rows @ rows.t() / rows.shape[1], torch.eye(12, dtype=torch.float64), rtol=0, atol=2e-2)
    assert torch.equal(stem(h)[:, 12:], -stem(h)[:, :12])
    assert [name for name, _ in stem.named_parameters()] == ["bias"]


def test_training_computes_the_stem_from_the_training_images_before_the_first_step():
    config = Config(**LEARNED, limit_train=100)
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    kernel = trainer.model.stem.kernel.clone()
    assert not torch.equal(kernel, build(config).stem.kernel)
    trainer.step()
    assert torch.equal(trainer.model.stem.kernel, kernel)


def test_normalisation_of_one_sample_is_batch_normalisation():
    h = torch.randn(7, 4, 5, 5, generator=at())
    seen = []
    torch.testing.assert_close(SampleNorm(4)(h, Norms(seen=seen)), torch.nn.BatchNorm2d(4)(h))
    torch.testing.assert_close(seen[0].mean, h.mean((0, 2, 3))[None])
    torch.testing.assert_close(seen[0].var, h.var((0, 2, 3))[None])
    torch.testing.assert_close(SampleNorm(4)(h, Norms(given=tuple(seen))), SampleNorm(4)(h), rtol=0.01, atol=0.01)


def test_samples_are_normalised_separately():
    h = torch.randn(3, 7, 4, 5, 5, generator=at()) * torch.tensor([1.0, 2.0, 5.0]).view(3, 1, 1, 1, 1)
    norm, seen = SampleNorm(4), []
    torch.testing.assert_close(norm(h, Norms(seen=seen)), torch.stack([norm(x) for x in h]))
    assert seen[0].var.shape == (3, 4)
    one = [norm(h[i], Norms(given=tuple(seen)).sample(i)) for i in range(3)]
    torch.testing.assert_close(norm(h, Norms(given=tuple(seen))), torch.stack(one))


@pytest.mark.parametrize("options", [{"cut": "none"}, {"cut": "full"}, {"scope": "network", "ratio": 0.5}])
def test_in_prediction_a_weight_sample_computes_what_it_computed_in_training(options):
    model = build(Config(**LEARNED, **options, sigma=2.0, noise_scale="effect"))
    x = images(1000)
    model.adapt(x)
    pixels = model.reference / 255
    weights = model.draw(3, at())
    with torch.no_grad():
        trained = model.logits(pixels, weights)
    predicted = model.eval().logits(pixels, model.draw(3, at()))
    # the variance is divided by N in training and by N - 1 in prediction: 0.1 % for 1,000 images of one pixel
    torch.testing.assert_close(predicted, trained, rtol=0.005, atol=0.005)
    if options["cut" if "cut" in options else "scope"] != "none":
        assert (trained[0] - trained[1]).abs().max() > 0.1  # a hundred times the tolerance between samples


def test_samples_do_not_depend_on_each_other_in_evaluation():
    model = build(Config(**LEARNED, cut="full", sigma=0.5, noise_scale="layer")).eval()
    many, few = model.draw(3, at()), model.draw(2, at())
    torch.testing.assert_close(model.logits(images(), many)[:2], model.logits(images(), few))
    torch.testing.assert_close(model.logits(images(), many)[1:2], model.logits(images(), many.sample(1)))


def test_a_transition_halves_the_sides_and_accepts_samples():
    enter = Enter(3, 5, 0, at())
    h = torch.randn(2, 4, 3, 7, 9, generator=at())
    assert enter(h).shape == (2, 4, 5, 3, 4)
    torch.testing.assert_close(enter(h)[1], enter(h[1]))


@pytest.mark.parametrize(("how", "value"), [("none", 12), ("max", 3), ("mean", 3)])
def test_pooling(how, value):
    h = torch.arange(12.0).view(1, 3, 2, 2)
    features = pooled(h, how)
    assert features.shape == (1, value)
    if how != "none":
        assert features.tolist() == [[3.0, 7.0, 11.0] if how == "max" else [1.5, 5.5, 9.5]]


def test_shapes_of_learned_scales_and_images_that_are_too_small():
    spec = ImageSpec(3, 32, 32, ("a", "b"), (0.5,) * 3, (0.25,) * 3)
    assert block_shapes(Config(**LEARNED), spec) == [(6, 15, 15), (8, 7, 7)]
    with pytest.raises(BadInput, match="expected images that can be halved 4 times"):
        build(Config(**{**LEARNED, "blocks": "1-1-1-1", "channels": "4-4-4-4"}))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": "6"}, "expected --channels for each of the 2 scales of --blocks 1-1, got 6"),
        ({"piece": 8}, "expected whole batches with --transition learned"),
        ({"batch_size": 1}, "expected --batch-size of 2 or more with batch normalisation"),
    ],
)
def test_options_that_do_not_fit_learned_transitions(options, message):
    with pytest.raises(BadInput, match=message):
        Config(**{**LEARNED, **options})


def test_f_h_with_one_convolution_has_both_signs():
    f_h = hidden_drift("pre-3", 2, 9, "relu", at())
    out = f_h(torch.tensor(0.3), torch.randn(4, 2, 6, 6, generator=at()))
    assert out.min() < 0 < out.max()
    kernel, h = f_h.convolutions.layers.get_submodule("0").kernel, torch.randn(1, 2, 6, 6, generator=at(1))
    difference = f_h(torch.tensor(0.0), h) - f_h(torch.tensor(0.0), torch.zeros_like(h))
    torch.testing.assert_close(difference, F.conv2d(F.relu(h), kernel, padding=1))


def test_a_gain_multiplies_a_channel_of_the_convolution():
    plain, gained = hidden_drift("pre-3", 3, 9, "relu", at()), hidden_drift("gain-3", 3, 9, "relu", at())
    t, h = torch.tensor(0.3), torch.randn(4, 3, 6, 6, generator=at(1))
    torch.testing.assert_close(gained(t, h), plain(t, h))  # the same initial numbers, and gains of 1
    with torch.no_grad():
        gained.gain.value.copy_(torch.tensor([0.5, -2.0, 0.0]))
    gains = torch.tensor([1.5, -1.0, 1.0])[:, None, None]
    torch.testing.assert_close(gained(t, h), gains * plain(t, h))


def test_gains_come_first_and_their_noise_is_not_divided_by_a_fan_in():
    net = hidden_drift("gain-3", 5, 9, "relu", at())
    scales = layer_scales(net)
    assert next(net.parameters()) is net.gain.value  # a horizontal cut makes the first weights noisy
    torch.testing.assert_close(scales[:5], torch.ones(5))
    torch.testing.assert_close(scales[5:], torch.full((5 * (6 * 9 + 1),), 1 / math.sqrt(6 * 9)))


def test_bfloat16_computes_the_same_network_to_its_precision():
    exact, rounded = (build(Config(**LEARNED, precision=p)).eval() for p in ("float32", "bfloat16"))
    (a, kl), (b, _) = (model(images(), at()) for model in (exact, rounded))
    assert b.dtype == torch.float32
    assert kl == 0
    torch.testing.assert_close(a, b, rtol=0.05, atol=0.05)  # 8 bits over a dozen operations
    assert not torch.equal(a, b)
    b.sum().backward()
    assert rounded.deep_blocks[0].process.w0.grad.dtype == torch.float32


def test_the_scale_of_a_layer_is_one_over_the_root_of_its_fan_in():
    net = hidden_drift("3-3", 2, 5, "swish", at())
    scales = layer_scales(net)
    first, last = 5 * (3 * 9 + 1), 2 * (6 * 9 + 1)
    torch.testing.assert_close(scales[:first], torch.full((first,), 1 / math.sqrt(3 * 9)))
    torch.testing.assert_close(scales[first:], torch.full((last,), 1 / math.sqrt(6 * 9)))
    linear = torch.nn.Sequential(torch.nn.Linear(7, 3), torch.nn.Tanh(), torch.nn.Linear(3, 7))
    expected = torch.cat([torch.full((24,), 7**-0.5), torch.full((28,), 3**-0.5)])
    torch.testing.assert_close(layer_scales(linear), expected)


def test_noise_scaled_to_each_layer_has_the_standard_deviation_of_its_closed_form():
    config = strided(cut="full", sigma=0.5, noise_scale="layer", block="3-3", width=8)
    block = build(config).deep_blocks[0]
    with torch.no_grad():
        w1 = block.draw(400, at()).w[:, -1]
    scales = layer_scales(hidden_drift("3-3", 8, 8, "swish", at()))
    # six Euler steps of the OU process: variance s^2 / fan-in * sum_k (1 - 1/6)^(2k) / 6, 400 samples of 1,200 weights
    expected = math.sqrt((1 - (25 / 36) ** 6) / (1 - 25 / 36) / 6)
    assert (w1.std(0) / (0.5 * scales)).mean().item() == pytest.approx(expected, rel=0.005)


def test_with_sigma_root_two_thirds_the_stationary_law_has_the_variance_of_the_initial_weights():
    net = hidden_drift("3-3", 40, 40, "swish", at())
    w0 = torch.cat([p.detach().flatten() for p in net.parameters()])
    stationary = (math.sqrt(2 / 3) * layer_scales(net)).square() / 2
    assert (w0.square() / stationary).mean().item() == pytest.approx(1, rel=0.02)  # 29,000 weights: 4 s.e. are 2 %


@pytest.mark.parametrize("cut", ["none", "full", "vertical", "horizontal", "both"])
def test_the_action_of_the_deterministic_part_is_charged_like_the_kl(cut):
    config = strided(cut=cut, width=4, steps=4, drift="1-4-1", drift_family="diagonal")
    x, y = images(), torch.arange(6)
    losses = {}
    for price in ("none", "map"):
        model = build(config.replace(deterministic_prior=price))
        with torch.no_grad():
            for block in model.deep_blocks:
                for p in block.process.drift.parameters():
                    p.copy_(torch.randn(p.shape, generator=at(1)) * 0.1)
        losses[price] = TrainingStep(model, model.likelihood, n_train=100)(x, y, at(), kappa=0.25)
    path = model.draw(1, at()).paths[0]
    block = model.deep_blocks[0]
    action = path_action(block.process.prior, path, block.process.cut).item()
    assert (action > 0) == (cut != "full")
    difference = losses["map"].loss - losses["none"].loss
    assert difference.item() == pytest.approx(2 * 0.25 * action / 100, rel=1e-3, abs=1e-6)


def test_negative_rates_of_a_diagonal_drift_are_projected_after_every_step():
    config = strided(width=4, steps=4, drift="1-4-1", drift_family="diagonal", limit_train=128, lr=0.1)
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    for _ in range(2):
        trainer.step()
    (drift,) = (module for module in trainer.model.modules() if isinstance(module, DiagonalDrift))
    assert drift.rate.min() == 0
    assert drift.rate.max() > 0


def test_weight_decay_shrinks_all_weights_but_those_of_f_q():
    found = {}
    for decay in (0.0, 0.5):
        config = Config(width=4, steps=4, drift="1-4-1", limit_train=64, weight_decay=decay, schedule="constant")
        trainer = Trainer(config, load_splits(config), torch.device("cpu"))
        trainer.step()
        found[decay] = dict(trainer.model.named_parameters())
    before = dict(build(config).named_parameters())
    for name, p in found[0.5].items():
        expected = found[0.0][name] - (0.0 if ".drift." in name else config.training.lr * 0.5) * before[name]
        torch.testing.assert_close(p, expected, rtol=1e-5, atol=1e-6)


def test_a_network_with_learned_features_trains_and_loads(tmp_path, capsys):
    out = tmp_path / "run"
    flags = [*FLAGS, "--cut", "full", "--noise-scale", "layer", "--sigma", "0.5", "--epochs", "2", "--limit-train", "300",
             "--drift-family", "diagonal", "--weight-decay", "0.01", "--augment", "shift-flip", "--precision", "bfloat16"]  # fmt: skip
    assert main([*flags, "--out", str(out)]) == 0
    assert "% of the weights stochastic" in capsys.readouterr().out
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["epistemic_share"] > 0
    assert metrics["parameters"]["features"] > 0
    model = load(out)
    probs = model.predict_proba(images(), 2, at())
    torch.testing.assert_close(probs.sum(-1), torch.ones(6, dtype=torch.float64))
    weights = out / "model.safetensors"
    tensors = {**load_weights(weights), "after.norm.var": torch.ones(8)}
    Folder(out).write(weights.name, lambda path: save_weights(tensors, path))
    with pytest.raises(BadInput, match="got running averages over weight samples, which an earlier version used"):
        load(out)


def test_a_restored_network_with_learned_features_continues_to_the_same_bytes():
    config = Config(
        **LEARNED, cut="full", sigma=2.0, drift_family="diagonal", precision="bfloat16", limit_train=192, ema=0.9
    )
    splits = load_splits(config)
    whole, resumed = (Trainer(config, splits, torch.device("cpu")) for _ in range(2))
    whole.step()
    resumed.restore(whole.snapshot())
    for trainer in (whole, resumed):
        trainer.step()
    a, b = whole.snapshot().tensors, resumed.snapshot().tensors
    assert a.keys() == b.keys()
    assert "model.reference" in a
    assert [name for name in a if not torch.equal(a[name], b[name])] == []
    probs = [trainer.evaluated.eval().predict_proba(images(), 2, at()) for trainer in (whole, resumed)]
    assert torch.equal(*probs)


@pytest.mark.parametrize(
    "cut", [Cut.full(), Cut.ode_first(0.1), Cut.sde_first(0.1), Cut.vertical(0.3, 0.6), Cut.vertical(0.3, 0.6, "fixed")]
)
def test_the_integral_of_the_noise_over_depth_is_the_same_for_every_cut(cut):
    """Brownian weights of diffusion sigma / effect: the integral has standard deviation sigma / sqrt(3)."""
    n = 20_000  # weights, each of which drives a number of its own
    process = WeightProcess(torch.zeros(n), lambda t, w: 0 * w, Brownian(2.0 / window_effect(cut)), cut)
    with torch.no_grad():
        path = process.sample(Grid.of(cut, 60, None if cut == Cut.full() else 20), samples=1, generator=at())
        noise = flow(lambda t, h, w: w.expand_as(h), torch.zeros(1, n), path, "euler-mean")
    assert noise.std().item() == pytest.approx(2 / math.sqrt(3), rel=0.025)  # 4 s.e. are 2 %
