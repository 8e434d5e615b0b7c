from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from psdenets import BadInput, ImageSpec, build, preset
from psdenets.models.psde import Classifier, require_seen_noise
from psdenets.models.windows import cuts_of
from psdenets.nn.heads import MeanFieldHead
from psdenets.nn.scales import block_shapes

strided = partial(preset, "digits-strided")  # the network of the paper, at the size of the digits

SMALL = {"width": 4, "steps": 8, "drift": "1-4-1"}
CUTS = {
    "none": {"cut": "none"},
    "full": {"cut": "full"},
    "ode-first": {"cut": "vertical", "order": "ode-first", "ratio": 0.25},
    "sde-first": {"cut": "vertical", "order": "sde-first", "ratio": 0.25},
    "three phases": {"cut": "vertical", "t1": 0.25, "t2": 0.75},
    "fixed": {"cut": "vertical", "order": "sde-first", "ratio": 0.25, "at_t2": "fixed"},
    "learned": {"cut": "vertical", "order": "sde-first", "ratio": 0.25, "at_t2": "learned"},
    "horizontal": {"cut": "horizontal", "share": 0.5},
    "both": {"cut": "both", "ratio": 0.25, "share": 0.5},
    "network": {"cut": "vertical", "ratio": 0.25, "scope": "network"},
}


def images(n=3, channels=1, size=8, seed=0):
    return torch.rand(n, channels, size, size, generator=torch.Generator().manual_seed(seed))


def at(seed=0):
    return torch.Generator().manual_seed(seed)


def trained_a_little(model):
    """Move every parameter off its initial value, so that the drift of w is no longer the prior's."""
    g = at(7)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=g))
    return model


@pytest.mark.parametrize("blocks", ["1", "2-1"])
@pytest.mark.parametrize("cut", CUTS)
def test_every_cut_gives_logits_a_kl_probabilities_and_finite_gradients(cut, blocks):
    model = trained_a_little(build(strided(**SMALL, **CUTS[cut], blocks=blocks)))
    logits, kl = model(images(), at())
    assert logits.shape == (3, 10)
    assert (kl.item() > 0) == (cut != "none")
    probs = model.predict_proba(images(), samples=3, generator=at())
    torch.testing.assert_close(probs.sum(-1), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-12)
    (logits.sum() + kl).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@pytest.mark.parametrize("cut", CUTS)
def test_posterior_is_the_prior_and_the_kl_is_zero_before_training(cut):
    _, kl = build(strided(**SMALL, **CUTS[cut]))(images())
    assert kl.item() == 0.0


@pytest.mark.parametrize("cut", [cut for cut in CUTS if cut not in ("fixed", "learned", "horizontal", "both")])
def test_without_noise_all_samples_of_all_cuts_agree_with_the_ode(cut):
    quiet = {"sigma": 1e-12, "blocks": "2-1"}
    ode = trained_a_little(build(strided(**SMALL, **quiet, cut="none"))).predict_proba(images())
    probs = trained_a_little(build(strided(**SMALL, **quiet, **CUTS[cut]))).predict_proba(
        images(), 3, return_samples=True
    )
    torch.testing.assert_close(probs, ode.expand(3, -1, -1), rtol=0, atol=1e-5)  # rounding depends on the grid


