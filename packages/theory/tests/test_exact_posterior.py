"""The best drift of every cut and price, and trained ones. Negative controls: other prices, broken integrators."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import MultivariateNormal

from sdeweights import Cut, WeightProcess, kl, path_action
from sdeweights.solvers.base import OneStepSde
from sdeweights.testing import affine_posterior, seeded
from theory import exact_posterior, free_drift
from theory.best_drifts import Price, Problem, conditioned
from theory.equations import SOLVERS, sample
from theory.exact_posterior import CUTS, STEPS, best_fit, problem
from theory.free_drift import DATA, W0
from theory.linear_gaussian import PRIOR, Law, Regression
from theory.statistics import STANDARD_ERRORS
from theory.strategies import seeds
from theory.trained_drifts import Stage, affine_net, closed_outside, process_of, train

names = st.sampled_from(list(CUTS))
prices = st.sampled_from(list(Price))
QUICK = (Stage(8, 150, 0.1), Stage(STEPS, 20, 0.03))


def regression(seed):
    generator = seeded(seed)
    X, w, e = (torch.randn(shape, generator=generator) for shape in ((6, 3), (3,), (6,)))
    return Regression(X, X @ w + e)


# Closed forms


@given(seeds.map(regression))
def test_posterior_of_a_singular_prior_is_the_limit_of_regular_ones(data):
    law = Law(W0, torch.diag(torch.tensor([0.4, 0.0, 0.3])))
    near = Law(W0, torch.diag(torch.tensor([0.4, 1e-9, 0.3])))
    exact, limit = conditioned(data, law), data.posterior(near)
    assert torch.allclose(exact.mean, limit.mean, atol=1e-6)  # 1e-9 times the data's information
    assert torch.allclose(exact.cov, limit.cov, atol=1e-6)
    assert exact.cov[1].abs().max() == 0
    # the joint law of w_1 and y, conditioned by its density: log p(w, y) - log p(y) = log p(w | y)
    w, noise = exact.mean + 0.1, MultivariateNormal(torch.zeros(6), torch.eye(6))
    joint = MultivariateNormal(*near).log_prob(w) + noise.log_prob(data.y - data.X @ w)
    assert (joint - data.log_evidence(near)).item() == pytest.approx(
        MultivariateNormal(*limit).log_prob(w).item(), rel=1e-6
    )


def test_vertical_cuts_have_the_numbers_of_the_free_drift_claim():
    for name, cut in (("SDE-first", free_drift.SDE_FIRST), ("ODE-first", free_drift.ODE_FIRST)):
        law, gap = free_drift.best_kept(cut)
        kept = best_fit(name, Price.KEPT)
        assert kept.gap == pytest.approx(gap, abs=1e-9)
        exact = DATA.posterior(free_drift.chain(cut).prior()).cov.diagonal()
        assert torch.allclose(torch.tensor(kept.ratios), law.cov.diagonal() / exact)
        charged = free_drift.chain(cut).best(DATA, torch.ones(STEPS))
        objective = free_drift.chain(cut).objective(DATA, charged, torch.ones(STEPS))
        assert -best_fit(name, Price.CHARGED).gap == pytest.approx(objective - free_drift.log_evidence(Cut.full()))


def test_the_price_matters_only_if_something_is_deterministic():
    assert len({best_fit("full", price) for price in Price}) == 1
    assert len({best_fit("horizontal", price).gap for price in Price}) == 3  # negative control


@given(seeds.map(regression), names, prices, seeds, st.floats(0.01, 3))
def test_no_split_drift_exceeds_the_best_one(data, name, price, seed, size):
    """Affine drifts, constant in time, through the integrator; the KL and the action are those of the library."""
    generator, cut, paths = seeded(seed), CUTS[name], 500
    c, slope, A = (size * torch.randn(shape, generator=generator) for shape in ((3,), (3,), (3, 3)))
    process = WeightProcess(W0, affine_posterior(PRIOR, cut, 3, c, slope, A), PRIOR, cut)
    path = sample(process, STEPS, paths, SOLVERS[0], seed)
    values = data.log_likelihood(path.w[:, -1]) - path.kl.detach()
    if price is Price.CHARGED:
        values = values - path_action(PRIOR, path, cut)
    if price is Price.KEPT and name not in ("full", "horizontal"):
        return  # this drift is not kept outside the window
    if price is Price.KEPT and name == "horizontal":
        kept = affine_posterior(PRIOR, cut, 3, c * torch.tensor([1.0, 0, 1]), slope * torch.tensor([1.0, 0, 1]),
                                A * torch.tensor([1.0, 0, 1])[:, None])  # fmt: skip
        path = sample(WeightProcess(W0, kept, PRIOR, cut), STEPS, paths, SOLVERS[0], seed)
        values = data.log_likelihood(path.w[:, -1]) - path.kl.detach()
    best = Problem(data, W0, cut, STEPS).best(price)[1]
    # fails by chance with probability 7e-6
    assert values.mean() < best + STANDARD_ERRORS * values.std() / paths**0.5 + 1e-9


@given(seeds.map(regression))
def test_horizontal_cut_with_a_map_price_exceeds_the_evidence_by_its_volume(data):
    """1/2 ln det(I + v H), with H the information about w_D when w_S is integrated out, up to the dt of w_S."""
    of = Problem(data, W0, CUTS["horizontal"], STEPS)
    v, S, D = of.prior(Price.CHARGED).cov[0, 0], of.S, of.D
    X_S, X_D = data.X[:, S], data.X[:, D]
    H = X_D.T @ torch.linalg.solve(torch.eye(6) + v * X_S @ X_S.T, X_D)
    volume = 0.5 * torch.logdet(torch.eye(1) + v * H).item()
    law, objective = of.best(Price.CHARGED)
    given_D = Regression(X_S, data.y - X_D @ law.mean[D])
    only_S = Problem(given_D, W0[S], Cut.full(), STEPS)
    of_dt = only_S.log_evidence() - only_S.best(Price.KEPT)[1]
    assert objective - of.log_evidence(Price.CHARGED) == pytest.approx(volume - of_dt, abs=1e-7)
    assert torch.allclose(law.mean, of.posterior(Price.CHARGED).mean, atol=1e-7)


def test_free_drift_ends_at_the_most_likely_weights_if_there_is_a_deterministic_phase():
    for name, cut in CUTS.items():
        law, objective = problem(name).best(Price.FREE)
        apart = (law.mean - DATA.most_likely).abs().max()
        free = cut.t2 - cut.t1 < 1  # negative control: otherwise w_S pays for every shift
        assert (apart < 1e-6) if free else (apart > 0.1), name
        if cut.t2 < 1:  # the noise is removed after t2
            assert objective == pytest.approx(DATA.log_likelihood(DATA.most_likely).item(), abs=1e-6)


# Training


def test_net_starts_at_zero_and_its_hidden_layers_pass_on_w():
    net, w, t = affine_net(3, 0), torch.randn(5, 3, generator=seeded(1)), torch.tensor(0.3)
    assert net(t, w).abs().max() == 0
    with torch.no_grad():
        net.layers[2].weight.copy_(torch.cat([torch.eye(3), -torch.eye(3)], 1))
        # gates 1/2, sigmoid(4 t - 4) and 1/2, of which the last one is that of the output
        factor = 0.25 * (1 + 2 * torch.sigmoid(4 * t - 4)) * 2 * 0.5
        assert torch.allclose(net(t, w), factor * w, atol=1e-12)


@pytest.mark.parametrize("name", ["SDE-first", "ODE-first", "three phases", "both"])
def test_a_kept_drift_is_the_prior_outside_the_window_to_the_last_bit(name):
    cut, w = CUTS[name], torch.randn(5, 2, generator=seeded(1))
    net = closed_outside(affine_net(2, 0), cut, STEPS)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn(p.shape, generator=seeded(2))) if p.requires_grad else None
        for steps in (8, STEPS):
            for k in range(steps):
                inside = cut.t1 <= k / steps < cut.t2
                size = net(torch.tensor(k / steps), w).abs().max()
                assert (size > 1e-4) if inside else (size == 0), (steps, k)


@pytest.fixture(scope="module")
def quick():
    """A process with the prior's drift after t2, trained for three seconds."""
    torch.set_default_dtype(torch.float64)
    return train(problem("SDE-first"), Price.KEPT, QUICK, 0)


