"""Theorem A.1 and its networks: the bounds hold between grid points, where the grid alone is not enough."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from theory import theorem_a1
from theory.laws import APPROXIMATED, Bimodal, Circle, HeteroscedasticGaussian
from theory.networks import Family, Shallow, largest_radius, sensitivity
from theory.theorem_a1 import approximation, bounded, cells, noise_radius, sup_error

seeds = st.integers(0, 2**31 - 1)
families = st.sampled_from(list(Family))
directions = st.floats(0, 2 * math.pi)


@st.composite
def shallow_networks(draw, family=None):
    """Networks of 1 to 6 units from R^2 to R^1 or R^2 with normal parameters."""
    source = torch.Generator().manual_seed(draw(seeds))
    units, d_out = draw(st.integers(1, 6)), draw(st.integers(1, 2))
    normal = lambda *shape: torch.randn(shape, generator=source)  # noqa: E731
    return Shallow(family or draw(families), normal(units, 2), normal(units), normal(d_out, units), normal(d_out))


def box(side, n=200, seed=0):
    return side * (2 * torch.rand(n, 2, generator=torch.Generator().manual_seed(seed)) - 1)


@given(shallow_networks(), st.floats(0.5, 5))
def test_a_network_as_layers_of_torch_is_the_same_function(net, side):
    z = box(side)
    with torch.no_grad():
        torch.testing.assert_close(net.module(side)(z), net(z), atol=1e-11, rtol=1e-11)  # shifts of 100 cancel


@given(shallow_networks(Family.DEEP))
def test_a_deep_network_has_fixed_width_and_one_layer_per_unit(net):
    layers = [layer for layer in net.module(1.0) if isinstance(layer, torch.nn.Linear)]
    assert len(layers) == len(net.b) + 1
    assert {layer.out_features for layer in layers[:-1]} == {2 + len(net.c) + 1}


def test_a_deep_network_is_another_function_outside_its_reach():
    net = Shallow(Family.DEEP, torch.eye(2), torch.zeros(2), -torch.ones(1, 2), torch.zeros(1))
    with torch.no_grad():
        assert float((net.module(1.0)(box(5.0)) - net(box(5.0))).abs().max()) > 1


@given(shallow_networks(), st.floats(0.01, 1), directions)
def test_a_network_deviates_from_its_tangent_by_at_most_the_remainder(net, radius, angle):
    z = box(2.0)
    step = radius * torch.tensor([math.cos(angle), math.sin(angle)])
    left = (net(z + step) - net(z) - net.slopes(z) @ step).norm(dim=-1)
    assert bool((left <= net.remainder(z, radius) + 1e-12).all())


@pytest.mark.parametrize("family", Family)
def test_a_network_deviates_from_its_tangent_by_more_than_a_tenth_of_the_remainder(family):
    net = Shallow(family, torch.tensor([[1.0, 0.0]]), torch.zeros(1), torch.ones(1, 1), torch.zeros(1))
    z = torch.cartesian_prod(torch.linspace(-2, 2, 201), torch.zeros(1))
    step = torch.tensor([0.5, 0.0])
    left = (net(z + step) - net(z) - net.slopes(z) @ step).norm(dim=-1)
    assert bool((left > net.remainder(z, 0.5) / 10 + 1e-9).any())


@given(shallow_networks(), st.floats(1e-4, 0.5), seeds)
def test_moving_the_parameters_moves_the_output_by_at_most_the_bound(net, rho, seed):
    layers, z = net.module(1.5), box(1.0)
    with torch.no_grad():
        before = layers(z)
        shake(layers, rho, seed)
        moved = float((layers(z) - before).norm(dim=-1).max())
    assert moved <= sensitivity(net.module(1.5), math.sqrt(2), rho) + 1e-12


def shake(layers, rho, seed):
    """Move all parameters together by a vector of length rho."""
    source = torch.Generator().manual_seed(seed)
    moves = [torch.randn(parameter.shape, generator=source) for parameter in layers.parameters()]
    length = math.sqrt(sum(float((move**2).sum()) for move in moves))
    for parameter, move in zip(layers.parameters(), moves, strict=True):
        parameter += rho / length * move


def test_moving_one_weight_by_the_whole_radius_comes_close_to_the_bound():
    net = Shallow(Family.WIDE, torch.zeros(1, 2), torch.zeros(1), 3 * torch.ones(1, 1), torch.zeros(1)).module(1.0)
    with torch.no_grad():
        net[0].bias += 0.01
        moved = float(net(torch.zeros(1, 2)).abs().max())
    assert 0.5 * sensitivity(net, 0.0, 0.01) < moved


@given(shallow_networks(), st.floats(0.01, 1))
def test_delta_is_the_largest_radius_within_the_allowed_change(net, allowed):
    layers = net.module(1.0)
    delta = largest_radius(layers, 1.0, allowed)
    assert sensitivity(layers, 1.0, delta) <= allowed < sensitivity(layers, 1.0, 1.01 * delta)


def absorbing(net, V, u):
    """z -> F(V^{-1}(z - u)): a network whose first layer undoes the affine map V eta + u of its Gaussian inputs."""
    A = torch.linalg.solve(V.T, net.A.T).T
    return replace(net, A=A, b=net.b - A @ u)


@given(shallow_networks(), seeds)
def test_any_invertible_map_of_the_noise_is_absorbed_by_the_first_layer(net, seed):
    source = torch.Generator().manual_seed(seed)
    V = torch.eye(2) + 0.3 * torch.rand(2, 2, generator=source)
    u, z = torch.randn(2, generator=source), box(2.0)
    torch.testing.assert_close(absorbing(net, V, u)(z @ V.T + u), net(z), atol=1e-11, rtol=1e-11)


def test_a_singular_map_of_the_noise_cannot_be_absorbed_and_loses_the_law():
    law = HeteroscedasticGaussian()
    net = approximation(law, Family.WIDE, 0.2)
    with pytest.raises(RuntimeError, match="singular"):
        absorbing(net, torch.zeros(2, 2), torch.zeros(2))
    z, _ = cells(1.6, (20, 20))
    silent = z * torch.tensor([1.0, 0.0])  # V = 0: the network gets no noise
    assert float((net(silent) - law.generator(z[:, :1], z[:, 1:])).abs().max()) > 0.4


@given(st.sampled_from(APPROXIMATED), st.floats(-1, 1), st.floats(-1, 1))
def test_no_point_between_the_grid_points_exceeds_the_bound(law, x, share):
    radius = noise_radius(law, 0.2)
    eta = torch.zeros(1, law.m)
    eta[0, 0] = share * radius
    z = torch.tensor([[x, share * radius]])
    error = (approximation(law, Family.WIDE, 0.2)(z) - law.generator(z[:, :1], eta)).norm()
    assert float(error) <= bounded(law, Family.WIDE, 0.2).everywhere


def test_the_error_on_a_coarse_grid_is_not_a_bound_but_the_proved_error_is():
    law, net, radius = Bimodal(), approximation(Bimodal(), Family.WIDE, 0.2), noise_radius(Bimodal(), 0.2)
    coarse, fine = (sup_error(net, law, radius, counts) for counts in ((3, 3), (400, 800)))
    assert coarse.on_grid < fine.on_grid <= fine.everywhere < coarse.everywhere


@given(shallow_networks())
def test_no_network_approximates_a_generator_that_jumps(net):
    """sign(eta), a coin: on one side of the jump a continuous F differs from it by 1, up to the change of F there."""
    z = torch.tensor([[0.0, -1e-9], [0.0, 1e-9]])
    gap = (net(z)[:, :1] - torch.tensor([[-1.0], [1.0]])).abs().max()
    assert float(gap) >= 1 - 1e-6


def test_an_untrained_network_has_a_large_error():
    net = Shallow(Family.WIDE, torch.zeros(1, 2), torch.zeros(1), torch.zeros(2, 1), torch.zeros(2))
    assert sup_error(net, Circle(), 2.0, (50, 50)).on_grid > 1


@pytest.mark.parametrize("family", Family)
def test_both_families_come_within_half_of_epsilon(family):
    sup = bounded(HeteroscedasticGaussian(), family, 0.2)
    assert sup.on_grid <= sup.everywhere < 0.1


def test_reach_is_the_quantile_of_the_length_of_the_noise():
    assert noise_radius(Bimodal(), 0.1) == pytest.approx(1.959964, abs=1e-6)
    assert noise_radius(Circle(), 0.1) == pytest.approx(math.sqrt(-2 * math.log(0.05)), abs=1e-9)


@pytest.mark.deep
def test_all_certificates_hold():
    assert all(certificate.holds for certificate in theorem_a1.certify())


def test_certificates_fail_with_two_units(monkeypatch):
    monkeypatch.setattr(theorem_a1, "UNITS", {Family.WIDE: 2, Family.DEEP: 2})
    net = theorem_a1.approximation.__wrapped__(Circle(), Family.WIDE, 0.1)
    assert sup_error(net, Circle(), noise_radius(Circle(), 0.1), (100, 200)).everywhere > 0.05