def test_without_noise_all_samples_of_resets_and_horizontal_cuts_agree():
    for cut in ("fixed", "learned", "horizontal", "both"):
        model = trained_a_little(build(strided(**SMALL, **CUTS[cut], sigma=1e-12)))
        probs = model.predict_proba(images(), 3, return_samples=True)
        torch.testing.assert_close(probs[1:], probs[:1].expand(2, -1, -1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("steps", [3, 4, 6])
@pytest.mark.parametrize("cut", [cut for cut in CUTS if cut != "none"])
def test_noise_reaches_the_predictions_of_every_noisy_cut(cut, steps):
    """If the only noisy Euler step ended at t = 1 or at a reset, no step of h would use noisy weights."""
    few = steps == 3 and cut == "three phases"
    model = build(strided(**{**SMALL, "steps": steps}, **CUTS[cut], sigma=1.0))
    probs = model.predict_proba(images(), 3, at(), return_samples=True)
    assert few or all(block.grid.sde.steps >= 2 for block in model.deep_blocks)
    assert probs.std(0).max() > 1e-6  # rounding would give 1e-8


ONE_NOISY_STEP = {
    "--steps 2": {"steps": 2},
    "--sde-steps 1": {"steps": 6, "sde_steps": 1},
    "--cut full --steps 1": {"cut": "full", "steps": 1},
    "--cut horizontal --steps 1": {"cut": "horizontal", "steps": 1},
    "--t1 .3 --t2 .6 --at-t2 fixed --steps 3": {"t1": 0.3, "t2": 0.6, "at_t2": "fixed", "steps": 3},
    "SDE-first learned": {"order": "sde-first", "at_t2": "learned", "steps": 3, "sde_steps": 1},
    "--scope network --blocks 2 --steps 2": {"scope": "network", "blocks": "2", "ratio": 0.25, "steps": 2},
}


@pytest.mark.parametrize("flags", ONE_NOISY_STEP)
def test_a_single_noisy_step_is_seen_at_the_mean_of_both_ends_and_refused_at_the_left_end(flags):
    options = {**SMALL, "sigma": 1.0, **ONE_NOISY_STEP[flags]}
    probs = build(strided(**options)).predict_proba(images(), 3, at(), return_samples=True)
    assert (probs[0] - probs[1]).abs().max() > 1e-4
    left = build(strided(**options, hidden_method="euler"))
    probs = left.predict_proba(images(), 3, at(), return_samples=True)
    assert torch.equal(probs[0], probs[1])
    with pytest.raises(BadInput, match="expected noise that affects the hidden state"):
        require_seen_noise(left)


def test_noise_that_continues_after_its_only_step_is_seen_at_the_left_end():
    model = build(strided(**{**SMALL, "steps": 3}, order="sde-first", sde_steps=1, sigma=1.0, hidden_method="euler"))
    require_seen_noise(model)
    probs = model.predict_proba(images(), 2, at(), return_samples=True)
    assert not torch.equal(probs[0], probs[1])


def test_order_determines_which_end_of_depth_is_noisy():
    """The published code parsed --ode-first and never passed it on."""
    first, last = (cuts_of(strided(order=order, ratio=0.25))[0] for order in ("sde-first", "ode-first"))
    assert (first.t1, first.t2) == (0.0, 0.25)
    assert (last.t1, last.t2) == (0.75, 1.0)
    path = build(strided(**SMALL, order="ode-first", ratio=0.25)).draw(50, at()).paths[0]
    assert path.times[6] == 0.75
    assert torch.equal(path.w[:, 6], path.w[:1, 6].expand(50, -1))  # the same in all samples
    assert path.w[:, 7].std(0).min() > 0
    path = build(strided(**SMALL, order="sde-first", ratio=0.25)).draw(50, at()).paths[0]
    assert path.w[:, 1].std(0).min() > 0


def test_ratio_refers_to_depth_and_share_to_weights():
    """The published code used one number for both."""
    cut = cuts_of(strided(cut="both", ratio=0.2, share=0.7))[0]
    assert (cut.t1, cut.t2, cut.stochastic) == (0.8, 1.0, 0.7)
    model = build(strided(**SMALL, cut="horizontal", share=0.7))
    process = model.deep_blocks[0].process
    assert len(process.S) == round(0.7 * process.d)


def test_kappa_is_inversely_proportional_to_the_noisy_share():
    """The published code used kappa = 1e-4 / 0.1 for every ratio."""
    assert strided(ratio=0.1, kappa_base=1e-4).system.kl_weight == pytest.approx(1e-3, rel=1e-12)
    assert strided(ratio=0.5, kappa_base=1e-4).system.kl_weight == pytest.approx(2e-4, rel=1e-12)
    assert strided(t1=0.2, t2=0.4, kappa_base=1e-4).system.kl_weight == pytest.approx(5e-4, rel=1e-12)
    assert strided(cut="both", ratio=0.1, share=0.5, kappa_base=1e-4).system.kl_weight == pytest.approx(2e-3, rel=1e-12)
    assert strided(ratio=0.1, kappa=0.25).system.kl_weight == 0.25


def test_network_scope_divides_one_window_among_the_blocks():
    cuts = cuts_of(strided(t1=0.25, t2=0.75, blocks="2-2", scope="network", at_t2="learned"))
    assert [cut.deterministic for cut in cuts] == [True, False, False, True]
    assert [(cut.t1, cut.t2) for cut in cuts[1:3]] == [(0.0, 1.0), (0.0, 1.0)]
    cuts = cuts_of(strided(t1=0.1, t2=0.9, blocks="2", scope="network", at_t2="learned"))
    assert [(cut.t1, cut.t2, cut.at_t2) for cut in cuts] == [(0.2, 1.0, "continue"), (0.0, 0.8, "learned")]


@pytest.mark.parametrize("blocks", ["3", "7", "10"])
@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.7, 1.0])
def test_network_scope_keeps_the_length_of_the_window(blocks, ratio):
    cuts = cuts_of(strided(ratio=ratio, blocks=blocks, scope="network"))
    noisy = sum(cut.t2 - cut.t1 for cut in cuts if not cut.deterministic)
    assert noisy / len(cuts) == pytest.approx(ratio, abs=1e-11)