def failing(monkeypatch, process, name="SDE-first"):
    monkeypatch.setattr(exact_posterior, "trained", lambda name, price, seed: process)
    rows = [c for solver in SOLVERS for c in exact_posterior._trained(name, solver, 0)]
    return {c.statement.split(": ")[1] for c in rows if not c.holds}


GAP, BOUND = "relative gap of the ELBO to the log evidence", "relative gap, a lower bound"
MEAN, VARIANCE = "|E w_1 - posterior mean|", "|Var w_1 / posterior variance - 1|"


def test_trained_process_reaches_evidence_mean_and_variance_with_each_solver(quick, monkeypatch):
    assert failing(monkeypatch, quick) == set()
    assert torch.equal(quick.w0, W0)


def test_certificates_reject_an_untrained_process(quick, monkeypatch):
    untrained = process_of(problem("SDE-first"), Price.KEPT, STEPS, 0)
    assert failing(monkeypatch, untrained) == {GAP, MEAN, VARIANCE}


def test_certificates_reject_a_kl_without_its_half(quick, monkeypatch):
    monkeypatch.setattr(kl, "_HALF", 1.0)
    assert GAP in failing(monkeypatch, quick)


def test_certificates_reject_a_missing_kl_as_no_lower_bound(quick, monkeypatch):
    monkeypatch.setattr(kl, "_HALF", 0.0)
    assert BOUND in failing(monkeypatch, quick)


