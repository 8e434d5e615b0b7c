"""Flows are homeomorphisms if dt * Lip < 1. Each property has a negative control: a map for which it is false."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sdeweights import Cut, flow
from sdeweights.testing import seeded
from theory import flows
from theory.annulus import Annulus, directions
from theory.equations import SOLVERS
from theory.fields import FOLD_LIPSCHITZ, fold, lipschitz_constant, step_rates
from theory.flows import banach_inverse, liouville_gap, reverse_flow, reversed_path, roughness
from theory.maps import euler_fold, jacobians, winding_number, winding_of_image
from theory.models import random_bottleneck_model, random_model
from theory.strategies import models_with_paths, seeds

LINE = torch.linspace(-3, 3, 301, dtype=torch.float64).unsqueeze(-1)
PLANE = Annulus().sample(2, 12, seeded()).x
plane_models = models_with_paths(2)


def euler(model, path):
    return lambda x: flow(model.f_h, x, path)[0]


def expansion_bounds(rates):
    """Bounds on |psi x - psi y| / |x - y|: prod (1 - rate) and prod (1 + rate), where rate = dt * Lip."""
    return math.prod(1 - rate for rate in rates), math.prod(1 + rate for rate in rates)


def test_as_many_points_as_weight_paths_are_still_a_batch():
    model = random_model(2, 0, cut=Cut.full())
    path = model.paths(3, seeded())
    three, all_points = model.images(PLANE[:3], path), model.images(PLANE, path)[:, :3]
    torch.testing.assert_close(three, all_points, rtol=0, atol=1e-12)  # products of other sizes, rounded differently


@given(models_with_paths(1))
def test_order_on_the_line_is_preserved(drawn):
    model, path = drawn
    assert (model.images(LINE, path)[0].diff(dim=0) > 0).all()


def test_one_coarse_step_on_the_line_does_not_preserve_order():
    """Negative control: dt * Lip = 2; with three steps it is 2/3, and order is preserved."""
    assert (euler_fold(1)(LINE).diff(dim=0) < 0).any()
    assert (euler_fold(3)(LINE).diff(dim=0) > 0).all()


@given(plane_models)
def test_steps_of_a_residual_network_are_inverted_by_contraction(drawn):
    model, path = drawn
    back = banach_inverse(model.f_h, euler(model, path)(PLANE), path)
    assert back == pytest.approx(PLANE, abs=1e-9)  # rounding, amplified by the inverse


def test_two_points_that_one_coarse_step_maps_to_one_cannot_be_recovered():
    """Negative control: x and -x have the same image, so no inverse recovers both."""
    x = torch.tensor([[0.5], [-0.5]])
    y = euler_fold(1)(x)
    assert y[0] == y[1]
    path = random_model(1, 0, cut=Cut.none()).paths(1, seeded(), steps=32)
    one_step = path.__class__(path.ts[[0, -1]], path.w[:, [0, -1]], path.kl)
    assert not torch.allclose(banach_inverse(fold, y, one_step), x, atol=0.1)


@given(plane_models)
def test_reverse_flow_returns_to_the_start(drawn):
    model, path = drawn
    h1 = flow(model.f_h, PLANE, path, "rk4")
    # the scheme is of fourth order and dt * Lip <= 0.4
    assert reverse_flow(model.f_h, h1, path, "rk4")[0] == pytest.approx(PLANE, abs=1e-3)


def test_reverse_flow_along_other_weights_does_not_return():
    """Negative control."""
    model = random_model(2, 0, cut=Cut.full())
    path = model.paths(2, seeded())
    h1 = flow(model.f_h, PLANE, path[0], "rk4")
    assert (reverse_flow(model.f_h, h1, path[0], "rk4")[0] - PLANE).abs().max() < 1e-3
    assert (reverse_flow(model.f_h, h1, path[1], "rk4")[0] - PLANE).abs().max() > 0.05


@given(plane_models)
def test_reversed_path_reversed_is_the_path(drawn):
    _, path = drawn
    twice = reversed_path(reversed_path(path))
    assert torch.equal(twice.w, path.w)
    assert twice.times == pytest.approx(path.times, abs=1e-15)
    assert twice.reset == path.reset


def test_reversed_path_is_another_path_and_jumps_from_right_to_left():
    """Negative control."""
    model = random_model(2, 0, cut=Cut.vertical(0.25, 0.5, "fixed"))
    path = model.paths(1, seeded())
    back = reversed_path(path)
    assert not torch.equal(back.w, path.w)
    assert torch.equal(back.after_reset, path.w[:, path.reset])
    assert torch.equal(back.w[:, back.reset], path.after_reset)
    assert back.times[back.reset] == 0.5


@given(plane_models)
def test_jacobian_determinants_are_positive(drawn):
    model, path = drawn
    assert (torch.linalg.det(jacobians(euler(model, path), PLANE)) > 0).all()


def test_one_coarse_step_reverses_orientation_on_half_of_the_plane():
    """Negative control: the first coordinate becomes |x|, whose derivative x_1 / |x| is negative on the left."""
    x = directions(2, 36, seeded())
    determinants = torch.linalg.det(jacobians(euler_fold(1), x))
    assert determinants == pytest.approx(x[:, 0], abs=1e-12)
    assert (torch.linalg.det(jacobians(euler_fold(3), x)) > 0).all()


@given(plane_models, st.floats(0.1, 3))
def test_image_of_a_circle_winds_once_around_the_image_of_its_centre(drawn, radius):
    model, path = drawn
    assert winding_of_image(euler(model, path), radius) == 1


def test_winding_number_counts_turns_and_rejects_a_curve_that_is_too_coarse():
    """Negative control: 0 for one coarse step, -1 for a reflection, 2 for a double loop, an error for a triangle."""
    assert winding_of_image(euler_fold(1), 2.0) == 0
    assert winding_of_image(lambda x: x * torch.tensor([1.0, -1.0]), 2.0) == -1
    circle = directions(2, 100, seeded())
    twice = torch.view_as_real(torch.view_as_complex(circle) ** 2)
    assert winding_number(twice, torch.zeros(2)) == 2
    assert winding_number(circle, torch.tensor([5.0, 0.0])) == 0
    with pytest.raises(ValueError, match="expected turns below 90 degrees"):
        winding_number(circle[::33], torch.zeros(2))


@given(plane_models, seeds)
def test_distances_change_within_the_bounds(drawn, seed):
    model, path = drawn
    x, y = torch.randn(2, 50, 2, generator=seeded(seed)).unbind(0)
    ratio = (euler(model, path)(x) - euler(model, path)(y)).norm(dim=-1) / (x - y).norm(dim=-1)
    low, high = expansion_bounds(step_rates(model.f_h, path))
    assert low * (1 - 1e-9) > 0
    assert low * (1 - 1e-9) <= ratio.min()  # rounding
    assert ratio.max() <= high * (1 + 1e-9)


def test_bounds_from_half_the_lipschitz_constant_are_violated():
    """Negative control: to the left of 0 the fold contracts by its full constant 2."""
    x = torch.tensor([[-2.0], [-1.0]])
    ratio = float(euler_fold(10)(x).diff(dim=0))
    low, _ = expansion_bounds([FOLD_LIPSCHITZ / 10] * 10)
    assert ratio == pytest.approx(low)
    too_high, _ = expansion_bounds([FOLD_LIPSCHITZ / 20] * 10)
    assert ratio < too_high


@given(plane_models, seeds)
def test_declared_lipschitz_constants_hold_between_random_points(drawn, seed):
    model, path = drawn
    generator = seeded(seed)
    x = torch.randn(50, 2, generator=generator)
    y = x + 0.1 * torch.randn(50, 2, generator=generator)
    for k in (0, path.steps // 2):
        t, w = path.ts[k], path.start(k)[0]
        with torch.no_grad():
            ratio = (model.f_h(t, x, w) - model.f_h(t, y, w)).norm(dim=-1) / (x - y).norm(dim=-1)
        assert ratio.max() <= lipschitz_constant(model.f_h, w) * (1 + 1e-9)
        assert lipschitz_constant(model.f_h, w) <= model.f_h.module.cap * (1 + 1e-9)


def test_half_the_declared_constant_is_too_small():
    """Negative control: for tanh near 0 and A, B with one entry the constant is attained."""
    f_h = random_model(1, 0, cap=3.0, width=1).f_h
    w = torch.tensor([5.0, 4.0, 0.0, 0.0])  # A, B, b, c: scaled from 20 down to the cap
    x = torch.tensor([[-1e-4], [1e-4]])
    slope = float(f_h(torch.tensor(0.0), x, w).diff(dim=0) / x.diff(dim=0))
    assert lipschitz_constant(f_h, w) == pytest.approx(3.0)
    assert slope == pytest.approx(3.0, rel=1e-6)
    assert slope > 0.5 * lipschitz_constant(f_h, w)


@given(plane_models)
def test_log_determinant_is_the_integral_of_the_divergence(drawn):
    model, path = drawn
    assert liouville_gap(model, path, PLANE[:4]) < 1e-2  # fourth order with dt * Lip <= 0.4


def test_log_determinant_of_coarse_steps_is_not_the_integral_of_the_divergence():
    """Negative control: ln (1 - 2/n)^n tends to -2, and is -inf or undefined for n <= 2."""
    x = torch.tensor([[-1.0]])
    gaps = [abs(math.log(float(jacobians(euler_fold(n), x))) + 2) for n in (3, 100)]
    assert gaps[0] > 1
    assert gaps[1] < 0.03


def test_weights_without_jumps_have_exponent_one_half_and_a_jump_is_detected():
    model = random_model(1, 0, cut=Cut.full(), width=1)
    with torch.no_grad():
        path = model.process.sample(2048, 50, generator=seeded())
    assert roughness(path) == pytest.approx(0.5, abs=0.05)
    jump = path.__class__(path.ts, (path.ts > 0.5).double().reshape(1, -1, 1), torch.zeros(1))
    # a fraction s of the lags contains the jump: E |dw| ~ s, while the largest increment stays 1
    assert roughness(jump) == pytest.approx(1, abs=0.05)
    assert jump.w.diff(dim=1).abs().max() == 1


@given(models_with_paths(1, any_cut=False))
def test_largest_increment_of_the_weights_shrinks_with_the_grid(drawn):
    """Continuity in the limit: the largest of n increments is about sqrt(2 ln(n) / n)."""
    model, _ = drawn
    with torch.no_grad():
        coarse, fine = (model.process.sample(n, 4, generator=seeded()) for n in (8, 256))
    largest = [float(path.w.diff(dim=1).abs().max()) for path in (coarse, fine)]
    assert largest[1] < largest[0]


def test_largest_increment_of_weights_with_a_reset_does_not_shrink():
    """Negative control: at a reset w jumps on every grid."""
    model = random_model(1, 0, cut=Cut.sde_first(0.5, "fixed"), width=1)
    jumps = []
    for steps in (16, 1024):
        with torch.no_grad():
            path = model.process.sample(steps, 4, generator=seeded())
        jumps.append(float((path.after_reset - path.w[:, path.reset]).abs().max()))
    assert min(jumps) > 0.3


def test_certificates_of_coarse_steps_hold_and_fail_for_a_field_that_does_not_fold(monkeypatch):
    assert [c.statement for c in flows._coarse_steps() if not c.holds] == []
    monkeypatch.setattr("theory.maps.fold", lambda t, h, w: 0 * h)
    assert not all(c.holds for c in flows._coarse_steps())


def test_an_inverse_that_stops_early_does_not_return_to_the_start():
    model = random_model(2, 1, cut=Cut.full())
    path = model.paths(1, seeded())
    y = euler(model, path)(PLANE)
    assert (banach_inverse(model.f_h, y, path, iterations=1) - PLANE).abs().max() > 1e-3


@given(st.integers(0, 10**6), st.sampled_from(SOLVERS))
def test_euler_networks_along_weights_of_every_solver_are_invertible(seed, solver):
    model = random_bottleneck_model(2, seed, solver)
    path = model.paths(1, seeded(seed))
    image = euler(model, path)
    assert banach_inverse(model.f_h, image(PLANE), path) == pytest.approx(PLANE, abs=1e-9)  # rounding, amplified
    assert (torch.linalg.det(jacobians(image, PLANE)) > 0).all()
    assert winding_of_image(image, 2.0) == 1
