"""Mean-field inference: the KL in closed form, the gradient of the ELBO, and two ways to sample."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributions import Normal, kl_divergence

from psdenets import Config
from psdenets.data.spec import SPECS, ImageSpec
from psdenets.models.likelihoods import CATEGORICAL
from psdenets.models.meanfield import MeanField, is_of_the_head, is_weight_or_bias_of_a_layer
from psdenets.models.nets.resnet import ResNet
from psdenets.models.registry import build
from psdenets.nn.gaussian import gaussian_kl
from psdenets.training.objective import objective

DIGITS = SPECS["digits"]
TINY = ImageSpec(1, 4, 4, ("a", "b", "c"), (0.5,), (0.25,))


def at(seed=0):
    return torch.Generator().manual_seed(seed)


def small_net():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten())
    return nn.Sequential(*net, nn.Linear(8, 3)).double()


def mean_field(net=None, **values):
    config = Config(model="mfvi", **values)
    model = MeanField(config, TINY, net or small_net()).double()
    with torch.no_grad():
        for p in model.log_std.values():
            p.add_(torch.randn(p.shape, generator=at(5), dtype=p.dtype) * 0.5)
    return model


def images(n=6):
    return torch.rand(n, 1, 4, 4, generator=at(2), dtype=torch.float64)


@given(mean=st.floats(-3, 3), log_std=st.floats(-6, 2), prior_std=st.floats(0.01, 10), n=st.integers(1, 5))
def test_gaussian_kl_equals_the_sum_of_the_kls_of_torch_distributions(mean, log_std, prior_std, n):
    m, s = torch.full((n,), mean, dtype=torch.float64), torch.full((n,), log_std, dtype=torch.float64)
    prior = Normal(torch.zeros_like(m), torch.full_like(m, prior_std))
    expected = kl_divergence(Normal(m, s.exp()), prior).sum()
    torch.testing.assert_close(gaussian_kl(m, s, prior_std), expected, rtol=1e-10, atol=1e-10)


def test_kl_of_a_network_is_the_sum_over_all_its_weights():
    model = mean_field(prior_std=0.3)
    by_hand = 0.0
    for name, mean in model.net.named_parameters():
        log_std = model.log_std[name.replace(".", "/")]
        for m, s in zip(mean.flatten().tolist(), log_std.exp().flatten().tolist(), strict=True):
            by_hand += math.log(0.3 / s) + (s * s + m * m) / (2 * 0.3**2) - 0.5
    assert model.kl().item() == pytest.approx(by_hand, rel=1e-10)
    assert model.draw(3, at()).kl.tolist() == [model.kl().item()] * 3


@pytest.mark.parametrize("noise", ["weights", "local"])
def test_gradient_of_the_elbo_agrees_with_finite_differences(noise):
    model = mean_field(noise=noise).train()
    x, labels = images(), torch.tensor([0, 1, 2, 0, 1, 2])

    def loss():
        weights = model.draw(2, at(7))
        return objective(
            CATEGORICAL.nll(model.logits(x, weights), labels).mean(), weights.kl, model.head_kl(), kappa=0.5, n_train=6
        ).loss

    gradients = torch.autograd.grad(loss(), list(model.parameters()))
    with torch.no_grad():
        for p, gradient in zip(model.parameters(), gradients, strict=True):
            k = int(gradient.abs().argmax())
            kept = p.view(-1)[k].item()
            ends = []
            for sign in (1, -1):
                p.view(-1)[k] = kept + sign * 1e-5
                ends.append(loss().item())
            p.view(-1)[k] = kept
            # central differences: error of order 1e-10 from the third derivative and 1e-11 from rounding
            assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(gradient.view(-1)[k].item(), rel=1e-6, abs=1e-8)


def test_noise_in_outputs_and_noise_in_weights_give_logits_the_same_mean_and_variance():
    """One linear layer, in closed form. With 20,000 draws, bounds of 5 standard errors fail for one seed in 10^5."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double()
    x = images(2)
    n = 20_000
    for noise in ("weights", "local"):
        model = mean_field(net, noise=noise).train()
        h = model.normalised(x).flatten(1)
        s = {name: p.exp() for name, p in model.log_std.items()}
        mean = h @ net[1].weight.T + net[1].bias
        variance = h.square() @ s["1/weight"].square().T + s["1/bias"].square()
        with torch.no_grad():
            logits = model.logits(x, model.draw(n, at(11)))
        assert ((logits.mean(0) - mean).abs() < 5 * (variance / n).sqrt()).all()
        assert ((logits.var(0) - variance).abs() < 5 * variance * math.sqrt(2 / n)).all()
        # two images of one draw share their weights, but not the noise of their outputs
        shared = (h[0] * h[1]) @ s["1/weight"].square().T + s["1/bias"].square()
        correlation = shared / variance.prod(0).sqrt()
        found = torch.stack([torch.corrcoef(logits[:, :, c].T)[0, 1] for c in range(3)])
        expected = correlation if noise == "weights" else torch.zeros(3, dtype=torch.float64)
        assert correlation.abs().min() > 0.1
        assert (found - expected).abs().max() < 5 / math.sqrt(n)


def test_evaluation_samples_weights_even_if_training_samples_outputs():
    model = mean_field(noise="local").eval()
    weights = model.draw(2, at())
    assert weights.output_noise == (None, None)
    assert set(weights.values[0]) == {name for name, _ in model.net.named_parameters()}
    twice = torch.cat([images(1), images(1)])
    out = model.logits(twice, weights)
    assert torch.equal(out[:, 0], out[:, 1])
    assert not torch.equal(out[0], out[1])


def test_sample_i_depends_only_on_the_seed_and_i():
    model = mean_field().eval()
    three, five = (model.logits(images(), model.draw(s, at(4))) for s in (3, 5))
    assert torch.equal(three, five[:3])


def test_hooks_are_removed_after_a_forward_pass():
    model = mean_field(noise="local").train()
    model.logits(images(), model.draw(1, at()))
    assert all(not layer._forward_hooks for layer in model.net.modules())


def test_normalisation_layers_stay_deterministic_and_vbll_samples_only_its_head():
    net = ResNet(1, 10, (1, 1), 4)
    chosen = is_weight_or_bias_of_a_layer(net)
    assert not chosen("norm.weight")
    assert not chosen("blocks.0.norm1.bias")
    assert chosen("blocks.0.conv1.weight")
    assert chosen("head.bias")
    assert is_of_the_head("head.weight")
    model = build(Config(model="vbll")).eval()
    assert set(model.log_std) == {"head/weight", "head/bias"}
    assert model.parameter_counts()["log_std"] == 650
    weights = model.draw(2, at())
    features = model.net.features(model.normalised(torch.rand(3, 1, 8, 8, generator=at(3))))
    x = torch.rand(3, 1, 8, 8, generator=at(3))
    by_hand = features @ weights.values[1]["head.weight"].T + weights.values[1]["head.bias"]
    torch.testing.assert_close(model.logits(x, weights)[1], by_hand)


def test_mean_field_head_takes_prior_and_initial_standard_deviation_from_the_config():
    head = build(Config(head="meanfield", prior_std=0.7, log_std=-2.0)).head
    expected = gaussian_kl(head.weight, torch.full_like(head.weight, -2.0), 0.7) + gaussian_kl(
        head.bias, torch.full_like(head.bias, -2.0), 0.7
    )
    assert head.kl().item() == pytest.approx(expected.item(), rel=1e-6)
