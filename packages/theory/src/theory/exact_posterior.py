"""A model with a known posterior: y = X w_1 + e, weights that follow an Ornstein-Uhlenbeck process, any cut.

    log evidence = log N(y; X m, K),    w_1 | y ~ N(m + G (y - X m), C - G X C),    K = I + X C X^T,  G = C X^T K^{-1}

m and C are the mean and covariance of w_1 under the prior of the cut; C is singular if some weights have no noise. With
the prior's drift in deterministic phases and coordinates, training reaches the evidence and the posterior, up to an
error of order dt. With a free drift, and with the MAP price of the deterministic part, it reaches something else: the
closed forms of `theory.best_drifts` say what.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch

from sdeweights import Cut, WeightProcess, path_action
from theory.best_drifts import Price, Problem
from theory.certificate import Certificate
from theory.equations import SOLVERS, sample
from theory.free_drift import DATA, W0
from theory.linear_gaussian import PRIOR, Law
from theory.statistics import STANDARD_ERRORS, sup
from theory.trained_drifts import Stage, process_of, train

CLAIM = "Posterior"
STEPS, PATHS = 40, 20_000
STAGES = (Stage(8, 400, 0.1), Stage(STEPS, 60, 0.03))
CUTS = {
    "full": Cut.full(),
    "SDE-first": Cut.sde_first(0.5),
    "ODE-first": Cut.ode_first(0.5),
    "three phases": Cut.vertical(0.25, 0.75),
    "horizontal": Cut.horizontal([0, 2]),
    "both": Cut.both(0.25, 0.75, [0, 2]),
}


class Fit(NamedTuple):
    """How far a process is from the evidence and the posterior of its prior."""

    gap: float  # log evidence - objective
    mean_error: float  # largest |E w_1 - posterior mean|
    ratios: tuple[float, ...]  # Var w_1 / posterior variance of each weight that is random under the posterior


class Measured(NamedTuple):
    """The fit of a trained process, with the standard errors of its first two numbers."""

    fit: Fit
    gap_error: float
    mean_error: float
    apart: float  # sum of |w_D - w_D of the first sample|


def problem(name: str, steps: int = STEPS) -> Problem:
    """The regression of `theory.free_drift` with one of the cuts."""
    return Problem(DATA, W0, CUTS[name], steps)


def fit_of(of: Problem, price: Price, law: Law, objective: float) -> Fit:
    """Compare a law of w_1 and an objective with the prior that belongs to the price."""
    posterior = of.posterior(price)
    random = posterior.cov.diagonal() > 1e-9
    ratios = (law.cov.diagonal() / posterior.cov.diagonal())[random]
    return Fit(of.log_evidence(price) - objective, sup(law.mean - posterior.mean), tuple(ratios.tolist()))


def best_fit(name: str, price: Price, steps: int = STEPS) -> Fit:
    """The fit of the best drift, in closed form."""
    of = problem(name, steps)
    return fit_of(of, price, *of.best(price))


@lru_cache(maxsize=32)
def trained(name: str, price: Price, seed: int) -> WeightProcess:
    """A trained process; w_0 is not trained."""
    return train(problem(name), price, STAGES, seed)


def measure(process: WeightProcess, of: Problem, price: Price, solver: str, seed: int) -> Measured:
    """Sample a process. log dQ/dP has the mean of the KL and, near the posterior, less variance in the objective."""
    path = sample(process, of.steps, PATHS, solver, seed + 1)
    with torch.no_grad():
        values = of.data.log_likelihood(path.w[:, -1]) - path.log_ratio
        if price is Price.CHARGED:
            values = values - path_action(PRIOR, path, of.cut)
    w, root = path.w[:, -1], len(values) ** 0.5
    fit = fit_of(of, price, Law(w.mean(0), torch.cov(w.T)), float(values.mean()))
    apart = float((path.w - path.w[:1])[..., of.D].abs().sum())
    return Measured(fit, float(values.std()) / root, float(w.std(0).max()) / root, apart)


def certify(seed: int = 0) -> list[Certificate]:
    """The best drift of every cut and price, then trained processes, with each solver, and an untrained one."""
    return [
        *[c for name in CUTS for c in _best(name)],
        *[c for name in CUTS for solver in SOLVERS for c in _trained(name, solver, seed)],
        *[c for solver in SOLVERS for c in _other_prices(solver, seed)],
        _untrained(seed),
    ]


def _row(statement: str, measured: float, relation: str, bound: float) -> Certificate:
    why = "rounding, and prices of 1e-12 and 1e12 instead of 0 and infinity"
    return Certificate(CLAIM, statement, measured, relation, bound, 1e-7, why)


def _best(name: str) -> Iterator[Certificate]:
    evidence = problem(name).log_evidence()
    kept, finer = (best_fit(name, Price.KEPT, steps) for steps in (STEPS, 2 * STEPS))
    order, ratio = f"{name}, prior's drift, best: ratio of the gap for dt and dt/2", kept.gap / finer.gap
    spread = max(abs(r - 1) for r in kept.ratios)
    yield _row(f"{name}, prior's drift, best: relative gap to the log evidence", kept.gap / -evidence, "<=", 0.01)
    yield Certificate(CLAIM, order, ratio, "==", 2, 0.2, "order dt^2")
    yield _row(f"{name}, prior's drift, best: |E w_1 - posterior mean|", kept.mean_error, "==", 0)
    yield _row(f"{name}, prior's drift, best: largest |Var w_1 / posterior variance - 1|", spread, "<=", 0.1)
    if name != "full":
        free, charged = best_fit(name, Price.FREE), best_fit(name, Price.CHARGED)
        yield _row(f"{name}, free drift, best: objective - log evidence", -free.gap, ">=", 2)
        yield _row(f"{name}, free drift, best: |E w_1 - posterior mean|", free.mean_error, ">=", 1)
        yield _row(f"{name}, MAP price, best: objective - log evidence, full prior", -charged.gap, ">=", 0.1)
        yield _row(f"{name}, MAP price, best: |E w_1 - posterior mean|, full prior", charged.mean_error, "==", 0)


def _trained(name: str, solver: str, seed: int) -> Iterator[Certificate]:
    of, evidence, why = problem(name), -problem(name).log_evidence(), f"{STANDARD_ERRORS} standard errors"
    found = measure(trained(name, Price.KEPT, seed), of, Price.KEPT, solver, seed)
    gap, error = found.fit.gap / evidence, STANDARD_ERRORS * found.gap_error / evidence
    of_mean, of_ratio = STANDARD_ERRORS * found.mean_error, STANDARD_ERRORS * (2 / PATHS) ** 0.5
    spread, what = max(abs(r - 1) for r in found.fit.ratios), f"{name}, trained, {solver}"
    yield Certificate(CLAIM, f"{what}: relative gap of the ELBO to the log evidence", gap, "<=", 0.01, error, why)
    yield Certificate(CLAIM, f"{what}: relative gap, a lower bound", gap, ">=", 0, error, why)
    yield Certificate(CLAIM, f"{what}: |E w_1 - posterior mean|", found.fit.mean_error, "<=", 0.02, of_mean, why)
    yield Certificate(CLAIM, f"{what}: |Var w_1 / posterior variance - 1|", spread, "<=", 0.2, of_ratio, why)
    if len(of.D):
        yield Certificate(CLAIM, f"{what}: spread of w_D over samples", found.apart, "==", 0)


def _other_prices(solver: str, seed: int) -> Iterator[Certificate]:
    """The cut with deterministic phases before and after the window and a deterministic weight."""
    of, why = problem("both"), f"{STANDARD_ERRORS} standard errors"
    free, charged = (
        measure(trained("both", price, seed), of, price, solver, seed) for price in (Price.FREE, Price.CHARGED)
    )
    for found, what, least in ((free, "free drift", 2.0), (charged, "MAP price", 0.1)):
        beyond, error = f"both, {what}, trained, {solver}: objective - log evidence", STANDARD_ERRORS * found.gap_error
        yield Certificate(CLAIM, beyond, -found.fit.gap, ">=", least, error, why)
    narrow, error = f"both, free drift, trained, {solver}: Var w_1 / posterior variance", charged.mean_error
    mean = f"both, MAP price, trained, {solver}: |E w_1 - posterior mean|"
    yield Certificate(CLAIM, narrow, max(free.fit.ratios), "<=", 0.5)
    yield Certificate(CLAIM, mean, charged.fit.mean_error, "<=", 0.02, STANDARD_ERRORS * error, why)


def _untrained(seed: int) -> Certificate:
    of = problem("full")
    found = measure(process_of(of, Price.KEPT, STEPS, seed), of, Price.KEPT, SOLVERS[0], seed)
    return _row("control, untrained: relative gap to the log evidence", found.fit.gap / -of.log_evidence(), ">=", 0.1)
