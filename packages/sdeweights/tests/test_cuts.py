"""Cuts are immutable values that validate themselves."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from sdeweights import Cut, indices
from sdeweights.testing import seeded


def test_named_cuts_are_values_of_one_type():
    assert Cut.full() == Cut(0, 1, 1.0, "continue")
    assert Cut.ode_first(0.1) == Cut.vertical(0.9, 1)
    assert Cut.sde_first(0.1, "learned") == Cut.vertical(0, 0.1, "learned")
    assert Cut.horizontal(0.5) == Cut.both(0, 1, 0.5)
    assert Cut.horizontal(0.0) == Cut.none()
    assert Cut.horizontal(1.0) == Cut.full()
    assert Cut.horizontal([3, 1]) == Cut.horizontal((1, 3)) == Cut.horizontal(torch.tensor([1, 3]))
    assert Cut.horizontal(np.array([1, 3])) == Cut.horizontal([1, 3])
    assert Cut(0, 1, [3, 1]) == Cut.horizontal([1, 3])
    assert hash(Cut.vertical(0.3, 0.6)) == hash(Cut.vertical(0.3, 0.6))


def test_cut_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Cut.full().t1 = 0.5


@pytest.mark.parametrize(("share", "d", "size"), [(0.5, 7, 4), (0.5, 5, 2), (0.1, 10, 1), (1.0, 3, 3), (0.0, 3, 0)])
def test_a_share_selects_the_first_coordinates_rounded_to_an_integer(share, d, size):
    assert Cut.horizontal(share).indices(d).tolist() == list(range(size))
    assert Cut.horizontal(share).complement(d).tolist() == list(range(size, d))


def test_explicit_indices_are_stochastic_and_the_rest_deterministic():
    cut = Cut.horizontal([4, 0])
    assert cut.indices(5).tolist() == [0, 4]
    assert cut.complement(5).tolist() == [1, 2, 3]
    assert cut.splits(5)
    assert not Cut.full().splits(5)
    assert not Cut.none().splits(5)


def test_indices_by_name_follow_the_flat_order_of_the_module():
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))  # 6 + 3 + 3 + 1 parameters
    assert indices.by_name(net, "0.bias") == (6, 7, 8)
    assert indices.by_name(net, "2.*") == (9, 10, 11, 12)
    assert indices.by_name(net, "*.bias", "2.weight") == (6, 7, 8, 9, 10, 11, 12)
    with pytest.raises(ValueError, match=r"expected a parameter matching '1\.\*', got only 0\.weight"):
        indices.by_name(net, "1.*")


def test_indices_by_magnitude_and_at_random_have_the_requested_size():
    assert indices.by_magnitude(torch.tensor([0.1, -3.0, 2.0, -2.0]), 0.5) == (1, 2)
    chosen = indices.at_random(100, 0.3, seeded(1))
    assert len(set(chosen)) == 30
    assert chosen == indices.at_random(100, 0.3, seeded(1)) != indices.at_random(100, 0.3, seeded(2))
    with pytest.raises(ValueError, match=r"expected a share in \[0, 1\], got 1\.5"):
        indices.by_magnitude(torch.zeros(3), 1.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cut.vertical(0.6, 0.3), "expected 0 <= t1 < t2 <= 1, got t1=0.6, t2=0.3"),
        (lambda: Cut.vertical(0.5, 0.5), "expected 0 <= t1 < t2 <= 1, got t1=0.5, t2=0.5"),
        (lambda: Cut.vertical(-0.1, 0.5), "expected 0 <= t1 < t2 <= 1"),
        (lambda: Cut.vertical(0.1, 1.5), "expected 0 <= t1 < t2 <= 1"),
        (lambda: Cut.vertical(float("nan"), 1), "expected 0 <= t1 < t2 <= 1"),
        (lambda: Cut.ode_first(0), "expected 0 < ratio <= 1, got 0"),
        (lambda: Cut.sde_first(1.2), "expected 0 < ratio <= 1, got 1.2"),
        (lambda: Cut.horizontal(1.5), r"expected a share in \[0, 1\] or a sequence of indices, got 1.5"),
        (lambda: Cut.horizontal(-0.5), r"expected a share in \[0, 1\]"),
        (lambda: Cut.horizontal(True), r"expected a share in \[0, 1\] or a sequence of indices, got True"),
        (lambda: Cut.horizontal([1, 2, 1]), "expected distinct indices, got 1 more than once"),
        (lambda: Cut.horizontal([-1]), "expected indices to be integers >= 0, got -1"),
        (lambda: Cut.horizontal([0.5]), "expected indices to be integers >= 0, got 0.5"),
        (lambda: Cut.horizontal([0, 5]).indices(5), "expected indices below d=5, got 5"),
        (lambda: Cut.horizontal(0.01).indices(10), "expected a share of at least one of d=10 coordinates, got 0.01"),
        (lambda: Cut.vertical(0, 1, "fixed"), "expected t2 < 1 with at_t2='fixed', got t2=1"),
        (lambda: Cut.vertical(0, 0.5, "jump"), "expected at_t2 to be one of continue, fixed, learned, got 'jump'"),
        (
            lambda: Cut.both(0, 0.5, 0.0, "fixed"),
            "expected a stochastic coordinate with at_t2='fixed', got an empty set",
        ),
    ],
)
def test_impossible_cuts_are_rejected_with_a_one_line_error(make, message):
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