def test_certificates_reject_a_horizon_of_one_half(quick, monkeypatch):
    whole = OneStepSde.solve
    half = lambda times: [times[0] + (t - times[0]) / 2 for t in times]  # noqa: E731
    monkeypatch.setattr(OneStepSde, "solve", lambda self, eq, w, ts, noise: whole(self, eq, w, half(ts), noise))
    assert {GAP, MEAN} <= failing(monkeypatch, quick)


def test_certificates_reject_the_posterior_of_another_cut(quick, monkeypatch):
    """The process is that of SDE-first, the evidence that of three phases."""
    monkeypatch.setitem(CUTS, "SDE-first", Cut.vertical(0.25, 0.75))
    assert GAP in failing(monkeypatch, quick)


def test_free_drift_exceeds_the_evidence_by_training(monkeypatch):
    process = train(problem("SDE-first"), Price.FREE, (Stage(8, 100, 0.1),), 0)
    found = exact_posterior.measure(process, problem("SDE-first"), Price.FREE, SOLVERS[0], 0)
    assert -found.fit.gap > 4
    assert max(found.fit.ratios) < 0.5
    assert {BOUND, MEAN, VARIANCE} <= failing(monkeypatch, process)


def test_deterministic_weights_have_no_noise_during_training():
    process = train(problem("both"), Price.CHARGED, (Stage(8, 30, 0.1),), 0)
    found = exact_posterior.measure(process, problem("both"), Price.CHARGED, SOLVERS[1], 0)
    assert found.apart == 0
    moved = sample(process, STEPS, 1, SOLVERS[1], 0).w[0, -1, 1]
    assert abs(moved - W0[1] * (1 - 1 / STEPS) ** STEPS) > 0.1  # w_D was trained


def test_a_wrong_price_of_a_shift_is_found(monkeypatch):
    """Twice the reach of the deterministic weights: the best mean is no longer the posterior mean."""
    reach = Problem._reach
    monkeypatch.setattr(Problem, "_reach", lambda self, prices: 2 * reach(self, prices))
    failed = [c.statement for c in exact_posterior._best("horizontal") if not c.holds]
    assert "horizontal, MAP price, best: |E w_1 - posterior mean|, full prior" in failed


@pytest.mark.deep
@pytest.mark.parametrize("seed", [0, 3])
def test_all_certificates_hold_after_full_training(seed):
    assert [c.statement for c in exact_posterior.certify(seed) if not c.holds] == []


def test_quick_and_full_training_use_the_same_final_grid():
    assert exact_posterior.STAGES[-1].steps == QUICK[-1].steps == STEPS
    assert math.isclose(problem("full").chain().dt, 1 / STEPS)
