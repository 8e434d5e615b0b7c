"""Theorem 4.1 with its bound sharpened to 1. Negative controls: models that escape it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sdeweights import Cut
from sdeweights.testing import seeded
from theory import theorem41
from theory.annulus import Annulus
from theory.flows import euler_fold
from theory.models import random_model
from theory.separation import CommonPoint, Hyperplane, best_output, best_sup, common_point, sup_error
from theory.strategies import annuli, models_with_paths, seeds
from theory.theorem41 import augmented, images, judge_trained, random_output, train_to_break

dimensions = st.sampled_from([1, 2, 3])
flows_of_any_dimension = dimensions.flatmap(models_with_paths)


def flowed(drawn, annulus, n=60):
    model, path = drawn
    d = model.f_h.unflatten(path.w[0, 0])["c"].numel()
    return images(model, annulus.sample(d, n if d < 3 else 3 * n, seeded()), path)


def folded(annulus, steps):
    return tuple(euler_fold(steps)(part) for part in annulus.sample(2, 60, seeded()))


def margin(L, ball, ring):
    """min(-max over the ball, min over the ring): positive if the hyperplane separates them."""
    return min(-float(L(ball).max()), float(L(ring).min()))


def best_margin(ball, ring):
    return margin(best_output(ball, ring), ball, ring)


@given(flows_of_any_dimension, annuli(), seeds)
def test_no_output_layer_gets_below_1_on_the_images_of_a_flow(drawn, annulus, seed):
    ball, ring = flowed(drawn, annulus)
    assert best_sup(ball, ring) >= 1 - 1e-6  # tolerance of the linear programme
    assert sup_error(random_output(ball.shape[1], seed), ball, ring) >= 1
    assert best_margin(ball, ring) <= 0


@given(annuli())
def test_one_coarse_step_gets_below_1_and_finer_steps_do_not(annulus):
    """Negative control: the Euler network with dt * Lip = 2 is not a flow, and escapes for all radii."""
    ball, ring = folded(annulus, 1)
    assert best_sup(ball, ring) < 1 - 1e-6
    assert best_margin(ball, ring) > 0
    assert best_sup(*folded(annulus, 3)) >= 1 - 1e-6


@given(flows_of_any_dimension, annuli())
def test_hulls_of_the_images_of_a_flow_meet_in_a_verified_point(drawn, annulus):
    ball, ring = flowed(drawn, annulus)
    common = common_point(ball, ring)
    assert common.residual(ball, ring) < 1e-9
    # for any L:  s - 1 >= mean of L over mu = mean over lambda >= 1 - s
    L = best_output(ball, ring)
    assert float(common.mu @ L(ball)) == pytest.approx(float(common.lam @ L(ring)), abs=1e-6)


def test_hulls_of_a_folded_plane_do_not_meet_and_false_common_points_are_rejected():
    """Negative control."""
    ball, ring = folded(Annulus(), 1)
    assert common_point(ball, ring) is None
    mu, lam = (torch.full((len(part),), 1 / len(part)) for part in (ball, ring))
    assert CommonPoint(mu, lam).residual(ball, ring) > 0.1
    assert CommonPoint(2 * mu, lam).residual(ball, ring) == float("inf")
    negative = mu.clone()
    negative[0], negative[1] = -1.0, 1.0 + 2 / len(mu)
    assert CommonPoint(negative, lam).residual(ball, ring) == float("inf")


@given(annuli(), dimensions, seeds)
def test_one_more_dimension_represents_z_along_every_weight_path(annulus, d, seed):
    outputs, sample = augmented(annulus, d, 5, seed)
    assert (outputs - sample.z).abs().max() < 0.5


def test_one_more_dimension_fails_if_the_noise_is_as_large_as_the_weight_or_z_has_another_sign():
    """Negative control."""
    outputs, sample = augmented(Annulus(), 2, 20, 0, sigma=5.0)
    assert (outputs - sample.z).abs().max() > 0.5
    outputs, sample = augmented(Annulus(), 2, 5, 0)
    assert (outputs + sample.z).abs().max() == 2


@given(annuli(), dimensions, seeds)
def test_sample_lies_in_the_domain_and_has_its_values(annulus, d, seed):
    sample = annulus.sample(d, 20, seeded(seed))
    radius, rounding = sample.x.norm(dim=-1), 1e-9 * annulus.r3
    ball, ring = sample.z == -1, sample.z == 1
    assert (ball | ring).all()
    assert (radius[ball] <= annulus.r1 + rounding).all()
    assert (radius[ring] >= annulus.r2 - rounding).all()
    assert (radius[ring] <= annulus.r3 + rounding).all()
    assert sample.x.shape[1] == d
    assert (sample.ball == 0).all(-1).any()


def test_radii_out_of_order_are_rejected():
    """Negative control."""
    with pytest.raises(ValueError, match="expected 0 < r1 < r2 < r3"):
        Annulus(2.0, 1.0, 3.0)


@given(dimensions, seeds)
def test_best_output_layer_beats_random_ones_and_separates_separable_points(d, seed):
    generator = seeded(seed)
    ball, ring = torch.randn(2, 30, d, generator=generator).unbind(0)
    best = best_sup(ball, ring)
    assert all(best <= sup_error(random_output(d, k), ball, ring) + 1e-6 for k in range(5))
    apart = ring + 100
    assert best_margin(ball, apart) > 0
    assert common_point(ball, apart) is None


def test_margin_of_a_hyperplane_on_the_wrong_side_is_negative():
    """Negative control."""
    ball, ring = torch.tensor([[-1.0]]), torch.tensor([[1.0]])
    right, wrong = (Hyperplane(torch.tensor([a]), 0.0) for a in (1.0, -1.0))
    assert margin(right, ball, ring) == 1
    assert margin(wrong, ball, ring) == -1
    assert margin(right, ball, ball) < 0


def test_steps_too_long_for_a_homeomorphism_are_rejected():
    model = random_model(2, 0, cap=1000.0, width=8)
    with pytest.raises(ValueError, match=r"expected dt \* Lip < 1"):
        model.paths(1, seeded(), steps=4)


def test_training_does_not_break_the_bound_but_does_with_one_more_dimension(monkeypatch):
    monkeypatch.setattr(theorem41, "FINEST", 1024)
    cut = Cut.ode_first(0.2)
    stuck = judge_trained(train_to_break(5, cut, iterations=60), 5)
    assert stuck.own >= 1
    assert stuck.best >= 1 - 1e-6
    assert stuck.residual < 1e-12
    escaped = judge_trained(train_to_break(0, cut, extra=1, iterations=100), 0)
    assert escaped.best < 0.95
    assert escaped.residual == float("inf")


def test_certificates_of_coarse_steps_and_augmentation_hold():
    certificates = [theorem41._sharp(), *theorem41._coarse(), *theorem41._augmented(1)]
    assert [c.statement for c in certificates if not c.holds] == []


@pytest.mark.deep
def test_training_hard_from_many_starts_does_not_break_the_bound():
    for seed in range(8):
        verdict = judge_trained(train_to_break(seed, Cut.ode_first(0.2), iterations=600), seed)
        assert min(verdict.own, verdict.best + 1e-6) >= 1
