"""Counts of a forward pass; after the property, the schemes and grids for which it is false."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from sdeweights import Cut, Grid, brownian
from sdeweights.testing import cuts, seeded
from theory import complexity
from theory.complexity import Cost, RandomNumbers, forward_cost


@given(st.integers(1, 6).flatmap(lambda d: st.tuples(st.just(d), cuts(d))), st.integers(3, 40))
def test_counts_are_t_t_and_stochastic_weights_times_stochastic_steps(drawn, steps):
    d_w, cut = drawn
    noisy = 0 if cut.deterministic else Grid.of(cut, steps).sde.steps
    assert forward_cost(cut, d_w, steps) == Cost(steps, steps, len(cut.indices(d_w)) * noisy)


def test_other_schemes_cost_more_and_are_counted():
    """The partner: T, T and r D_s T are Euler's numbers, not those of any scheme."""
    cut = Cut.vertical(0.25, 0.75)
    assert forward_cost(cut, 3, 8, method="midpoint").f_h == 16
    assert forward_cost(cut, 3, 8, ode_solver="rk4").f_q == 4 * 4 + 4
    assert forward_cost(cut, 3, 8, solver="sra1").gaussians == 2 * 3 * 4


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 6), st.integers(1, 4))
def test_normals_are_r_times_those_of_the_sde_bnn_where_r_t_is_an_integer(noisy, quiet, d_w, factor):
    steps = factor * (noisy + quiet)
    cost = forward_cost(Cut.sde_first(noisy / (noisy + quiet)), d_w, steps)
    assert cost.gaussians == factor * noisy * d_w
    full = forward_cost(Cut.full(), d_w, steps)
    assert cost.gaussians * (noisy + quiet) == noisy * full.gaussians
    assert cost.f_q == full.f_q


def test_table_of_the_paper_is_off_for_the_vertical_cut_and_r_t_may_be_rounded():
    """The partner: D_w T normals, as the paper's table has it, are not drawn; nor r D_w T where that is no integer."""
    vertical = complexity.ROWS[1]
    assert forward_cost(vertical.cut, 40, 60).gaussians == 240 != 40 * 60
    assert forward_cost(Cut.sde_first(0.25), 1, 10).gaussians in (2, 3)


def test_a_number_drawn_on_the_side_is_counted():
    with RandomNumbers() as drawn:
        torch.randn(3, generator=seeded())
        torch.empty(2, 2).normal_(generator=seeded())
    assert drawn.count == 7


def test_normals_that_nobody_uses_fail_the_certificates(monkeypatch):
    original = brownian.draw

    def wasteful(n, steps, m, dt, **how):
        torch.randn(n, steps, 2, generator=seeded())
        return original(n, steps, m, dt, **how)

    monkeypatch.setattr(brownian, "draw", wasteful)
    assert [c.holds for c in complexity.certify()] == [True, True, False] * 4


def test_certificates_hold():
    assert all(c.holds for c in complexity.certify())
