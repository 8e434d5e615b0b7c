"""The paper's objective charges drifts in the stochastic phase only; a drift in a deterministic phase costs nothing.

    objective = E log p(y | w_1) - E 1/2 int_{t1}^{t2} |g_SS^{-1} (f_q - f_p)_S|^2 dt

For a fixed drift in the deterministic phases (and of w_D) it is a lower bound of the log evidence: that of a prior with
the same deterministic drift. As this drift is trained, the prior is fitted to the data by maximum likelihood:

(a) SDE-first, t2 < 1. Take f_q = f_p up to t2 and f_q = c (w* - w) after it. The KL is 0, and w_1 -> w* with a variance
    of e^{-2c(1 - t2)} times that at t2. So the supremum is the log-likelihood of the maximum-likelihood weights w*. It
    exceeds the log evidence of every prior of w_1, as a maximum exceeds a mean: it is no bound of the evidence.
(b) ODE-first. w_{t1} is free, and its best value makes E w_1 = w*; the covariance of w_1 stays. Deterministic
    coordinates of a horizontal cut are just as free.
(c) Remedies. If deterministic phases keep f_q = f_p, the objective is a bound, and Doob's transform of the prior
    attains it. Or the deterministic path pays its action, `kl.path_kl` over [0, 1]:

        1/2 int |g^{-1} (f_q - f_p)|^2 dt        over the deterministic phases, and for w_D over [0, 1].

    Then the best deterministic path is the mode given the rest, and E w_1 is right. The supremum exceeds the log
    evidence of the fully stochastic prior by a constant, 1/2 ln det(I + v H): v is the prior variance of the noise that
    is not drawn, H the information of y about the state at the end of the deterministic phase.

docs/THEORY.md has the arguments. All statements are measured on a regression with three weights
(`theory.linear_gaussian`), whose likelihood depends on w_1 alone.
"""

import math

import torch
from torch import Tensor

from sdeweights import Cut, PriorPlus, WeightPath, WeightProcess, kl
from sdeweights.testing import affine_bottleneck, affine_posterior, seeded
from theory.certificate import Certificate
from theory.equations import SOLVERS, sample
from theory.linear_gaussian import FREE, KEPT, PRIOR, Chain, Drift, Law, Regression
from theory.statistics import STANDARD_ERRORS, mean_and_variance, sup

CLAIM = "Free drift"
STEPS, PATHS, RATE = 40, 4_000, 4.0
SDE_FIRST, ODE_FIRST, FULL = Cut.sde_first(0.5), Cut.ode_first(0.5), Cut.full()
NAMES = {SDE_FIRST: "SDE-first", ODE_FIRST: "ODE-first"}
W0 = torch.tensor([0.5, 0.5, -0.5], dtype=torch.float64)
X = [[1.5, -0.3, -2.2], [0.6, -1.1, -1.4], [0.4, 0.8, -0.7], [-0.4, -0.6, 0.2], [-0.9, 1.0, 0.8], [0.6, 0.4, 1.2]]
Y = [2.4, 1.6, 0.3, 1.5, -2.9, 1.9]
DATA = Regression(torch.tensor(X, dtype=torch.float64), torch.tensor(Y, dtype=torch.float64))


def chain(cut: Cut, steps: int = STEPS) -> Chain:
    """The Euler chain of a vertical cut, from W0."""
    return Chain.of(cut, W0, steps)


def log_evidence(*cuts: Cut) -> float:
    """The log evidence of the prior of a vertical cut; for several cuts, the largest one."""
    return max(DATA.log_evidence(chain(cut).prior()) for cut in cuts)


def towards_most_likely(rate: float, after: bool) -> PriorPlus:
    """f_q = rate (w* - w) after t = 1/2, or before it, and f_p otherwise: a network of the paper, for every solver."""
    net = affine_bottleneck(len(W0), rate * DATA.most_likely / 2, 0.0, (1 - rate) / 2)
    slope = 1e5 if after else -1e5  # the gates of the last layer, otherwise 1/2, are 0 or 1 to the last bit
    with torch.no_grad():
        net.layers[1].gate_slope.fill_(slope)  # type: ignore[operator]
        net.layers[1].gate_bias.fill_(-slope * (0.5 - 0.5 / STEPS))  # type: ignore[operator]
    return PriorPlus(PRIOR, net)


def in_closed_form(rate: float, on: Tensor) -> Drift:
    """The same drift for the chain, in the steps where `on` is 1."""
    eye = torch.eye(len(W0), dtype=W0.dtype)
    return Drift(on[:, None] * rate * DATA.most_likely / STEPS, on[:, None, None] * (rate - 1) * eye / STEPS)


def volume(cut: Cut) -> float:
    """1/2 ln det(I + v H), by which the charged objective of SDE-first or ODE-first can exceed the log evidence."""
    half = STEPS // 2  # steps of the deterministic phase
    v = float(chain(FULL).laws(chain(FULL).prior_drift)[half].cov[0, 0])
    data = DATA if cut == SDE_FIRST else DATA.before((1 - 1 / STEPS) ** half, v)
    return 0.5 * float(torch.logdet(torch.eye(len(W0), dtype=W0.dtype) + v * data.information))


