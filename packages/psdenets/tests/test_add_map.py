"""activation(x + m) compared with PyTorch's own operations: values, gradients, extreme inputs, vmap, memory layout."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from psdenets.nn.activations import ACTIVATIONS
from psdenets.nn.fast.add_map import softplus
from psdenets.nn.fast.switch import enabled
from psdenets.nn.timed_conv import add_map

t64 = {"dtype": torch.float64}
ALL = {"none": None, **ACTIVATIONS}
WITH_OWN_GRADIENT = ["none", "softplus"]


def pair(seed, *, last=True, scale=3.0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    x = scale * torch.randn(5, 3, 4, 6, generator=g, dtype=dtype)
    m = torch.randn(3, 4, 6, generator=g, dtype=dtype)
    layout = torch.channels_last if last else torch.contiguous_format
    return x.contiguous(memory_format=layout).requires_grad_(), m.requires_grad_()


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_values_and_gradients_match_the_plain_operations(name, last):
    x, m = pair(0, last=last)
    upstream = torch.randn(x.shape, generator=torch.Generator().manual_seed(1), **t64)
    found, expected = add_map(ALL[name])(x, m), x + m if name == "none" else ALL[name](x + m)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    for a, b in zip(*(torch.autograd.grad(y, (x, m), upstream) for y in (found, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)  # sums over five images in another order


@pytest.mark.parametrize("name", ALL)
def test_values_have_the_same_bits_with_and_without_gradients(name):
    """Checkpointing computes states without gradients and recomputes them with gradients."""
    x, m = pair(6, dtype=torch.float32)
    with torch.no_grad():
        without = add_map(ALL[name])(x, m)
    assert torch.equal(without, add_map(ALL[name])(x, m))


@pytest.mark.parametrize("name", WITH_OWN_GRADIENT)
def test_first_and_second_derivatives_agree_with_finite_differences(name):
    x, m = (z.detach()[..., :2, :2].clone().requires_grad_() for z in pair(1))
    assert torch.autograd.gradcheck(add_map(ALL[name]), (x, m))
    assert torch.autograd.gradgradcheck(add_map(ALL[name]), (x, m))


def test_derivatives_of_softplus_are_the_logistic_function_and_its_derivative():
    """The gradient has one formula if a graph is recorded and another if not.

    `gradcheck` tests only the second, and `gradgradcheck` compares the first only with itself.
    """
    x, m = pair(4)
    s = torch.sigmoid(x + m)
    (first,) = torch.autograd.grad(softplus(x, m).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(first, s, rtol=0, atol=1e-12)
    torch.testing.assert_close(second, s * (1 - s), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softplus_of_extreme_finite_numbers_is_finite_and_correct(dtype):
    extremes = torch.tensor([-1e30, -1000, -50, 0, 50, 88, 89, 1000, 1e30], dtype=dtype)
    x = extremes.view(1, 1, 3, 3).clone().requires_grad_()
    y = softplus(x, torch.zeros(1, 3, 3, dtype=dtype))
    y.sum().backward()
    torch.testing.assert_close(y, F.softplus(x), rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(x.grad, torch.sigmoid(x), rtol=1e-6, atol=1e-7)
    assert y.flatten()[3].item() == pytest.approx(0.6931471805599453, abs=1e-7)
    assert y.flatten()[-1].item() == extremes[-1].item()


def test_softplus_in_float32_is_accurate_to_two_machine_epsilons():
    z = torch.linspace(-20, 20, 4001).view(1, 1, 1, -1)
    exact = F.softplus(z.double())
    error = (softplus(z, torch.zeros(1, 1, 4001)).double() - exact).abs() / exact.clamp(min=1)
    assert error.max() < 2 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("name", WITH_OWN_GRADIENT)
@pytest.mark.parametrize("in_dims", [(0, 0), (0, None), (None, 0), (2, 1)])
def test_vmap_equals_a_loop(name, in_dims):
    g = torch.Generator().manual_seed(2)
    shapes = ((5, 3, 4, 6), (3, 4, 6))
    args = [
        torch.randn(shape if dim is None else (*shape[:dim], 7, *shape[dim:]), generator=g, **t64)
        for shape, dim in zip(shapes, in_dims, strict=True)
    ]
    f = add_map(ALL[name])
    loop = torch.stack(
        [f(*(z if dim is None else z.select(dim, k) for z, dim in zip(args, in_dims, strict=True))) for k in range(7)]
    )
    torch.testing.assert_close(torch.vmap(f, in_dims)(*args), loop, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_softplus_in_half_precision_equals_that_of_pytorch(dtype):
    z = torch.linspace(-8, 8, 64).to(dtype).view(1, 1, 8, 8)
    assert torch.equal(softplus(z, torch.zeros(1, 8, 8, dtype=dtype)), F.softplus(z))


@pytest.mark.parametrize("name", ALL)
def test_an_empty_batch_gives_an_empty_result_and_a_gradient_of_zero(name):
    x, m = torch.zeros(0, 3, 4, 6, requires_grad=True), torch.zeros(3, 4, 6, requires_grad=True)
    y = add_map(ALL[name])(x, m)
    y.sum().backward()
    assert y.shape == x.shape
    assert torch.equal(m.grad, torch.zeros(3, 4, 6))


@pytest.mark.skipif(not enabled(), reason="plain layers leave the layout to PyTorch")
@pytest.mark.parametrize("name", WITH_OWN_GRADIENT)
def test_results_and_gradients_stay_channels_last(name):
    x, m = pair(3)
    y = add_map(ALL[name])(x, m)
    (gx,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert gx.is_contiguous(memory_format=torch.channels_last)
