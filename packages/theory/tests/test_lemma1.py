"""Lemma 1 with its condition corrected. Each property has a negative control in which it is false."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal, kl_divergence

from sdeweights import Brownian, Cut, OrnsteinUhlenbeck, kl
from sdeweights.testing import cuts
from theory import lemma1
from theory.equations import SOLVERS, affine_process, random_process, sample
from theory.lemma1 import Chain, log_ratio, rate
from theory.statistics import STANDARD_ERRORS
from theory.strategies import invertible_matrices, orthogonal_matrices

dimensions = st.integers(1, 4)


@given(dimensions.flatmap(lambda d: st.tuples(invertible_matrices(d), invertible_matrices(d))))
def test_rate_is_the_kl_of_one_step_of_any_length(pair):
    sigma_q, sigma_p = pair
    for dt in (1.0, 1e-4):
        q, p = (MultivariateNormal(torch.zeros(len(s)), s @ s.T * dt) for s in pair)
        expected = kl_divergence(q, p).item()  # torch's own, by Cholesky factors
        assert rate(sigma_q, sigma_p) == pytest.approx(expected, rel=1e-6, abs=1e-8)
    assert rate(sigma_q, sigma_p) > -1e-9


def test_rate_of_the_variances_alone_would_be_wrong():
    """Negative control: 1/2 (tr M - d - ln det M) with sigma instead of sigma sigma^T is not the KL."""
    sigma = torch.tensor([[2.0]])
    careless = 0.5 * (2 - 1 - torch.log(torch.tensor(2.0)).item())
    assert abs(careless - rate(sigma, torch.eye(1))) > 0.5


@given(dimensions.flatmap(lambda d: st.tuples(invertible_matrices(d), orthogonal_matrices(d))))
def test_orthogonal_factor_on_the_right_costs_nothing(pair):
    sigma, R = pair
    assert rate(sigma @ R, sigma) == pytest.approx(0, abs=1e-9)
    assert rate(-sigma, sigma) == pytest.approx(0, abs=1e-9)


def test_condition_of_the_paper_calls_a_kl_of_zero_infinite_and_a_left_factor_does_cost():
    """Negative control: sigma_q != sigma_p holds for -sigma, whose KL is 0; and a factor R on the left costs KL."""
    sigma = torch.diag(torch.tensor([1.0, 3.0]))
    R = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    assert not torch.equal(-sigma, sigma)
    assert rate(-sigma, sigma) == 0
    assert rate(R @ sigma, sigma) == pytest.approx(0.5 * (9 + 1 / 9 - 2))


def chain_kl(rho, gap, steps):
    """KL of two chains of `steps` steps whose constant drifts differ by `gap`, by Gaussian algebra."""
    return steps * rate(rho * torch.eye(1), torch.eye(1)) + 0.5 * gap**2


@given(st.floats(0.1, 5).filter(lambda rho: abs(rho - 1) > 0.05), st.sampled_from([-1, 1]), st.integers(1, 20))
def test_kl_of_unequal_diffusions_doubles_with_the_steps(rho, sign, n):
    once, twice = (chain_kl(sign * rho, 0.0, steps) for steps in (n, 2 * n))
    assert twice == pytest.approx(2 * once, rel=1e-12)
    assert twice > once > 0


@pytest.mark.parametrize("solver", SOLVERS)
def test_kl_of_equal_diffusions_does_not_grow_with_the_steps(solver):
    """Negative control: with rho = 1 any number of steps gives the same KL, by algebra and in the integrator."""
    assert chain_kl(1.0, 0.7, 10) == chain_kl(1.0, 0.7, 1000) == pytest.approx(0.245)
    process = affine_process(Cut.full(), Brownian(), torch.zeros(1), constant=0.7)
    assert [sample(process, n, 1, solver, 0).kl.item() for n in (10, 1000)] == pytest.approx([0.245] * 2)


def gap_between_kl_and_densities(cut, seed, steps, solver):
    sigma = torch.tensor([0.3, 0.5, 0.8])
    prior = OrnsteinUhlenbeck(sigma=sigma)
    process = random_process(cut, prior, torch.ones(3), seed)
    path = sample(process, steps, 5, solver, seed)
    q, p = Chain(process.drift, torch.diag(sigma)), Chain(prior.drift, torch.diag(sigma))
    with torch.no_grad():
        return (log_ratio(path, q, p, cut) - path.kl_stl).abs().max().item()


@given(
    cuts(3).filter(lambda cut: not cut.deterministic),
    st.integers(0, 10**6),
    st.integers(3, 12),
    st.sampled_from(SOLVERS),
)
def test_kl_and_its_martingale_are_the_log_ratio_of_the_transitions_of_the_path(cut, seed, steps, solver):
    # rounding: log-densities of |w| <= 10 at dt >= 1e-4 are up to 1e6
    assert gap_between_kl_and_densities(cut, seed, steps, solver) < 1e-6


@pytest.mark.parametrize("solver", SOLVERS)
def test_kl_without_its_half_is_not_the_log_ratio(solver, monkeypatch):
    """Negative control."""
    monkeypatch.setattr(kl, "_HALF", 1.0)
    assert gap_between_kl_and_densities(Cut.full(), 0, 10, solver) > 0.1


@pytest.mark.parametrize("solver", SOLVERS)
def test_slope_in_sampled_paths_distinguishes_rho_2_from_rho_1(solver):
    one = torch.eye(1)
    slope, error = lemma1.slope_in_steps(2 * one, one, (4, 8, 16), 2000, 1, solver)
    # fails by chance with probability 7e-6; the seed is fixed
    assert abs(slope - 0.8068528) < STANDARD_ERRORS * error
    none, _ = lemma1.slope_in_steps(one, one, (4, 8, 16), 100, 1, solver)
    assert none == 0


def test_certificates_hold_for_another_seed_and_fail_for_a_wrong_slope(monkeypatch):
    monkeypatch.setattr(lemma1, "PATHS", 2000)
    assert all(c.holds for c in lemma1.certify(seed=7))
    monkeypatch.setattr(lemma1, "rate", lambda sigma_q, sigma_p: 2 * rate(sigma_q, sigma_p))
    assert not all(c.holds for c in lemma1.certify(seed=7))