def test_under_network_scope_the_deterministic_prefix_is_computed_once():
    model = build(strided(**SMALL, blocks="2-1", ratio=0.1, scope="network"))
    weights = model.draw(4, at())
    h = model.prepare(images())
    for block, path in zip(model.deep_blocks[:1], weights.paths, strict=False):
        h = block(h, path)
    assert h.shape[0] == 3  # images, not samples x images
    assert model.logits(images(), weights).shape == (4, 3, 10)


def test_a_deterministic_block_after_a_noisy_one_processes_every_sample():
    config = strided(**SMALL, blocks="2", order="sde-first", ratio=0.25, scope="network")
    model = trained_a_little(build(config)).double()
    weights = model.draw(3, at())
    x = images().double()
    together = model.logits(x, weights)
    for i in range(3):
        alone = model.logits(x, weights._replace(paths=tuple(path[i] for path in weights.paths)))[0]
        torch.testing.assert_close(together[i], alone, rtol=0, atol=1e-12)


def test_sample_i_depends_only_on_the_seed_and_i():
    model = trained_a_little(build(strided(**SMALL, cut="full", blocks="2-1", head="meanfield")))
    few = model.predict_proba(images(), 2, at(3), return_samples=True)
    many = model.predict_proba(images(), 5, at(3), return_samples=True)
    torch.testing.assert_close(few, many[:2], rtol=0, atol=1e-6)  # rounding depends on the batch size


def test_predictions_do_not_depend_on_the_batch_size():
    model = trained_a_little(build(strided(**SMALL, cut="full"))).double()
    x = images(7).double()
    whole, parts = (model.predict_proba(x, 3, at(), batch_size=b) for b in (7, 2))
    torch.testing.assert_close(whole, parts, rtol=0, atol=1e-12)


