"""0, t1, t2 and 1 are exact grid points."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdeweights import Cut, Grid
from sdeweights.testing import cuts, windows


@given(windows(), st.integers(3, 200))
def test_every_boundary_is_a_grid_point_for_every_window_and_number_of_steps(window, steps):
    t1, t2 = window
    grid = Grid.of(Cut.vertical(t1, t2), steps)
    assert grid.steps == steps == len(grid.times) - 1
    assert grid.times[0] == 0
    assert grid.times[-1] == 1
    assert {t1, t2} <= set(grid.times)
    assert all(a < b for a, b in zip(grid.times, grid.times[1:], strict=False))


@given(cuts(d=4), st.integers(3, 100))
def test_every_phase_gets_a_step_and_counts_are_within_two_of_their_quota(cut, steps):
    grid = Grid.of(cut, steps)
    assert all(phase.steps >= 1 for phase in grid.phases)
    for phase in grid.phases:
        quota = steps * (phase.stop - phase.start)
        assert abs(phase.steps - quota) < 1 or phase.steps == 1 or abs(phase.steps - quota) <= 2


@given(cuts(d=4), st.integers(3, 50), st.integers(1, 8))
def test_refining_keeps_the_coarse_grid_points_bit_identical(cut, steps, factor):
    coarse = Grid.of(cut, steps)
    fine = coarse.refine(factor)
    assert fine.steps == factor * steps
    assert fine.times[::factor] == coarse.times


@pytest.mark.parametrize(
    ("cut", "steps", "counts"),
    [
        (Cut.vertical(0.3, 0.6), 10, [3, 3, 4]),
        (Cut.ode_first(0.1), 30, [27, 3]),
        (Cut.sde_first(0.29), 100, [29, 71]),
        (Cut.sde_first(0.001), 10, [1, 9]),
        (Cut.vertical(0.001, 0.999), 3, [1, 1, 1]),
        (Cut.full(), 7, [7]),
        (Cut.none(), 7, [7]),
        (Cut.horizontal(0.5), 7, [7]),
    ],
)
def test_steps_are_distributed_in_proportion_to_length(cut, steps, counts):
    assert [phase.steps for phase in Grid.of(cut, steps).phases] == counts


@pytest.mark.parametrize(("cut", "needed"), [(Cut.vertical(0.3, 0.6), 3), (Cut.ode_first(0.1), 2), (Cut.full(), 1)])
def test_the_error_for_too_few_steps_says_how_many_are_needed(cut, needed):
    assert Grid.of(cut, needed).steps == needed
    with pytest.raises(
        ValueError, match=f"expected at least {needed} steps, one for each phase of the cut, got {needed - 1}"
    ):
        Grid.of(cut, needed - 1)


def test_steps_and_factors_must_be_integers():
    with pytest.raises(ValueError, match=r"expected steps to be an integer, got 2\.5"):
        Grid.of(Cut.full(), 2.5)
    with pytest.raises(ValueError, match="expected factor to be an integer >= 1, got 0"):
        Grid.of(Cut.full(), 2).refine(0)


def test_index_finds_grid_points_and_nothing_else():
    grid = Grid.of(Cut.vertical(0.3, 0.6), 10)
    assert grid.index(0.3) == 3
    assert grid.index(1.0) == 10
    with pytest.raises(ValueError, match=r"expected a point of the grid, got t=0\.35; the nearest is"):
        grid.index(0.35)


def test_the_number_of_stochastic_steps_can_be_set():
    grid = Grid.of(Cut.ode_first(0.1), steps=6, sde_steps=2)
    assert [(phase.kind, phase.steps) for phase in grid.phases] == [("ode", 4), ("sde", 2)]
    assert grid.times[4] == 0.9
    assert grid.times[-1] == 1.0
    three = Grid.of(Cut.vertical(0.6, 0.7), steps=8, sde_steps=2)
    assert [phase.steps for phase in three.phases] == [4, 2, 2]  # 6 distributed over lengths 0.6 and 0.3
    assert Grid.of(Cut.full(), 5, sde_steps=5) == Grid.of(Cut.full(), 5)


@pytest.mark.parametrize(
    ("cut", "steps", "sde_steps", "message"),
    [
        (Cut.ode_first(0.1), 6, 6, "expected sde_steps from 1 to 5"),
        (Cut.ode_first(0.1), 6, 0, "expected sde_steps from 1 to 5"),
        (Cut.ode_first(0.1), 6, 2.0, "expected sde_steps from 1 to 5"),
        (Cut.full(), 6, 3, "expected sde_steps=6"),
        (Cut.none(), 6, 3, "expected no sde_steps"),
    ],
)
def test_impossible_numbers_of_stochastic_steps_are_rejected(cut, steps, sde_steps, message):
    with pytest.raises(ValueError, match=message):
        Grid.of(cut, steps, sde_steps)
