"""Images and their gradients are channels last in memory."""

from __future__ import annotations

import pytest
import torch

from psdenets import Config
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


def test_every_step_of_a_block_receives_its_gradient_channels_last():
    """The head's gradient is channels first; without a conversion at the end of the block each step would copy it."""
    layouts = []

    class Watched(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h):
            return h.view_as(h)

        @staticmethod
        def backward(ctx, g):
            layouts.append(g.is_contiguous(memory_format=torch.channels_last))
            return g

    config = Config(steps=3)
    block = DeepBlock(config, 4, cuts_of(config)[0], torch.Generator().manual_seed(0))
    block.f_h.register_forward_hook(lambda module, inputs, out: Watched.apply(out))
    out = block(torch.rand(2, 4, 6, 6), block.draw(1, torch.Generator().manual_seed(0)))
    (out.flatten(-3) @ torch.rand(4 * 36, 2)).sum().backward()
    assert layouts == [True] * 3


def test_the_result_of_a_block_supports_in_place_operations():
    config = Config(steps=3)
    block = DeepBlock(config, 4, cuts_of(config)[0], torch.Generator().manual_seed(0))
    path = block.draw(1, torch.Generator().manual_seed(0))
    out = block(torch.rand(2, 4, 6, 6), path)
    kl = path.kl
    kl += 1
    (out.relu_().sum() + kl.sum()).backward()
    assert block.process.w0.grad.abs().sum() > 0
