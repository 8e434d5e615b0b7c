"""Convolutions between thin and wide images, computed as matrix products, agree with PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from psdenets.nn.fast import thin_conv as thin
from psdenets.nn.fast.switch import enabled

pytestmark = pytest.mark.skipif(not enabled(), reason="plain layers use F.conv2d")
THIN = [(1, 8), (3, 5), (8, 1), (6, 2)]  # channels in and out


def library(h: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(h, weight, None, 1, weight.shape[-1] // 2)


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)
    return x.contiguous(memory_format=torch.channels_last).requires_grad_()


def both(c_in: int, c_out: int, k: int, size: tuple[int, int] = (5, 4), batch: int = 3) -> tuple[Tensor, Tensor]:
    return drawn(batch, c_in, *size), drawn(c_out, c_in, k, k, seed=1)


def conv(h: Tensor, weight: Tensor, stride: int = 1) -> Tensor:
    c_out, c_in, k, _ = weight.shape
    return thin.convolution(c_in, c_out, k, stride)(h, weight)


def uses_products(y: Tensor) -> bool:
    nodes = (y.grad_fn, *(node for node, _ in y.grad_fn.next_functions))
    return any(type(node).__name__ in ("_ToThinBackward", "_ToWideBackward") for node in nodes)


@pytest.mark.parametrize(("c_in", "c_out"), THIN)
@pytest.mark.parametrize("k", [1, 3, 5])
@pytest.mark.parametrize("size", [(5, 4), (1, 1), (2, 7)])
def test_values_and_gradients_match_the_library(c_in: int, c_out: int, k: int, size: tuple[int, int]) -> None:
    h, weight = both(c_in, c_out, k, size)
    ours, theirs = conv(h, weight), library(h, weight)
    assert uses_products(ours)
    g = drawn(*ours.shape, seed=2).detach()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)  # sums of up to 200 terms around 1
    for a, b in zip(
        torch.autograd.grad(ours, (h, weight), g), torch.autograd.grad(theirs, (h, weight), g), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("c_in", "c_out"), THIN)
def test_first_and_second_derivatives_agree_with_finite_differences(c_in: int, c_out: int) -> None:
    h, weight = both(c_in, c_out, 3, (3, 2), batch=2)
    assert torch.autograd.gradcheck(conv, (h, weight))
    assert torch.autograd.gradgradcheck(conv, (h, weight))


@pytest.mark.parametrize(("c_in", "c_out"), THIN)
@pytest.mark.parametrize("wanted", [0, 1])
def test_a_gradient_computed_alone_is_the_same_as_together_with_the_other(c_in: int, c_out: int, wanted: int) -> None:
    pair = list(both(c_in, c_out, 3))
    y = conv(*pair).sin().sum()
    expected = torch.autograd.grad(y, pair)[wanted]
    pair[1 - wanted] = pair[1 - wanted].detach()
    (alone,) = torch.autograd.grad(conv(*pair).sin().sum(), pair[wanted])
    assert torch.equal(alone, expected)


@pytest.mark.parametrize(("c_in", "c_out"), THIN)
def test_vmap_over_samples_equals_a_loop_over_samples(c_in: int, c_out: int) -> None:
    h = torch.stack([drawn(3, c_in, 4, 4, seed=i).detach() for i in range(2)])
    weights = torch.stack([drawn(c_out, c_in, 3, 3, seed=9 + i).detach() for i in range(2)])

    def value_and_gradients(h: Tensor, weight: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        gradients = torch.func.grad(lambda h, w: conv(h, w).sin().sum(), argnums=(0, 1))(h, weight)
        return conv(h, weight), gradients

    y, (gh, gw) = torch.vmap(value_and_gradients)(h, weights)
    for i in range(2):
        one, (gh_one, gw_one) = value_and_gradients(h[i], weights[i])
        for a, b in ((y[i], one), (gh[i], gh_one), (gw[i], gw_one)):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("c_in", "c_out"), THIN)
def test_images_and_their_gradients_are_channels_last(c_in: int, c_out: int) -> None:
    h, weight = drawn(3, c_in, 5, 4, dtype=torch.float32), torch.randn(c_out, 3, 3, c_in)
    y = conv(h, weight.permute(0, 3, 1, 2))  # as `TimedConv` stores its kernels
    (gh,) = torch.autograd.grad(y.square().sum(), h)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert gh.is_contiguous(memory_format=torch.channels_last)


def test_float32_is_about_as_accurate_as_the_library() -> None:
    h, weight = drawn(2, 32, 28, 28), drawn(1, 32, 3, 3, seed=1)
    exact = library(h, weight)
    error = (conv(h.float(), weight.float()) - exact).abs().max()
    assert error < 4 * (library(h.float(), weight.float()) - exact).abs().max() + 1e-6


@pytest.mark.parametrize(
    ("c_in", "c_out", "stride", "batch"),
    [(4, 8, 1, 2), (8, 8, 1, 2), (1, 1, 1, 2), (2, 3, 1, 2), (1, 8, 2, 2), (1, 8, 1, 0)],
)
def test_other_convolutions_are_left_to_the_library(c_in: int, c_out: int, stride: int, batch: int) -> None:
    h, weight = both(c_in, c_out, 3, batch=batch)
    y = conv(h, weight, stride)
    assert not uses_products(y)
    assert torch.equal(y, F.conv2d(h, weight, None, stride, 1))


@pytest.mark.parametrize(("c_in", "c_out"), THIN)
def test_results_support_in_place_operations(c_in: int, c_out: int) -> None:
    h, weight = both(c_in, c_out, 3)
    (twice,) = torch.autograd.grad(conv(h, weight).mul_(2).sum(), weight)
    (once,) = torch.autograd.grad(conv(h, weight).sum(), weight)
    torch.testing.assert_close(twice, 2 * once, rtol=0, atol=1e-12)


def test_half_precision_and_autocast_are_left_to_the_library() -> None:
    h, weight = drawn(2, 8, 4, 4, dtype=torch.float32), drawn(1, 8, 3, 3, dtype=torch.float32)
    half = conv(h.bfloat16(), weight.bfloat16())
    assert not uses_products(half)
    with torch.autocast("cpu", torch.bfloat16):
        y = conv(h, weight)
    y.sum().backward()
    assert torch.equal(y, half)
    assert h.grad is not None


def test_one_image_without_a_batch_is_left_to_the_library() -> None:
    h, weight = both(8, 1, 3)
    assert torch.equal(conv(h[0], weight), library(h[0], weight))