def test_probabilities_are_averaged_instead_of_log_probabilities():
    """The published code averaged log-probabilities, which do not add up to 1 for two samples or more."""
    model = trained_a_little(build(strided(**SMALL, cut="full", sigma=1.0)))
    samples = model.predict_proba(images(), 8, at(), return_samples=True)
    mean = model.predict_proba(images(), 8, at())
    torch.testing.assert_close(mean, samples.mean(0), rtol=0, atol=1e-7)
    assert samples.log().mean(0).exp().sum(-1).max() < 1 - 1e-3


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_a_deterministic_block_equals_a_residual_network_bit_for_bit(steps):
    config = strided(**{**SMALL, "steps": steps}, cut="none", hidden_method="euler")
    model = trained_a_little(build(config)).double()
    block = model.deep_blocks[0]
    path = block.draw(1, at())
    h = model.prepare(images().double()).contiguous(memory_format=torch.channels_last)
    expected = h
    for k in range(steps):
        delta = path.times[k + 1] - path.times[k]
        expected = expected + block.f_h(path.ts[k], expected, path.w[0, k]) * delta
    assert torch.equal(block(h, path), expected)


def test_gain_scales_the_initial_weights():
    plain, scaled = (build(strided(**SMALL, gain=gain)).deep_blocks[0].process.w0 for gain in (1.0, 3.0))
    torch.testing.assert_close(scaled, 3 * plain, rtol=0, atol=0)


def test_parameter_counts_match_the_papers_networks():
    meanfield = {"head": "meanfield"}
    from psdenets import preset

    mnist = build(preset("mnist-ode-first", **meanfield)).parameter_counts()
    assert mnist["w0"] == 19_978
    assert sum(mnist.values()) == 155_746  # as many as the published code trains
    cifar = build(preset("cifar10-ode-first", **meanfield)).parameter_counts()
    assert cifar["w0"] == 600_300
    assert sum(cifar.values()) == 5_470_400
    assert build("cifar10-fix-w2").parameter_counts()["w_t2"] == 600_300


def test_scales_halve_the_image_and_quadruple_the_channels():
    config = strided(blocks="2-2-2", squeeze_input=0, augment_channels=0)
    spec = ImageSpec(3, 32, 32, ("a", "b"), (0.0,) * 3, (1.0,) * 3)
    assert block_shapes(config, spec) == [(3, 32, 32)] * 2 + [(12, 16, 16)] * 2 + [(48, 8, 8)] * 2


def test_the_error_for_an_image_that_cannot_be_halved_names_its_size():
    spec = ImageSpec(1, 28, 30, ("a", "b"), (0.0,), (1.0,))
    with pytest.raises(BadInput, match=r"multiples of 4 .* got images of 1 x 28 x 30"):
        Classifier(strided(blocks="1-1-1", squeeze_input=0), spec)


def test_the_model_normalises_its_images():
    spec = ImageSpec(1, 8, 8, ("a", "b"), (0.25,), (0.5,))
    model = Classifier(strided(**SMALL, squeeze_input=0, augment_channels=2), spec)
    h = model.prepare(torch.full((1, 1, 8, 8), 0.75))
    assert h[0, 0].unique().tolist() == [1.0]
    assert h[0, 1:].abs().max() == 0  # zero channels are added after normalisation


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 1, 9, 9), "expected images of shape"),
        (torch.zeros(2, 8, 8), "expected images of shape"),
        (torch.zeros(2, 1, 8, 8, dtype=torch.uint8), "floating-point"),
        (torch.full((2, 1, 8, 8), 255.0), r"in \[0, 1\]"),
        (torch.full((2, 1, 8, 8), math.nan), r"in \[0, 1\]"),
        (torch.zeros(0, 1, 8, 8), "at least one image"),
    ],
)
def test_invalid_images_are_refused(x, message):
    with pytest.raises(BadInput, match=message):
        build(strided(**SMALL))(x)


def test_mean_field_kl_equals_that_of_torch_distributions():
    head = MeanFieldHead(5, 3, at()).double()
    normal = torch.distributions.Normal
    expected = (
        torch.distributions.kl_divergence(
            normal(head.weight, head.weight_log_std.exp()), normal(torch.zeros(()).double(), 0.1)
        ).sum()
        + torch.distributions.kl_divergence(
            normal(head.bias, head.bias_log_std.exp()), normal(torch.zeros(()).double(), 0.1)
        ).sum()
    )
    assert head.kl().item() == pytest.approx(expected.item(), rel=1e-12)


