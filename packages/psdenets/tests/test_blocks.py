"""Hidden drifts and space-to-depth."""

from __future__ import annotations

import pytest
import torch

from psdenets.nn.activations import ACTIVATIONS
from psdenets.nn.hidden_drifts import hidden_drift
from psdenets.nn.scales import depth_to_space, space_to_depth
from sdeweights import flatten


def weights_in(name, channels, width):
    return sum(p.numel() for p in hidden_drift(name, channels, width, "softplus", torch.Generator()).parameters())


@pytest.mark.parametrize(
    ("channels", "width", "d_w"), [(1, 32, 19_978), (3, 64, 79_134), (12, 64, 89_592), (48, 64, 131_424)]
)
def test_the_strided_block_has_the_number_of_weights_in_the_paper(channels, width, d_w):
    assert weights_in("strided", channels, width) == d_w


def test_smaller_blocks_have_the_number_of_weights_counted_by_hand():
    # 3-1-3: 64 (4*9 + 1) + 64 (65 + 1) + 3 (65*9 + 1); 3-3: the first and the last of these
    assert weights_in("3-1-3", 3, 64) == 64 * 37 + 64 * 66 + 3 * 586
    assert weights_in("3-3", 3, 64) == 64 * 37 + 3 * 586


@pytest.mark.parametrize("name", ["strided", "3-1-3", "3-3"])
@pytest.mark.parametrize("size", [(28, 28), (32, 32), (16, 16), (8, 8), (7, 7), (5, 6), (2, 3), (1, 1)])
def test_every_block_keeps_the_shape_of_its_input(name, size):
    g = torch.Generator().manual_seed(0)
    h = torch.randn(2, 3, *size, generator=g)
    f_h = hidden_drift(name, 3, 4, "softplus", g)
    out = f_h(torch.tensor(0.3), h)
    assert out.shape == h.shape
    assert out.std() > 0


@pytest.mark.parametrize("name", ["strided", "3-1-3", "3-3"])
def test_a_block_with_flat_weights_computes_the_same_as_its_module(name):
    g = torch.Generator().manual_seed(0)
    module = hidden_drift(name, 3, 4, "softplus", g)
    w, f_h = flatten(module)
    h, t = torch.randn(2, 3, 6, 6, generator=g), torch.tensor(0.3)
    assert torch.equal(f_h(t, h, w), module(t, h))
    rebuilt = torch.cat([part.reshape(-1) for part in f_h.unflatten(w).values()])
    assert torch.equal(rebuilt, w)


def test_activations_have_the_correct_value_at_one():
    one = torch.ones((), dtype=torch.float64)
    values = {name: activation(one).item() for name, activation in ACTIVATIONS.items()}
    expected = {"softplus": 1.3132616875182228, "tanh": 0.7615941559557649, "elu": 1.0,
                "swish": 0.7310585786300049, "rbf": 0.36787944117144233,
                "relu": 1.0, "gelu": 0.8413447460685429}  # fmt: skip
    assert values == pytest.approx(expected, abs=1e-12)


def test_space_to_depth_puts_each_square_of_pixels_into_channels():
    h = torch.arange(16.0).reshape(1, 1, 4, 4)
    out = space_to_depth(h)
    assert out.shape == (1, 4, 2, 2)
    assert out[0, :, 0, 0].tolist() == [0, 1, 4, 5]  # the top left square; a plain reshape would give 0, 4, 8, 12
    assert not torch.equal(out, h.reshape(1, 4, 2, 2))


@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (1, 1, 2, 2), (5, 12, 8, 8)])
def test_depth_to_space_is_the_inverse_of_space_to_depth(shape):
    h = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(depth_to_space(space_to_depth(h)), h)
    if shape[1] % 4 == 0:
        assert torch.equal(space_to_depth(depth_to_space(h)), h)


def test_space_to_depth_needs_even_sizes_and_depth_to_space_a_multiple_of_4_channels():
    with pytest.raises(ValueError, match="even height and width"):
        space_to_depth(torch.zeros(1, 1, 3, 4))
    with pytest.raises(ValueError, match="multiple of 4 channels"):
        depth_to_space(torch.zeros(1, 3, 4, 4))
