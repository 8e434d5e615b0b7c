"""Drifts without a price, and the two remedies. Each property has a negative control in which it is false."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal, kl_divergence

from sdeweights import Cut, WeightProcess, kl
from sdeweights.testing import affine_posterior, seeded
from theory import free_drift
from theory.equations import SOLVERS, sample
from theory.free_drift import DATA, FULL, ODE_FIRST, SDE_FIRST, STEPS, W0, chain, near_the_best
from theory.linear_gaussian import KEPT, PRIOR, Drift, Law, Regression
from theory.statistics import STANDARD_ERRORS
from theory.strategies import seeds

vertical = st.sampled_from([SDE_FIRST, ODE_FIRST, FULL, Cut.vertical(0.25, 0.75)])


def normals(seed, *shapes):
    generator = seeded(seed)
    return [torch.randn(shape, generator=generator) for shape in shapes]


def regression(seed):
    """Six points and three weights, of the size of DATA."""
    X, w, e = normals(seed, (6, 3), (3,), (6,))
    return Regression(X, X @ w + e)


regressions = seeds.map(regression)


def random_drift(seed, on, size):
    b, A = normals(seed, (STEPS, 3), (STEPS, 3, 3))
    return Drift(size * on[:, None] * b / STEPS, size * on[:, None, None] * A / STEPS)


@given(regressions, seeds)
def test_evidence_and_posterior_are_those_of_torch(data, seed):
    (root, mean) = normals(seed, (3, 3), (3,))
    law = Law(mean, root @ root.T + 0.1 * torch.eye(3))
    K = torch.eye(6) + data.X @ law.cov @ data.X.T
    expected = MultivariateNormal(data.X @ mean, K).log_prob(data.y).item()
    assert data.log_evidence(law) == pytest.approx(expected, rel=1e-9)
    posterior = data.posterior(law)
    q, p = (MultivariateNormal(*one) for one in (posterior, law))
    # at the posterior the ELBO is the evidence; anywhere else it is not
    assert data.expected(posterior) - kl_divergence(q, p).item() == pytest.approx(expected, rel=1e-8)
    wide = Law(posterior.mean, 2 * posterior.cov)
    assert data.expected(wide) - kl_divergence(MultivariateNormal(*wide), p).item() < expected - 0.1


@given(regressions, st.floats(0.1, 1.0), st.floats(0.1, 2.0))
def test_regression_on_earlier_weights_has_the_same_evidence(data, decay, variance):
    law = Law(W0, 0.3 * torch.eye(3))
    later = Law(decay * W0, (decay**2 * 0.3 + variance) * torch.eye(3))
    both = data.before(decay, variance), data
    whitening = 0.5 * torch.logdet(torch.eye(6) + variance * data.X @ data.X.T).item()
    assert both[0].log_evidence(law) - whitening == pytest.approx(both[1].log_evidence(later), rel=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("cut", [SDE_FIRST, ODE_FIRST])
def test_closed_forms_are_those_of_the_integrator(solver, cut):
    (c, A), paths = normals(3, (3,), (3, 3)), 4000
    process = WeightProcess(W0, affine_posterior(PRIOR, cut, 3, c, 0.0, A), PRIOR, cut)
    path, model = sample(process, STEPS, paths, solver, 0), chain(cut)
    drift = Drift((c / STEPS).expand(STEPS, -1), (-A / STEPS).expand(STEPS, -1, -1))
    values = DATA.log_likelihood(path.w[:, -1]) - path.kl
    error = STANDARD_ERRORS * values.std().item() / paths**0.5  # fails by chance with probability 7e-6
    assert values.mean().item() == pytest.approx(model.objective(DATA, drift, model.noisy), abs=error)
    charged = DATA.log_likelihood(path.w[:, -1]) - kl.path_kl(process.drift, PRIOR, path, FULL)
    error = STANDARD_ERRORS * charged.std().item() / paths**0.5
    paid = torch.ones(STEPS)
    assert charged.mean().item() == pytest.approx(model.objective(DATA, drift, paid), abs=error)
    assert (charged < values).all()  # negative control: the action is not 0


@given(regressions, vertical, seeds, st.floats(0.01, 10), st.floats(0.1, 3))
def test_no_drift_is_better_than_the_best(data, cut, seed, size, price):
    model = chain(cut)
    prices = torch.where(model.noisy > 0, price, 1 / price)
    best = model.best(data, prices)
    other = Drift(*(x + dx for x, dx in zip(best, random_drift(seed, torch.ones(STEPS), size), strict=True)))
    top = model.objective(data, best, prices)
    assert model.objective(data, other, prices) < top
    # negative control: the best drift for other prices is not the best for these
    assert model.objective(data, model.best(data, 4 * prices), prices) < top


@given(regressions, vertical, seeds, st.floats(0, 10))
def test_kept_drift_gives_a_lower_bound_of_the_evidence(data, cut, seed, size):
    model = chain(cut)
    evidence = data.log_evidence(model.prior())
    best = model.best(data, torch.where(model.noisy > 0, 1.0, KEPT))
    for drift in (best, random_drift(seed, model.noisy, size)):
        assert model.objective(data, drift, model.noisy) < evidence
    # negative control: half the KL gives more, up to 1/2 ln E p^2 >= ln E p as dt goes to 0
    cheap = model.best(data, torch.where(model.noisy > 0, 0.5, KEPT))
    assert model.objective(data, cheap, 0.5 * model.noisy) > model.objective(data, best, model.noisy)


@given(regressions, st.floats(0.1, 0.9))
def test_free_drift_undoes_the_noise_and_exceeds_every_evidence(data, scale):
    model = chain(SDE_FIRST)
    with patch.object(free_drift, "DATA", data):
        fast = free_drift.in_closed_form(STEPS / 2, 1 - model.noisy)
    objective, top = model.objective(data, fast, model.noisy), data.log_likelihood(data.most_likely).item()
    assert objective == pytest.approx(top, abs=1e-6 * data.information.trace().item())
    for law in (model.prior(), chain(FULL).prior(), Law(data.most_likely, scale * torch.eye(3))):
        assert objective > data.log_evidence(law)
    assert float(model.costs(fast)[model.noisy > 0].sum()) == 0
    assert model.objective(data, fast, torch.ones(STEPS)) < objective - 1  # negative control: charged


@given(regressions, st.sampled_from([SDE_FIRST, ODE_FIRST]), seeds)
def test_charged_objective_exceeds_the_full_evidence_by_at_most_the_volume(data, cut, seed):
    model, paid = chain(cut), torch.ones(STEPS)
    with patch.object(free_drift, "DATA", data):
        evidence, volume = free_drift.log_evidence(FULL), free_drift.volume(cut)
        tried = near_the_best(cut, paid, seed, drifts=3)
    best = model.objective(data, model.best(data, paid), paid)
    assert tried <= best <= evidence + volume + 1e-9
    free = model.best(data, torch.where(model.noisy > 0, 1.0, 1e-12))
    assert model.objective(data, free, model.noisy) > best  # negative control: without the charge


def test_charged_window_has_the_fully_stochastic_posterior_and_the_rest_is_its_mode():
    model, half, v = (
        chain(SDE_FIRST),
        STEPS // 2,
        chain(FULL).laws(chain(FULL).prior_drift)[STEPS // 2].cov[0, 0].item(),
    )
    laws = model.laws(model.best(DATA, torch.ones(STEPS)))
    prior = model.laws(model.prior_drift)[half]
    exact = DATA.before((1 - 1 / STEPS) ** half, v).posterior(prior)
    # rounding; 3 % for dt
    assert torch.allclose(laws[half].mean, exact.mean, atol=1e-10)
    assert torch.allclose(laws[half].cov.diagonal(), exact.cov.diagonal(), rtol=0.03)
    # negative control: w_1, as a mode, is narrower than under the posterior
    assert (laws[-1].cov.diagonal() < 0.5 * DATA.posterior(chain(FULL).prior()).cov.diagonal()).all()


@pytest.mark.parametrize("solver", SOLVERS)
def test_gates_switch_the_drift_on_to_the_last_bit(solver):
    process = WeightProcess(W0, free_drift.towards_most_likely(4.0, after=True), PRIOR, SDE_FIRST)
    still = WeightProcess(W0, affine_posterior(PRIOR, SDE_FIRST, 3), PRIOR, SDE_FIRST)
    path, prior = (sample(one, STEPS, 5, solver, 0) for one in (process, still))
    half = STEPS // 2
    assert torch.equal(path.w[:, : half + 1], prior.w[:, : half + 1])
    moved = path.w[:, half] + 4 * (DATA.most_likely - path.w[:, half]) / STEPS
    assert torch.allclose(path.w[:, half + 1], moved, atol=1e-14)


def failing(seed=0):
    return [c.statement for c in free_drift.certify(seed) if not c.holds]


def test_certificates_hold_for_another_seed():
    assert failing(7) == []


def test_certificates_fail_if_the_kl_has_no_half(monkeypatch):
    monkeypatch.setattr(kl, "_HALF", 1.0)
    failed = failing()
    for solver in SOLVERS:
        assert f"SDE-first, 4 (w* - w) after t2, {solver}: action" in failed
        assert f"SDE-first, 2 (w* - w) before t2, {solver}: objective - action" in failed


def test_certificates_fail_if_deterministic_drifts_are_charged(monkeypatch):
    """Negative control: the claim is about the paper's objective, and not true of the remedy."""
    honest = free_drift._objective_and_action

    def charged(process, path):
        objective, action = honest(process, path)
        return objective - action, action

    monkeypatch.setattr(free_drift, "_objective_and_action", charged)
    failed = failing()
    for solver in SOLVERS:
        assert f"SDE-first, 4 (w* - w) after t2, {solver}: objective - log evidence" in failed
        assert f"horizontal, w_D free, {solver}: objective - log evidence" in failed


def test_certificates_fail_without_a_contraction_and_for_a_wrong_volume(monkeypatch):
    monkeypatch.setattr(free_drift, "RATE", 1.0)
    monkeypatch.setattr(free_drift, "volume", lambda cut: 0.0)
    failed = failing()
    assert "SDE-first, 1 (w* - w) after t2, euler: objective - log evidence" in failed
    assert "SDE-first, action charged: the same, largest of 100 drifts" in failed
    assert "ODE-first, action charged: the same, largest of 100 drifts" in failed
