"""What a bottleneck of rank r loses. Negative controls: more rank, more variance, a wrong bound."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sdeweights import Cut, WeightProcess
from sdeweights.testing import random_posterior, seeded
from theory import low_rank
from theory.equations import SOLVERS, sample
from theory.linear_gaussian import PRIOR, Chain, Drift, Regression
from theory.low_rank import diagonal, near_orthogonal, of_rank, shortfall
from theory.statistics import STANDARD_ERRORS
from theory.strategies import seeds

STEPS = 40


def problem(seed, d=5, points=9):
    generator = seeded(seed)
    X = 2 * torch.randn(points, d, generator=generator)
    data = Regression(X, X @ torch.randn(d, generator=generator) + torch.randn(points, generator=generator))
    return data, Chain.of(Cut.full(), torch.randn(d, generator=generator), STEPS)


def bound_for(data, chain, rank):
    law = chain.prior()
    return data.log_evidence(law) - shortfall(data, law.cov[0, 0].item(), rank)


@given(seeds, st.integers(0, 5), st.floats(0, 3))
def test_no_drift_of_rank_r_exceeds_the_bound(seed, rank, size):
    data, chain = problem(seed)
    generator = seeded(seed + 1)
    W = torch.linalg.qr(torch.randn(5, max(rank, 1), generator=generator)).Q * (rank > 0)
    bound, best = bound_for(data, chain, rank), chain.best(data, chain.noisy)
    anywhere = chain.with_feedback(best, best.A @ W @ W.T)
    b, A = torch.randn(STEPS, 5, generator=generator), torch.randn(STEPS, 5, len(W.T), generator=generator)
    random = Drift(anywhere.b + size * b / STEPS, anywhere.A + size * A @ W.T / STEPS)
    for drift in (of_rank(data, chain, rank), anywhere, random):
        assert chain.objective(data, drift, chain.noisy) <= bound + 1e-9


@given(seeds, st.integers(0, 4))
def test_one_more_direction_exceeds_the_bound_on_fine_grids(seed, rank):
    """Negative control: the bound is sharp, so the next rank passes it as dt goes to 0."""
    data, chain = problem(seed)
    fine = Chain.of(Cut.full(), chain.w0, 8 * STEPS)
    gain = shortfall(data, 0.43, rank) - shortfall(data, 0.43, rank + 1)
    reached, bound = (fine.objective(data, of_rank(data, fine, r), fine.noisy) for r in (rank + 1, rank))
    assert reached > bound
    assert reached - bound == pytest.approx(gain, abs=0.05 + 0.1 * gain)  # order dt


def test_shortfall_worked_out_on_paper():
    data = Regression(torch.diag(torch.tensor([1.0, 2.0, 3.0])), torch.ones(3))
    # lambda = 1, 4, 9 for v = 1; rank 1 removes the 9
    assert shortfall(data, 1.0, 1) == pytest.approx(0.5 * (1 - 0.693147 + 4 - 1.609438), abs=1e-6)
    assert shortfall(data, 1.0, 3) == 0
    assert shortfall(data, 2.0, 1) > shortfall(data, 1.0, 1)


@pytest.mark.parametrize("solver", SOLVERS)
def test_nonlinear_bottlenecks_stay_below_the_bound(solver):
    data, chain = problem(0)
    bound, paths = bound_for(data, chain, 2), 2000
    for seed in range(5):
        process = WeightProcess(chain.w0, random_posterior(PRIOR, Cut.full(), 5, seed, "2-3"), PRIOR, Cut.full())
        path = sample(process, STEPS, paths, solver, seed)
        values = data.log_likelihood(path.w[:, -1]) - path.kl
        # fails by chance with probability 7e-6
        assert values.mean() < bound + STANDARD_ERRORS * values.std() / paths**0.5


def test_diagonal_drift_needs_a_nearly_orthogonal_design():
    """Negative control: with correlated columns the posterior is not diagonal, and the diagonal drift loses nats."""
    chain = Chain.of(Cut.full(), torch.zeros(20), STEPS)
    even, skew = near_orthogonal(0), near_orthogonal(0, tilt=0.3)
    gaps = [
        data.log_evidence(chain.prior()) - chain.objective(data, diagonal(data, chain), chain.noisy)
        for data in (even, skew)
    ]
    assert gaps[0] < 1
    assert gaps[1] > 5
    feedback = diagonal(even, chain).A
    assert torch.equal(feedback, torch.diag_embed(feedback.diagonal(dim1=-2, dim2=-1)))


def test_certificates_hold_for_another_seed_and_fail_for_a_wrong_bound(monkeypatch):
    process = low_rank.trained(near_orthogonal(7), 7)
    monkeypatch.setattr(low_rank, "trained", lambda data, seed: process)
    assert all(c.holds for c in low_rank.certify(seed=7))
    monkeypatch.setattr(low_rank, "shortfall", lambda *how: 1.5 * shortfall(*how))
    failed = [c.statement for c in low_rank.certify(seed=7) if not c.holds]
    assert "rank 2: ELBO of the best drift, at most" in failed
    assert "bottleneck 2-16-2, trained, euler: ELBO, at most" in failed