def test_mean_field_head_adds_its_kl_and_its_noise():
    model = build(strided(**SMALL, cut="none", head="meanfield"))
    _, kl = model(images())
    assert kl.item() == pytest.approx(model.head.kl().item(), rel=1e-6)
    probs = model.predict_proba(images(), 3, at(), return_samples=True)
    assert not torch.equal(probs[0], probs[1])


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_gradient_modes_agree_with_backpropagation(gradient):
    method = "reversible_heun" if gradient == "adjoint" else "euler-mean"  # what the mode selects
    grads = []
    for mode in ("backprop", gradient):
        config = strided(**SMALL, cut="full", gradient=mode, hidden_method=method if mode == "backprop" else "auto")
        model = trained_a_little(build(config)).double()
        logits, kl = model(images().double(), at())
        (F.cross_entropy(logits, torch.tensor([0, 1, 2])) + kl).backward()
        grads.append(torch.cat([p.grad.reshape(-1) for p in model.parameters()]))
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", ["euler", "midpoint", "reversible_heun"])
@pytest.mark.parametrize("cut", CUTS)
def test_samples_in_groups_give_the_same_predictions_as_all_at_once(cut, method, monkeypatch):
    """Groups of one sample; the prefix that samples share is computed once."""
    config = strided(**SMALL, **CUTS[cut], blocks="1-2", hidden_method=method, head="meanfield")
    model = trained_a_little(build(config)).double()
    x = images(5).double()
    with torch.no_grad():
        expected = model.logits(x, model.draw(4, at(3))).softmax(-1)
    calls = []
    real = Classifier.shared
    monkeypatch.setattr(Classifier, "shared", lambda self, x, w: calls.append(1) or real(self, x, w))
    monkeypatch.setattr("psdenets.models.psde._GROUP_NUMBERS", 1)
    found = model.predict_proba(x, 4, at(3), return_samples=True, batch_size=2)
    # drifts of one sample and of four are summed in another order
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    assert len(calls) == 3  # one per batch of images, not per group of samples


def test_sharing_the_prefix_does_not_change_a_bit_of_the_logits():
    model = trained_a_little(build(strided(**SMALL, **CUTS["network"], blocks="2-2", hidden_method="euler")))
    weights = model.draw(3, at(1))
    with torch.no_grad():
        state = model.shared(images(), weights)
        # three blocks without noise, and the first step of the last block, which takes the weights at its left end
        assert (state.block, state.prefix.steps) == (3, 1)
        assert torch.equal(model.rest(state, weights), model.logits(images(), weights))


@pytest.mark.parametrize(("dtype", "atol"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
@pytest.mark.parametrize("cut", ["ode-first", "network", "horizontal", "fixed"])
def test_ten_samples_at_once_equal_ten_separate_passes(cut, dtype, atol):
    """With ten samples at once, the prefix is computed once; each separate pass computes it again."""
    model = trained_a_little(build(strided(**SMALL, **CUTS[cut], blocks="2-1"))).to(dtype)
    x = images().to(dtype)
    weights = model.draw(10, at(1))
    with torch.no_grad():
        together = model.logits(x, weights)
        apart = [model.logits(x, weights._replace(paths=tuple(path[i] for path in weights.paths))) for i in range(10)]
    torch.testing.assert_close(together, torch.cat(apart), rtol=0, atol=atol)
    assert (together[0] - together[1]).abs().max() > 1e-4


def test_a_block_without_noise_stores_one_path_for_all_samples():
    model = build(strided(**SMALL, **CUTS["network"], blocks="2-2"))
    quiet, noisy = model.draw(50, at()).paths[0], model.draw(50, at()).paths[-1]
    assert quiet.w.shape == noisy.w.shape[:1] + quiet.w.shape[1:]
    assert quiet.w.untyped_storage().nbytes() * 50 == quiet.w.numel() * 4
    assert noisy.w.untyped_storage().nbytes() == noisy.w.numel() * 4
