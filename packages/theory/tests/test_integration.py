"""Final time, KL and noise of the weight process; after each property, an integrator for which it is false."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sdeweights import Cut, flow, integrate, kl
from sdeweights.solvers.base import OneStepSde
from sdeweights.solvers.runge_kutta import RungeKutta
from sdeweights.testing import cuts, index_sets, seeded
from theory import integration
from theory.integration import (
    D,
    constant_drift,
    coupled_on_D,
    figure_1,
    figure_2,
    spread_on_D,
    uncoupled_but_undeclared,
)

resetless = cuts(D).filter(lambda cut: not cut.resets)


def every_second_step_empty(solve):
    """What `next_t = target_t - curr_t` on a uniform grid does."""

    def halved(self, *arguments):
        *front, times, noise = arguments if isinstance(self, OneStepSde) else (*arguments, None)
        stretched = [times[0] + (t - times[0]) / 2 for t in times]
        return solve(self, *front, stretched, *([] if noise is None else [noise]))

    return halved


@given(resetless, st.integers(3, 50))
def test_weights_and_hidden_state_are_integrated_to_t_1_exactly(cut, steps):
    path = constant_drift(cut, steps, sigma=1e-12)
    assert path.times[0] == 0
    assert path.times[-1] == 1
    assert path.w[:, -1] == pytest.approx(torch.ones(2, D), abs=1e-10)  # noise of 1e-12, and rounding
    h1 = flow(lambda t, h, w: 1 + 0 * h, torch.zeros(1, 1), path)
    assert h1 == pytest.approx(torch.ones(2, 1, 1), abs=1e-12)  # rounding


def test_horizon_of_one_half_is_seen_though_the_grid_ends_at_1(monkeypatch):
    """The partner."""
    for scheme in (RungeKutta, OneStepSde):
        monkeypatch.setattr(scheme, "solve", every_second_step_empty(scheme.solve))
    path = constant_drift(Cut.full(), 30, sigma=1e-12)
    assert path.times[-1] == 1
    assert path.w[:, -1] == pytest.approx(torch.full((2, D), 0.5), abs=1e-10)


@given(cuts(D), st.integers(3, 50), st.floats(0.1, 3), st.floats(-3, 3))
def test_kl_of_a_constant_gap_is_half_its_square_over_the_window(cut, steps, sigma, gap):
    path = constant_drift(cut, steps, sigma, gap)
    exact = 0.5 * len(cut.indices(D)) * (gap / sigma) ** 2 * (cut.t2 - cut.t1)
    assert path.kl.tolist() == pytest.approx([exact] * 2, rel=1e-12, abs=1e-300)


def test_kl_without_its_half_is_seen(monkeypatch):
    """The partner; with a horizon of 1/2 besides, the two mistakes cancel, so the final time is looked at as well."""
    exact = 0.5 * D * 4
    monkeypatch.setattr(kl, "integrand", lambda u: (u * u).sum(-1))
    assert constant_drift(Cut.full(), 30).kl.tolist() == pytest.approx([2 * exact] * 2)


@given(index_sets(D).filter(lambda S: len(S) < D), st.integers(0, 10**6))
def test_deterministic_weights_are_noise_free_whether_integrated_apart_or_together(S, seed):
    cut = Cut.horizontal(S)
    for path in (coupled_on_D(cut, seed), uncoupled_but_undeclared(cut, seed)):
        assert spread_on_D(path, cut) == 0
        assert (path.w[:, -1, S[0]].diff() != 0).all()


def test_noise_on_the_deterministic_weights_is_seen(monkeypatch):
    """The partner, twice: by a drift that leaks, and by an integrator that adds noise."""
    assert spread_on_D(figure_2(False, 5, seeded()), Cut.horizontal([0])) > 0.1
    merged = integrate._merged
    monkeypatch.setattr(
        integrate,
        "_merged",
        lambda process, w_S, w_D: merged(process, w_S, w_D + 1e-9 * torch.randn(*w_S.shape[:-1], w_D.shape[-1])),
    )
    assert 0 < spread_on_D(coupled_on_D(Cut.horizontal([0]), 0), Cut.horizontal([0])) < 1e-7


def test_figure_1_fixed_paths_meet_again_and_kept_ones_do_not():
    kept, fixed = (figure_1(at_t2, 10, seeded(), steps=100) for at_t2 in ("continue", "fixed"))
    assert kept.w[:, -1].std() > 0.1
    assert fixed.w[:, -1].std() == 0
    assert fixed.w[:, fixed.times.index(0.6)].std() > 0.1


def test_certificates_hold_for_another_seed():
    certificates = integration.certify(seed=3)
    assert [c.statement for c in certificates if not c.holds] == []
    assert math.isclose(
        next(c.bound for c in certificates if c.statement == "Var w_D(1), f_q not separated"), 0.40672, abs_tol=5e-6
    )
