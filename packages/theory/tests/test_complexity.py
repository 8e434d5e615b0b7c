"""Counts of a forward pass. Negative controls: schemes and grids with other counts."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from sdeweights import Cut, Grid, brownian
from sdeweights.testing import cuts, seeded
from theory import complexity
from theory.complexity import Cost, Watch, forward_cost
from theory.equations import SOLVERS

solvers = st.sampled_from(SOLVERS)


@given(st.integers(1, 6).flatmap(lambda d: st.tuples(st.just(d), cuts(d))), st.integers(3, 40), solvers)
def test_counts_are_t_t_and_stochastic_weights_times_stochastic_steps(drawn, steps, solver):
    d_w, cut = drawn
    noisy = 0 if cut.deterministic else Grid.of(cut, steps).sde.steps
    cost = forward_cost(cut, d_w, steps, solver=solver, ode_solver=solver)
    assert cost == Cost(steps, steps, len(cut.indices(d_w)) * noisy)


def test_other_schemes_cost_more_and_are_counted():
    """Negative control: T, T and r D_s T are the counts of Euler, not of every scheme."""
    cut = Cut.vertical(0.25, 0.75)
    assert forward_cost(cut, 3, 8, method="midpoint").f_h == 16
    assert forward_cost(cut, 3, 8, ode_solver="rk4").f_q == 4 * 4 + 4
    assert forward_cost(cut, 3, 8, solver="sra1").gaussians == 2 * 3 * 4


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 6), st.integers(1, 4))
def test_normals_are_r_times_those_of_the_sde_bnn_if_r_t_is_an_integer(noisy, quiet, d_w, factor):
    steps = factor * (noisy + quiet)
    cost = forward_cost(Cut.sde_first(noisy / (noisy + quiet)), d_w, steps)
    assert cost.gaussians == factor * noisy * d_w
    full = forward_cost(Cut.full(), d_w, steps)
    assert cost.gaussians * (noisy + quiet) == noisy * full.gaussians
    assert cost.f_q == full.f_q


def test_table_of_the_paper_is_wrong_for_the_vertical_cut_and_r_t_may_be_rounded():
    """Negative control: neither D_w T normals are drawn, as in the paper's table, nor r D_w T if r T is no integer."""
    cut, _, _ = complexity.ROWS["vertical"]
    assert forward_cost(cut, 40, 60).gaussians == 240 != 40 * 60
    assert forward_cost(Cut.sde_first(0.25), 1, 10).gaussians in (2, 3)


def test_every_number_drawn_is_counted_and_so_is_every_activation():
    with Watch() as watch:
        torch.randn(3, generator=seeded())
        torch.empty(2, 2).normal_(generator=seeded())
        torch.nn.functional.softplus(torch.tanh(torch.ones(5)))
    assert watch.drawn == 7
    assert (watch.calls["softplus"], watch.calls["tanh"]) == (1, 1)


def test_unused_normals_fail_the_certificates(monkeypatch):
    original = brownian.draw

    def wasteful(n, steps, m, dt, **how):
        torch.randn(n, steps, 2, generator=seeded())
        return original(n, steps, m, dt, **how)

    monkeypatch.setattr(brownian, "draw", wasteful)
    assert [c.holds for c in complexity.certify()] == [True, True, False] * 4 * len(SOLVERS)


def test_certificates_hold():
    assert all(c.holds for c in complexity.certify())
