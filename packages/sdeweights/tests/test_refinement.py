"""The grid is only a discretisation: on finer grids the law of w, its paths and its KL converge.

So weights trained on few steps are good weights on many.
"""

import itertools
import math

import pytest
import torch

from sdeweights import Cut, Grid, OrnsteinUhlenbeck, WeightProcess
from sdeweights.brownian import draw
from sdeweights.testing import affine_posterior, observed_order, random_posterior, seeded

THETA, MU, SIGMA, W0 = 2.0, 0.3, 0.5, 1.5
QUARTERS = (0.25, 0.5, 0.75, 1.0)
COUNTS = (4, 8, 16, 32, 64)
CUTS = {"full": Cut.full(), "vertical": Cut.vertical(0.25, 0.75), "ode-first": Cut.ode_first(0.5)}


@pytest.fixture(params=CUTS)
def cut(request):
    return CUTS[request.param]


def linear(cut, d=1):
    """dw = theta (mu - w) dt + sigma dB inside the window of the cut, and the same without noise elsewhere."""
    prior = OrnsteinUhlenbeck(THETA, MU, SIGMA)
    return WeightProcess(torch.full((d,), W0), affine_posterior(prior, cut, d), prior, cut)


def euler_moments(grid):
    """Mean and variance of Euler's w at every grid point: m + theta (mu - m) h and (1 - theta h)^2 v + sigma^2 h."""
    moments = [(W0, 0.0)]
    for phase in grid.phases:
        h = (phase.stop - phase.start) / phase.steps
        for _ in range(phase.steps):
            m, v = moments[-1]
            noise = SIGMA**2 * h if phase.kind == "sde" else 0.0
            moments.append((m + THETA * (MU - m) * h, (1 - THETA * h) ** 2 * v + noise))
    return {t: moments[grid.index(t)] for t in QUARTERS}


def exact_moments(cut, t):
    """Mean and variance of w_t: noise since t1, and decay since t2."""
    until = min(max(t, cut.t1), cut.t2)
    noise = SIGMA**2 / (2 * THETA) * (1 - math.exp(-2 * THETA * (until - cut.t1)))
    return MU + (W0 - MU) * math.exp(-THETA * t), noise * math.exp(-2 * THETA * (t - until))


@pytest.mark.parametrize("steps", [4, 8, 16])
def test_the_law_at_common_times_is_that_of_euler_on_every_grid(euler, cut, steps):
    """40,000 paths; four standard errors for 4 means and 4 variances, so a case fails by chance once in 2,000."""
    paths = 40_000
    grid = Grid.of(cut, steps)
    with torch.no_grad():
        w = linear(cut).sample(grid, paths, generator=seeded(steps), **euler).w[..., 0]
    for t, (mean, variance) in euler_moments(grid).items():
        found = w[:, grid.index(t)]
        assert found.mean().item() == pytest.approx(mean, abs=4 * math.sqrt(variance / paths) + 1e-12)
        assert found.var().item() == pytest.approx(variance, abs=4 * variance * math.sqrt(2 / paths) + 1e-12)


def test_the_law_at_common_times_changes_between_grids_by_the_discretisation_error_only(cut):
    """Both moments of Euler's law converge to the exact ones with order 1, at every common time."""
    counts = (64, 128, 256, 512)  # one variance needs them: its terms of order 1 and 2 have opposite signs
    for t in QUARTERS:
        for k, exact in enumerate(exact_moments(cut, t)):
            errors = [abs(euler_moments(Grid.of(cut, n))[t][k] - exact) for n in counts]
            if exact == 0:  # the variance up to t1
                assert not any(errors)
            else:
                assert observed_order([1 / n for n in counts], errors) == pytest.approx(1.0, abs=0.05)


def coarsened(process, euler, paths, seed):
    """Paths on the grids of COUNTS, all with the same Brownian motion, drawn on a grid 4 times as fine as the last."""
    coarsest, most = Grid.of(process.cut, COUNTS[0]), 4 * COUNTS[-1] // COUNTS[0]
    finest = coarsest.refine(most)
    dt = (finest.sde.stop - finest.sde.start) / finest.sde.steps
    noise = draw(paths, finest.sde.steps, process.d, dt, generator=seeded(seed))
    factors = [n // COUNTS[0] for n in (*COUNTS, 4 * COUNTS[-1])]
    with torch.no_grad():
        return [process.sample(coarsest.refine(f), noise=noise.coarsen(most // f), **euler) for f in factors]


def random_process(cut):
    """A nonlinear drift that mixes three weights with different sigmas."""
    prior = OrnsteinUhlenbeck(1.5, 0.5, torch.tensor([0.5, 1.0, 0.2]))
    return WeightProcess(torch.tensor([0.4, -0.2, 0.1]), random_posterior(prior, cut, 3), prior, cut)


def test_paths_with_coarsened_increments_converge_strongly_at_all_common_times(euler, cut):
    """Root mean square of the largest error at the times of the coarsest grid; 500 paths determine it to about 3 %.

    The noise is additive, so Euler has the strong order 1, and its distance from the reference, Euler on a grid of N
    steps, is about C (1 / n - 1 / N).
    """
    *paths, reference = coarsened(random_process(cut), euler, 500, seed=1)
    common = lambda path: path.w[:, :: path.steps // COUNTS[0]]  # noqa: E731
    assert all(torch.equal(path.ts[:: path.steps // COUNTS[0]], paths[0].ts) for path in paths)
    errors = [(common(p) - common(reference)).abs().amax((1, 2)).square().mean().sqrt().item() for p in paths]
    dts = [1 / path.steps - 1 / reference.steps for path in paths]
    assert observed_order(dts, errors) == pytest.approx(1.0, abs=0.1)


def test_the_kl_converges_and_its_changes_halve_with_every_refinement(euler, cut):
    """KL of a random drift with the same Brownian motion on all grids, so the differences are not those of the noise.

    The mean over 2,000 paths of the difference of two grids is C / n + O(1 / n^2), and C / n halves if n doubles. Other
    seeds change the ratios by 0.01.
    """
    paths = coarsened(random_process(cut), euler, 2000, seed=2)[:-1]
    kls = [path.kl.mean().item() for path in paths]
    changes = [abs(b - a) for a, b in itertools.pairwise(kls)]
    ratios = [a / b for a, b in itertools.pairwise(changes)]
    assert kls[-1] > 1
    assert changes[-1] < 0.03 * kls[-1]
    assert ratios == pytest.approx([2.0, 2.0, 2.0], abs=0.4)
    assert ratios[-1] == pytest.approx(2.0, abs=0.15)
