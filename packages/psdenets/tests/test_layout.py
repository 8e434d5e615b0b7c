"""Images and their gradients are channels last in memory."""

from __future__ import annotations

import pytest
import torch

from psdenets import Config, build, preset
from psdenets.models.psde import DeepBlock
from psdenets.models.windows import cuts_of
from psdenets.nn.fast.layout import channels_last, gradient_channels_last
from psdenets.nn.fast.switch import enabled

pytestmark = pytest.mark.skipif(not enabled(), reason="plain layers leave the layout to PyTorch")


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2, 2, 3, 4, 5)])
def test_the_gradient_of_images_is_channels_last_with_unchanged_values(shape):
    g = torch.Generator().manual_seed(0)
    h, weight = torch.randn(shape, generator=g).requires_grad_(), torch.randn(shape, generator=g)
    out = gradient_channels_last(h)
    assert torch.equal(out, h)
    (grad,) = torch.autograd.grad((out * weight).sum(), h)
    assert torch.equal(grad, weight)
    assert grad.movedim(-3, -1).is_contiguous()
    assert not weight.movedim(-3, -1).is_contiguous()


def test_gradient_channels_last_supports_second_derivatives_and_vmap():
    h = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: gradient_channels_last(x).sin(), h)
    many = torch.vmap(torch.func.grad(lambda x: gradient_channels_last(x).square().sum()))(h.detach()[None])
    assert torch.equal(many[0], 2 * h.detach())


def test_images_are_laid_out_channels_last():
    h = torch.rand(2, 3, 4, 4)
    assert channels_last(h).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(channels_last(h), h)


class Watched(torch.autograd.Function):
    """The identity; notes in `layouts` whether its gradient is channels last."""

    @staticmethod
    def forward(ctx, h, layouts):
        ctx.layouts = layouts
        return h.view_as(h)

    @staticmethod
    def backward(ctx, g):
        ctx.layouts.append(g.is_contiguous(memory_format=torch.channels_last))
        return g, None


NETWORKS = {  # with the number of evaluations of f_h in a step
    "flattened by the head": (preset("digits-strided", steps=3), 1, 3),
    "learned": (Config(cut="none"), 1, 8),
    "learned, one sample": (Config(cut="full"), 1, 8),
    "learned, three samples": (Config(cut="full"), 3, 24),
}


@pytest.mark.parametrize(("config", "samples", "evaluations"), NETWORKS.values(), ids=NETWORKS)
def test_every_step_receives_its_gradient_channels_last(config, samples, evaluations):
    """Otherwise every step would copy its gradient, and batch normalisation would take 15 times as long."""
    model, layouts = build(config), []
    for block in model.deep_blocks:
        block.f_h.register_forward_hook(lambda module, inputs, out: Watched.apply(out, layouts))
    x, g = torch.rand(8, 1, 8, 8), torch.Generator().manual_seed(0)
    model.logits(x, model.draw(samples, g)).square().sum().backward()
    assert layouts == [True] * evaluations


def test_the_result_of_a_block_supports_in_place_operations():
    config = Config(steps=3)
    block = DeepBlock(config, 4, cuts_of(config)[0], torch.Generator().manual_seed(0))
    path = block.draw(1, torch.Generator().manual_seed(0))
    out = block(torch.rand(2, 4, 6, 6), path)
    kl = path.kl
    kl += 1
    (out.relu_().sum() + kl.sum()).backward()
    assert block.process.w0.grad.abs().sum() > 0
