"""Folding the time channel of conv([h, t 1]) into a map equals concatenation; the order of the flat weights."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from psdenets.nn.fast.switch import enabled
from psdenets.nn.timed_conv import TimedConv, TimedConvTranspose
from sdeweights import flatten

t64 = {"dtype": torch.float64}


def with_time_channel(t, h):
    return torch.cat([h, t.expand(len(h), 1, *h.shape[-2:])], dim=1)


@given(
    seed=st.integers(0, 10_000),
    c_in=st.integers(1, 5),
    c_out=st.integers(1, 5),
    kernel=st.sampled_from([1, 3, 5]),
    stride=st.sampled_from([1, 2]),
    height=st.integers(1, 9),
    width=st.integers(1, 9),
)
def test_folded_time_channel_equals_concatenation_in_plain_and_strided_convolutions(
    seed, c_in, c_out, kernel, stride, height, width
):
    g = torch.Generator().manual_seed(seed)
    layer = TimedConv(c_in, c_out, kernel, stride, generator=g).double()
    h, t = torch.randn(2, c_in, height, width, generator=g, **t64), torch.rand((), generator=g, **t64)
    weight = torch.cat([layer.kernel, layer.time_weight], dim=1)
    expected = F.conv2d(with_time_channel(t, h), weight, layer.bias, stride, kernel // 2)
    torch.testing.assert_close(layer(t, h), expected, rtol=0, atol=1e-12)  # the same sums in another order


@given(seed=st.integers(0, 10_000), c=st.integers(1, 5), height=st.integers(1, 9), width=st.integers(1, 9))
def test_folded_time_channel_equals_concatenation_in_transposed_convolutions(seed, c, height, width):
    g = torch.Generator().manual_seed(seed)
    layer = TimedConvTranspose(c, 3, generator=g).double()
    h = torch.randn(2, c, (height + 1) // 2, (width + 1) // 2, generator=g, **t64)
    t = torch.rand((), generator=g, **t64)
    weight = torch.cat([layer.kernel, layer.time_weight], dim=0)
    odd = (1 - height % 2, 1 - width % 2)
    expected = F.conv_transpose2d(with_time_channel(t, h), weight, layer.bias, 2, 1, odd)
    assert expected.shape[-2:] == (height, width)
    torch.testing.assert_close(layer(t, h, (height, width)), expected, rtol=0, atol=1e-12)


def test_layers_first_used_in_inference_mode_can_be_trained():
    layer = TimedConv(1, 2, 3)
    up = TimedConvTranspose(2, 2)
    h, t = torch.zeros(1, 1, 23, 29), torch.tensor(0.5)  # a size that no other test has put into the cache of taps
    with torch.inference_mode():
        up(t, layer(t, h)[..., ::2, ::2], (23, 29))
    up(t, layer(t, h)[..., ::2, ::2], (23, 29)).sum().backward()
    assert layer.time_weight.grad.abs().sum() > 0


def test_time_map_differs_at_the_borders_where_padding_cuts_the_kernel():
    layer = TimedConv(1, 1, 3).double()
    with torch.no_grad():
        layer.time_weight.fill_(1.0)
        layer.bias.zero_()
    out = layer(torch.tensor(2.0, **t64), torch.zeros(1, 1, 4, 4, **t64))[0, 0]
    assert out[0, 0].item() == 2 * 4  # at a corner, four of the nine pixels are inside
    assert out[0, 1].item() == 2 * 6
    assert out[1, 1].item() == 2 * 9


@pytest.mark.parametrize("layer", [TimedConv(2, 3), TimedConv(2, 3, 3, 2)])
def test_gradients_of_state_time_and_weights_agree_with_finite_differences(layer):
    layer = layer.double()
    names = ("weight", "time_weight", "bias")

    def f(t, h, *parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), (t, h))

    g = torch.Generator().manual_seed(0)
    inputs = [torch.rand((), generator=g, **t64), torch.randn(2, 2, 4, 5, generator=g, **t64)]
    inputs += [getattr(layer, name).detach() for name in names]
    assert torch.autograd.gradcheck(f, [x.requires_grad_() for x in inputs])


@pytest.mark.skipif(not enabled(), reason="plain layers leave the layout to PyTorch")
@pytest.mark.parametrize("c_in", [1, 3])
def test_results_are_channels_last_even_if_the_image_has_one_channel(c_in):
    """A one-channel image has both layouts at once; a channels-first result would slow down all later layers."""
    h = torch.rand(2, c_in, 6, 6).contiguous(memory_format=torch.channels_last)
    t = torch.tensor(0.5)
    first = TimedConv(c_in, 4)(t, h)
    assert first.is_contiguous(memory_format=torch.channels_last)
    assert not first.is_contiguous()
    down = TimedConv(4, 4, stride=2)(t, first)
    up = TimedConvTranspose(4, 4)(t, down, (6, 6))
    assert up.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("c_in", "c_out", "stride"), [(1, 4, 1), (4, 1, 1), (3, 5, 2), (5, 6, 1)])
def test_flat_weights_hold_the_kernel_channels_last_then_the_time_kernel_then_the_bias(c_in, c_out, stride):
    """Run directories depend on this order: (out, in, k, k) permuted to (out, k, k, in)."""
    g = torch.Generator().manual_seed(0)
    kernel, time_kernel, bias = (
        torch.randn(s, generator=g, **t64) for s in ((c_out, c_in, 3, 3), (c_out, 1, 3, 3), (c_out,))
    )
    h, t = torch.randn(2, c_in, 5, 6, generator=g, **t64), torch.tensor(0.5, **t64)
    _, layer = flatten(TimedConv(c_in, c_out, stride=stride))
    flat = torch.cat([kernel.permute(0, 2, 3, 1).reshape(-1), time_kernel.reshape(-1), bias])
    expected = F.conv2d(with_time_channel(t, h), torch.cat([kernel, time_kernel], 1), bias, stride, 1)
    torch.testing.assert_close(layer(t, h, flat), expected, rtol=0, atol=1e-12)


def test_flat_weights_of_a_transposed_convolution_hold_the_kernel_in_the_order_in_k_k_out():
    g = torch.Generator().manual_seed(0)
    kernel, time_kernel, bias = (torch.randn(s, generator=g, **t64) for s in ((3, 4, 3, 3), (1, 4, 3, 3), (4,)))
    h, t = torch.randn(2, 3, 3, 3, generator=g, **t64), torch.tensor(0.5, **t64)
    layer = TimedConvTranspose(3, 4).double()
    flat = torch.cat([kernel.permute(0, 2, 3, 1).reshape(-1), time_kernel.reshape(-1), bias])
    torch.nn.utils.vector_to_parameters(flat, layer.parameters())
    expected = F.conv_transpose2d(with_time_channel(t, h), torch.cat([kernel, time_kernel], 0), bias, 2, 1, 1)
    torch.testing.assert_close(layer(t, h, (6, 6)), expected, rtol=0, atol=1e-12)
    assert torch.equal(layer.kernel, kernel)


def test_a_layer_converted_to_channels_last_computes_the_same():
    layer = TimedConvTranspose(3, 4).double()
    h, t = torch.rand(2, 3, 3, 3, **t64), torch.tensor(0.5, **t64)
    expected = layer(t, h, (6, 6))
    found = layer.to(memory_format=torch.channels_last)(t, h, (6, 6))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