def best_kept(cut: Cut, steps: int = STEPS, price: float = 1.0) -> tuple[Law, float]:
    """The law of w_1, and log evidence - objective, for the best drift in the window; the KL has the factor `price`."""
    model = chain(cut, steps)
    drift = model.best(DATA, torch.where(model.noisy > 0, price, KEPT))
    gap = DATA.log_evidence(model.prior()) - model.objective(DATA, drift, price * model.noisy)
    return model.laws(drift)[-1], gap


def near_the_best(cut: Cut, prices: Tensor, seed: int, drifts: int = 100) -> float:
    """The largest objective of drifts at random distances from the best one for the given prices."""
    model, generator = chain(cut), seeded(seed)
    best, values = model.best(DATA, torch.where(prices > 0, prices, KEPT)), []
    for k in range(drifts):
        b, A = (torch.randn(part.shape, generator=generator, dtype=torch.float64) for part in best)
        size = 10 ** (-3 * k / drifts) * model.dt * (prices > 0)
        drift = Drift(best.b + size[:, None] * b, best.A + size[:, None, None] * A)
        values.append(model.objective(DATA, drift, prices))
    return max(values)


def certify(seed: int = 0) -> list[Certificate]:
    """(a) SDE-first, (b) ODE-first and the horizontal cut, then (c) the two remedies."""
    return [
        *[c for solver in SOLVERS for c in _contracting(seed, solver)],
        *_limits(),
        *_mean_for_free(),
        *[c for solver in SOLVERS for c in _free_coordinates(seed, solver)],
        *[_kept(seed, solver) for solver in SOLVERS],
        *[c for cut in NAMES for c in _bound(seed, cut)],
        *[c for cut in NAMES for c in _charged(seed, cut)],
    ]


def _row(statement: str, measured: float, relation: str, bound: float) -> Certificate:
    why = "rounding, and prices of 1e-12 and 1e12 instead of 0 and infinity"
    return Certificate(CLAIM, statement, measured, relation, bound, 1e-7, why)


def _mean(statement: str, x: Tensor, relation: str, bound: float) -> Certificate:
    error, why = float(x.std()) / math.sqrt(len(x)), f"{STANDARD_ERRORS} standard errors of {len(x)} paths"
    return Certificate(CLAIM, statement, float(x.mean()), relation, bound, STANDARD_ERRORS * error, why)


def _objective_and_action(process: WeightProcess, path: WeightPath) -> tuple[Tensor, Tensor]:
    """The paper's objective of each path, and what the deterministic phases and coordinates would have to pay."""
    with torch.no_grad():
        action = kl.path_kl(process.drift, PRIOR, path, FULL) - path.kl
    return DATA.log_likelihood(path.w[:, -1]) - path.kl, action


def _contracting(seed: int, solver: str) -> list[Certificate]:
    process = WeightProcess(W0, towards_most_likely(RATE, after=True), PRIOR, SDE_FIRST)
    path, model = sample(process, STEPS, PATHS, solver, seed), chain(SDE_FIRST)
    drift = in_closed_form(RATE, 1 - model.noisy)
    law, (objective, action) = model.laws(drift)[-1], _objective_and_action(process, path)
    beyond, what = objective - log_evidence(SDE_FIRST, FULL), f"{RATE:g} (w* - w) after t2, {solver}"
    return [
        Certificate(CLAIM, f"SDE-first, {what}: largest KL", sup(path.kl), "==", 0),
        *mean_and_variance(CLAIM, f"w_1, {what}", path.w[:, -1, 0], float(law.mean[0]), float(law.cov[0, 0])),
        _mean(f"SDE-first, {what}: objective - log evidence", beyond, ">=", 4),
        _mean(f"SDE-first, {what}: action", action, "==", float(model.costs(drift).sum())),
        _mean(f"control, {what}: objective - action - log evidence", beyond - action, "<=", 0),
    ]


def _limits() -> list[Certificate]:
    model, half = chain(SDE_FIRST), STEPS // 2
    fast, still = in_closed_form(half, 1 - model.noisy), model.prior_drift
    ratios = [float(laws[-1].cov[0, 0] / laws[half].cov[0, 0]) for laws in (model.laws(fast), model.laws(still))]
    top, prior = float(DATA.log_likelihood(DATA.most_likely)), model.objective(DATA, still, model.noisy)
    return [
        _row(f"SDE-first, rate {half}: Var w_1 / Var w_t2", ratios[0], "<=", 1e-6),
        _row(f"SDE-first, rate {half}: objective", model.objective(DATA, fast, model.noisy), "==", top),
        _row("control, prior drift: Var w_1 / Var w_t2", ratios[1], ">=", 0.3),
        _row("control, prior drift: objective - log evidence", prior - log_evidence(SDE_FIRST), "<=", 0),
    ]


