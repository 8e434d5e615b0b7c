"""Networks of the baselines: sizes as in the literature, and dynamics that agree with those of the PSDE-BNN."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from psdenets import BadInput, Config, ImageSpec, preset
from psdenets.data.spec import SPECS
from psdenets.models.nets.convnet import ConvNet
from psdenets.models.nets.odenet import ODENet, odenet_of
from psdenets.models.nets.resnet import ResNet
from psdenets.models.registry import build

DIGITS = SPECS["digits"]


def config_of(model, **values):
    return Config(model=model, **values)


def images(n=5, seed=0):
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_resnet32_has_the_numbers_of_layers_and_weights_in_the_literature():
    net = ResNet(3, 10)
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(layers) == 32
    # 16 * 27 + 10 * 16 * 144 + (32 * 144 + 9 * 32 * 288) + (64 * 288 + 9 * 64 * 576) + norms 2 * 1,136 + head 650
    assert sum(p.numel() for p in net.parameters()) == 464_154


def test_resnet_shortcut_keeps_every_second_pixel_and_pads_with_zeros():
    net = ResNet(1, 10, (1, 1), width=4, norm="none").double()
    block = net.blocks[1]
    h = torch.rand(2, 4, 6, 6, dtype=torch.float64)
    out = block(h)  # its second convolution is initialised to zero
    assert out.shape == (2, 8, 3, 3)
    assert torch.equal(out[:, 2:6], h[:, :, ::2, ::2])
    assert out[:, :2].abs().max() == out[:, 6:].abs().max() == 0


@pytest.mark.parametrize("norm", ["batch", "group", "none"])
def test_resnet_fits_one_batch_with_and_without_normalisation(norm):
    torch.manual_seed(0)
    net = ResNet(1, 10, (1, 1, 1), width=8, norm=norm)
    x, labels = torch.rand(20, 1, 8, 8), torch.arange(20) % 10
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), labels)
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1  # measured: below 0.02; a network that ignores its input stays at log 10 = 2.3


def test_convnet_refuses_images_too_small_for_its_scales():
    assert ConvNet((1, 8, 8), 10, (1, 1, 1), 4).head.in_features == 16
    with pytest.raises(BadInput, match="large enough for 4 scales, got 8 x 8"):
        ConvNet((1, 8, 8), 10, (1, 1, 1, 1), 4)


# torchdiffeq's rk4 is the 3/8 rule, ours the classical one: the same order, but a different scheme
@pytest.mark.parametrize(("method", "atol"), [("euler", 1e-12), ("midpoint", 1e-12), ("rk4", 1e-5)])
def test_odenet_equals_the_deterministic_psde_with_constant_weights(method, atol):
    """With theta = 0 and an untrained f_q, whose last layer is zero, dw = 0: the same network, solved in two ways."""
    shared = {"blocks": "1-1", "width": 6, "steps": 4, "hidden_method": method, "gain": 2.0}
    ode = odenet_of(config_of("odenet", **shared), DIGITS).double()
    psde = build(preset("digits-strided", cut="none", theta=0.0, **shared)).double()
    psde.head.weight.data.copy_(ode.head.weight)
    psde.head.bias.data.copy_(ode.head.bias)
    logits, kl = psde(images())
    torch.testing.assert_close(ode(images()), logits, rtol=0, atol=atol)
    assert kl.item() == 0


def test_adaptive_odenet_agrees_with_a_fine_grid():
    coarse = {"width": 6, "gain": 3.0}
    fine = odenet_of(config_of("odenet", steps=100, hidden_method="rk4", **coarse), DIGITS).double()
    expected = fine(images())
    errors = {}
    for tolerance in (1e-3, 1e-9):
        config = config_of("odenet", hidden_method="dopri5", rtol=tolerance, atol=tolerance, **coarse)
        errors[tolerance] = (odenet_of(config, DIGITS).double()(images()) - expected).abs().max().item()
    assert errors[1e-9] < 1e-7
    assert errors[1e-9] < errors[1e-3] < 0.1


def test_initial_weights_of_odenet_depend_only_on_the_seed_and_global_state_is_unchanged():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, again, other = (odenet_weights(seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def odenet_weights(seed):
    net = odenet_of(config_of("odenet", seed=seed, width=4), DIGITS)
    assert isinstance(net, ODENet)
    return list(net.parameters())


def test_a_resnet_accepts_image_sizes_that_a_flow_would_refuse():
    spec = ImageSpec(3, 9, 7, ("a", "b"), (0.5,) * 3, (0.25,) * 3)
    model = build(config_of("resnet32", dataset="imagefolder"), spec).eval()
    assert model(torch.rand(2, 3, 9, 7))[0].shape == (2, 2)
