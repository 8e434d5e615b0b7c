"""Final time, KL, noise and gradients of every Euler solver. Negative controls are integrators broken on purpose."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sdeweights import Cut, flow, kl
from sdeweights.testing import cuts, index_sets, seeded
from theory import integration
from theory.closed_forms import (
    SIGMA,
    SIGMAS,
    THETA,
    D,
    constant_drift,
    decay,
    end_of_constant_drift,
    end_of_mean_reversion,
    mean_reversion,
    slope_of_kl,
)
from theory.equations import SOLVERS
from theory.figure_paths import STEPS, euler_sum, figure_1, figure_2, polynomial_figure_1, separated_figure_2
from theory.integration import coupled_on_D, spread_on_D, uncoupled_but_undeclared

solvers = st.sampled_from(SOLVERS)
resetless = cuts(D).filter(lambda cut: not cut.resets)
each_solver = pytest.mark.parametrize("solver", SOLVERS)


@given(resetless, st.integers(3, 50), st.floats(0.1, 3), st.floats(-3, 3), solvers)
def test_weights_and_hidden_state_are_integrated_to_t_1_exactly(cut, steps, sigma, drift, solver):
    driven = constant_drift(cut, steps, solver, sigma=sigma, drift=drift)
    path = driven.path
    assert path.times[0] == 0
    assert path.times[-1] == 1
    # atol: rounding of 50 steps
    torch.testing.assert_close(path.w[:, -1], end_of_constant_drift(driven, drift), atol=1e-12, rtol=0)
    h1 = flow(lambda t, h, w: 1 + 0 * h, torch.zeros(1, 1), path)
    torch.testing.assert_close(h1, torch.ones(2, 1, 1), atol=1e-12, rtol=0)


@each_solver
def test_noise_of_another_sigma_is_seen_in_the_final_weights(solver):
    driven, louder = (constant_drift(Cut.vertical(0.3, 0.6), 30, solver, sigma=s) for s in (SIGMA, 1.01 * SIGMA))
    assert (louder.path.w[:, -1] - end_of_constant_drift(driven)).abs().max() > 1e-4


@given(resetless, st.integers(3, 50), solvers)
def test_mean_reversion_has_the_closed_form_of_eulers_chain(cut, steps, solver):
    driven = mean_reversion(cut, steps, solver)
    torch.testing.assert_close(driven.path.w[:, -1], end_of_mean_reversion(driven), atol=1e-12, rtol=0)
    (slope,) = torch.autograd.grad(driven.path.w[:, -1].mean(0).sum(), driven.process.w0)
    torch.testing.assert_close(slope, torch.full((D,), decay(driven.path)[0]), atol=1e-12, rtol=0)


@each_solver
def test_mean_reversion_of_fine_steps_approaches_the_exponential(solver):
    driven = mean_reversion(Cut.none(), 400, solver)
    assert decay(driven.path)[0] == pytest.approx(math.exp(-THETA), rel=0.01)  # theta^2 dt / 2 = 0.005
    assert abs(decay(mean_reversion(Cut.none(), 3, solver).path)[0] - math.exp(-THETA)) > 0.05


@given(cuts(D), st.integers(3, 50), st.floats(0.1, 3), st.floats(-3, 3), solvers)
def test_kl_of_a_constant_gap_is_half_its_square_over_the_window(cut, steps, sigma, gap, solver):
    driven = constant_drift(cut, steps, solver, sigma=sigma, drift=gap)
    energy = len(cut.indices(D)) * (gap / sigma) ** 2 * (cut.t2 - cut.t1)
    assert driven.path.kl.tolist() == pytest.approx([energy / 2] * 2, rel=1e-12, abs=1e-300)


@given(cuts(D), st.integers(3, 50), st.floats(0.1, 3), st.floats(-3, 3), solvers)
def test_gradient_of_the_kl_has_no_half(cut, steps, sigma, gap, solver):
    driven = constant_drift(cut, steps, solver, sigma=sigma, drift=gap)
    slope = 0 if cut.deterministic else len(cut.indices(D)) * gap / sigma**2 * (cut.t2 - cut.t1)
    assert slope_of_kl(driven) == pytest.approx(slope, rel=1e-10, abs=1e-300)


@given(cuts(D).filter(lambda cut: not cut.deterministic), st.integers(3, 50), solvers)
def test_kl_and_its_gradient_with_one_noise_per_coordinate(cut, steps, solver):
    driven = constant_drift(cut, steps, solver, sigma=SIGMAS, drift=0.7)
    energy = 0.49 * float((1 / SIGMAS[cut.indices(D)] ** 2).sum()) * (cut.t2 - cut.t1)
    assert driven.path.kl.tolist() == pytest.approx([energy / 2] * 2, rel=1e-10)
    assert slope_of_kl(driven) == pytest.approx(energy / 0.7, rel=1e-10)


@each_solver
def test_kl_without_its_half_is_seen(solver, monkeypatch):
    """With a horizon of 1/2 as well the two mistakes would cancel, so the final time has a test of its own."""
    monkeypatch.setattr(kl, "_HALF", 1.0)
    assert constant_drift(Cut.full(), 30, solver).path.kl.tolist() == pytest.approx([D * 4] * 2)


@given(index_sets(D).filter(lambda S: len(S) < D), st.integers(0, 10**6))
def test_deterministic_weights_are_noise_free_whether_integrated_separately_or_together(S, seed):
    cut = Cut.horizontal(S)
    for path in (*(coupled_on_D(cut, seed, solver) for solver in SOLVERS), uncoupled_but_undeclared(cut, seed)):
        assert spread_on_D(path, cut) == 0
        assert (path.w[:, -1, S[0]].diff() != 0).all()


def test_noise_that_leaks_into_the_deterministic_weights_is_seen():
    assert spread_on_D(figure_2(False, 5, seeded()), Cut.horizontal([0])) > 0.1


def test_figure_1_fixed_paths_meet_again_and_kept_ones_do_not():
    for kept, fixed in (
        [figure_1(at_t2, 10, seeded(), steps=100) for at_t2 in ("continue", "fixed")],
        *([polynomial_figure_1(at_t2, 10, solver, 0) for at_t2 in ("continue", "fixed")] for solver in SOLVERS),
    ):
        assert kept.w[:, -1].std() > 0.1
        assert fixed.w[:, -1].std() == 0
        assert fixed.w[:, fixed.times.index(0.6)].std() > 0.1


def test_euler_sums_of_the_figures_are_the_sums_that_they_claim_to_be():
    by_hand = sum((1 - 3 * k / STEPS) / STEPS for k in range(30, 60))
    assert euler_sum(0.3, 0.6) == pytest.approx(by_hand, abs=1e-14)
    assert euler_sum(0, 1) == pytest.approx(-0.5, abs=0.02)  # the integral is -1/2
    w_D = separated_figure_2(2, "euler", 0).w[0, -1, 1].item()
    assert w_D == pytest.approx(math.e - 2, abs=0.02)
    assert abs(w_D - (math.e - 2)) > 1e-3  # Euler's chain is not the differential equation


def test_certificates_hold_for_another_seed():
    certificates = integration.certify(seed=3)
    assert [c.statement for c in certificates if not c.holds] == []
    assert math.isclose(
        next(c.bound for c in certificates if c.statement == "Var w_D(1), f_q not separated"), 0.40672, abs_tol=5e-6
    )