def _mean_for_free() -> list[Certificate]:
    model = chain(ODE_FIRST)
    free, kept = (model.best(DATA, torch.where(model.noisy > 0, 1.0, price)) for price in (FREE, KEPT))
    law, as_kept = (model.laws(drift)[-1] for drift in (free, kept))
    beyond = model.objective(DATA, free, model.noisy) - log_evidence(ODE_FIRST, FULL)
    return [
        _row("ODE-first, best free drift: |E w_1 - w*|", sup(law.mean - DATA.most_likely), "==", 0),
        _row("ODE-first: change of Cov w_1 by the free drift", sup(law.cov - as_kept.cov), "==", 0),
        _row("ODE-first, best free drift: objective - log evidence", beyond, ">=", 3),
        _row("control, ODE-first, drift kept: |E w_1 - w*|", sup(as_kept.mean - DATA.most_likely), ">=", 0.5),
    ]


def _free_coordinates(seed: int, solver: str) -> list[Certificate]:
    """A horizontal cut with S = {1}: a constant drift takes w_D to its most likely values."""
    cut, law = Cut.horizontal([1]), chain(FULL).prior()
    S, D = cut.indices(3), cut.complement(3)
    noise_on_S = Law(law.mean, law.cov * (torch.arange(3) == S))  # a diagonal covariance loses its other entries
    target = torch.linalg.lstsq(DATA.X[:, D], DATA.y - DATA.X[:, S] @ law.mean[S]).solution
    push = torch.zeros_like(W0).index_copy(0, D, (target - law.mean[D]) / (1 - (1 - 1 / STEPS) ** STEPS))
    process = WeightProcess(W0, affine_posterior(PRIOR, cut, 3, push), PRIOR, cut)
    path = sample(process, STEPS, PATHS, solver, seed)
    objective, action = _objective_and_action(process, path)
    beyond = objective - max(DATA.log_evidence(noise_on_S), log_evidence(FULL))
    return [
        Certificate(CLAIM, f"horizontal, w_D free, {solver}: largest KL", sup(path.kl), "==", 0),
        _mean(f"horizontal, w_D free, {solver}: objective - log evidence", beyond, ">=", 1),
        _mean(f"control, horizontal, {solver}: objective - action - log evidence", beyond - action, "<=", 0),
    ]


def _kept(seed: int, solver: str) -> Certificate:
    process = WeightProcess(W0, towards_most_likely(2.0, after=False), PRIOR, SDE_FIRST)
    path, model = sample(process, STEPS, PATHS, solver, seed), chain(SDE_FIRST)
    exact = model.objective(DATA, in_closed_form(2.0, model.noisy), model.noisy)
    objective, action = _objective_and_action(process, path)
    return _mean(f"SDE-first, 2 (w* - w) before t2, {solver}: objective - action", objective - action, "==", exact)


def _bound(seed: int, cut: Cut) -> list[Certificate]:
    evidence, exact = log_evidence(cut), DATA.posterior(chain(cut).prior())
    (law, gap), (_, finer), (_, twice), (_, half) = (
        best_kept(cut, *how) for how in ((STEPS, 1.0), (2 * STEPS, 1.0), (STEPS, 2.0), (STEPS, 0.5))
    )
    spread = sup(law.cov.diagonal() / exact.cov.diagonal() - 1)
    tried, what = near_the_best(cut, chain(cut).noisy, seed) - evidence, f"{NAMES[cut]}, drift kept"
    return [
        _row(f"{what}: best objective, relative gap to the log evidence", gap / -evidence, "<=", 0.006),
        Certificate(CLAIM, f"{what}: ratio of this gap for dt and dt/2", gap / finer, "==", 2, 0.2, "order dt^2"),
        _row(f"{what}: |E w_1 - posterior mean|", sup(law.mean - exact.mean), "==", 0),
        _row(f"{what}: largest relative error of Var w_1", spread, "<=", 0.1),
        _row(f"{what}: largest objective - log evidence of 100 drifts", tried, "<=", 0),
        _row(f"control, {what}, no 1/2 in the KL: relative gap", twice / -evidence, ">=", 0.02),
        _row(f"control, {what}, half the KL: best objective - log evidence", -half, ">=", 0.1),
    ]


def _charged(seed: int, cut: Cut) -> list[Certificate]:
    """The action is charged; evidence and posterior are those of the fully stochastic prior."""
    model, whole, what = chain(cut), chain(FULL).prior(), f"{NAMES[cut]}, action charged"
    paid, evidence = torch.ones_like(model.noisy), log_evidence(FULL)
    drift = model.best(DATA, paid)
    law, beyond = model.laws(drift)[-1], model.objective(DATA, drift, paid) - evidence
    tried, why = max(beyond, near_the_best(cut, paid, seed) - evidence), "order dt"
    return [
        _row(f"{what}: |E w_1 - posterior mean|", sup(law.mean - DATA.posterior(whole).mean), "==", 0),
        Certificate(CLAIM, f"{what}: best objective - log evidence", beyond, "==", volume(cut), 0.1, why),
        _row(f"{what}: the same, largest of 100 drifts", tried, "<=", volume(cut)),
    ]
