"""Theorem 4.2:  P(A) >= 1 - eps,  and on A, for all x,  |L psi_1(x) - f~(x, eta)| <= eps.

The proof's model (`theory.construction`) is sampled with the weight process and flow of sdeweights. For every law, eps
and case this gives a Clopper-Pearson lower bound on P(A), and the largest error over the samples in A and a grid of x.
Two bounds need no samples: |F_gamma - f~| <= eps/2 for all x and |eta| <= lambda (Theorem A.1), and |F_w - F_gamma| <=
eps/2 for all w within delta of gamma. That w gets within delta is measured.

If the output is within eps with probability 1 - eps, its law is within eps in the Levy-Prokhorov metric.
"""

import math
from collections.abc import Iterator
from functools import lru_cache

import torch
from scipy import stats
from torch import Tensor

from sdeweights import Brownian, Cut, WeightProcess, flow
from theory import horizontal
from theory.certificate import Certificate
from theory.construction import Case, Construction, construct, sigma_for, variance_share
from theory.dimensions import Dimensions, printed_r
from theory.laws import APPROXIMATED, HeteroscedasticGaussian, SmoothLaw
from theory.networks import Family, sensitivity
from theory.simulation import Outcome, run
from theory.statistics import FALSE_ALARM, STANDARD_ERRORS, at_least, levy
from theory.steering import T2
from theory.theorem_a1 import EPSILONS, bounded

CLAIM = "Theorem 4.2"
SAMPLES = {0.2: 500, 0.1: 1500}  # P(A) is 0.89 where 0.8 is claimed, 0.945 where 0.9 is: 6 and 7 standard errors


def grid(points: int = 51) -> Tensor:
    """Inputs in X = [-1, 1], (points, 1)."""
    return torch.linspace(-1, 1, points, dtype=torch.float64)[:, None]


@lru_cache(maxsize=64)
def outcome(law: SmoothLaw, epsilon: float, case: Case, family: Family = Family.WIDE, seed: int = 0) -> Outcome:
    """Sample the proof's model on the grid of inputs."""
    return run(construct(law, epsilon, case, family), grid(), SAMPLES[epsilon], torch.Generator().manual_seed(seed))


def step_1(sigma: float, n1: int, m: int, samples: int, seed: int) -> Tensor:
    """eta = int_0^1/2 w dt of dw = sigma dB by Euler with n1 steps, (samples, m)."""
    zero = torch.zeros(m, dtype=torch.float64)
    process = WeightProcess(zero, lambda t, w: 0 * w, Brownian(sigma), Cut.vertical(0, T2))  # noqa: ARG005
    with torch.no_grad():
        path = process.sample(2 * n1, samples, generator=torch.Generator().manual_seed(seed))
        gather = lambda t, h, w: w.expand_as(h) if t < T2 else torch.zeros_like(h)  # noqa: E731
        return flow(gather, zero[None], path, vectorize=True)[:, 0]


def certify(seed: int = 0) -> list[Certificate]:
    """Check the dimensions, the noise of Step 1, every law, epsilon and case, and the cut the paper leaves open."""
    return [
        *_dimensions(),
        *_noise(seed),
        *_proved(),
        *[certificate for model in _models() for certificate in _theorem(*model, seed)],
        *_steps_of_the_proof(seed),
        *_law(seed),
        *horizontal.certify(seed),
    ]


def _dimensions() -> list[Certificate]:
    """With m_gamma = 10 the paper's formula gives r = -18, which `Dimensions` rejects."""
    printed = "the printed r = d_h - d_x - d_w for d_x = d_y = m = 1, m_gamma = 10"
    example = Dimensions.of(d_x=1, d_y=1, m=1, m_gamma=10)
    try:
        Dimensions.as_printed(d_x=1, d_y=1, m=1, m_gamma=10)
        rejected = 0.0
    except ValueError:
        rejected = 1.0
    consistent = all(Dimensions.of(1, d_y, m, g).r == d_y for d_y in (1, 2) for m in (2, 5) for g in (1, 99))
    return [
        Certificate(CLAIM, "r = d_y > 0 for 8 sets of dimensions", float(consistent), "==", 1),
        Certificate(CLAIM, printed, printed_r(example), "==", -18),
        Certificate(CLAIM, "the printed r is rejected", rejected, "==", 1),
    ]


def _noise(seed: int) -> list[Certificate]:
    samples, n1 = 10_000, 8
    error = STANDARD_ERRORS * math.sqrt(2 / samples)
    why = f"{STANDARD_ERRORS} standard errors of a variance from {samples} samples"
    printed, matched = (step_1(sigma, n1, 2, samples, seed) for sigma in (sigma_for(None), sigma_for(n1)))
    ks = float(stats.kstest(matched[:, 0].numpy(), "norm").statistic)
    between = float((matched[:, 0] * matched[:, 1]).mean())
    critical = float(stats.kstwo.isf(FALSE_ALARM, samples))
    share, of_printed = variance_share(n1), f"Var eta, sigma = sqrt 24, Euler with {n1} steps"
    return [
        Certificate(CLAIM, of_printed, _var(printed), "==", share, error * share, why),
        Certificate(CLAIM, f"Var eta, sigma for {n1} steps", _var(matched), "==", 1, error, why),
        Certificate(CLAIM, "Cov of two noises", between, "==", 0, STANDARD_ERRORS / math.sqrt(samples), why),
        Certificate(CLAIM, f"KS distance of eta to N(0, 1), n = {samples}", ks, "<=", critical),
        Certificate(CLAIM, "bias of Var eta with sqrt 24 and 256 steps", 1 - variance_share(256), "<=", 0.01),
    ]


def _var(eta: Tensor) -> float:
    return float((eta[:, 0] ** 2).mean())


def _models() -> Iterator[tuple[SmoothLaw, float, Case, Family]]:
    """Three laws, two epsilons, three cases, wide networks; Lemma 3 and deep networks for the smaller epsilon."""
    cases = (Case.FIXED, Case.LEARNED, Case.CONTINUED)
    small = min(EPSILONS)
    yield from ((law, epsilon, case, Family.WIDE) for law in APPROXIMATED for epsilon in EPSILONS for case in cases)
    yield from ((law, small, Case.SHEARED, Family.WIDE) for law in APPROXIMATED)
    yield from ((HeteroscedasticGaussian(), small, case, Family.DEEP) for case in (Case.FIXED, Case.LEARNED))


def _proved() -> list[Certificate]:
    """Bounds on the network's error everywhere, plus the change caused by moving gamma by up to delta."""
    rows = []
    for law in APPROXIMATED:
        for epsilon in EPSILONS:
            model = construct(law, epsilon, Case.CONTINUED)
            network = bounded(law, Family.WIDE, epsilon).everywhere
            shift = sensitivity(model.net, math.hypot(1, model.reach), model.delta)
            what = f"{law.name}: error proved for all x, |eta| <= lambda, |w - gamma| <= {model.delta:.2g}"
            rows.append(Certificate(CLAIM, what, network + shift, "<=", epsilon))
    return rows


def _theorem(law: SmoothLaw, epsilon: float, case: Case, family: Family, seed: int) -> list[Certificate]:
    """Parts (i) and (ii) of the theorem."""
    result = outcome(law, epsilon, case, family, seed)
    what = f"{law.name}, {family}, w at t2 {case}, eps = {epsilon}"
    probability = at_least(int(result.inside.sum()), len(result.inside))
    worst = float(result.error[result.inside].max())
    return [
        Certificate(CLAIM, f"{what}: P(A), lower bound", probability, ">=", 1 - epsilon),
        Certificate(CLAIM, f"{what}: sup error on A", worst, "<=", epsilon),
    ]


def _steps_of_the_proof(seed: int) -> list[Certificate]:
    """Intermediate statements, worst over all models: P(A_1), w_3/4 near gamma, L h_1 = F_gamma, and zero KL."""
    results = [(construct(*model), outcome(*model, seed)) for model in _models()]
    reset = [(model, result) for model, result in results if model.cut.resets]
    kept = [(model, result) for model, result in results if not model.cut.resets]
    exact = max(float(result.distance.max()) for _, result in reset)
    computed = max(float((result.y - network_output(model, result.eta)).abs().max()) for model, result in reset)
    shares = {model: float(result.distance[result.inside].max()) / model.delta for model, result in kept}
    sheared = min(2 * share for model, share in shares.items() if model.case is Case.SHEARED)
    kl = max(float(result.kl.max()) for _, result in results)
    of_A1 = max(_frequency_of_A1(model, result) for model, result in results)
    attained = "continued, Lemma 3: |w_3/4 - gamma| / (delta/2) on A: attained"
    largest_of_many = "the largest of 1500 lengths below Lambda falls short of it by a few percent"
    return [
        Certificate(CLAIM, "standard errors from the frequency of A_1 to 1 - eps/2", of_A1, "<=", STANDARD_ERRORS),
        Certificate(CLAIM, "fixed and learned: |w_3/4 - gamma|, worst", exact, "==", 0, 1e-12, "rounding of 4 sums"),
        Certificate(CLAIM, "fixed and learned: |L h_1 - F_gamma(x, eta)|, worst", computed, "==", 0, 1e-12, "rounding"),
        Certificate(CLAIM, "continued: |w_3/4 - gamma| / delta on A, worst", max(shares.values()), "<=", 1),
        Certificate(CLAIM, attained, sheared, "==", 1, 0.1, largest_of_many),
        Certificate(CLAIM, "KL of the weights to their Brownian prior, worst", kl, "==", 0),
    ]


def network_output(model: Construction, eta: Tensor) -> Tensor:
    """F_gamma(x, eta) on the grid of inputs, computed without solving any equation: (samples, 51, d_y)."""
    x = grid().expand(len(eta), -1, -1)
    with torch.no_grad():
        y: Tensor = model.net(torch.cat([x, eta[:, None].expand(-1, x.shape[1], -1)], -1))
    return y


def _frequency_of_A1(model: Construction, result: Outcome) -> float:
    p = 1 - model.epsilon / 2
    frequency = float((result.eta.norm(dim=-1) <= model.reach).double().mean())
    return abs(frequency - p) / math.sqrt(p * (1 - p) / len(result.eta))


def _law(seed: int) -> list[Certificate]:
    """Levy distance of the output's law (the theorem's last sentence) at six inputs, for laws on the line."""
    places = range(0, 51, 10)
    rows = []
    for law in APPROXIMATED[:2]:
        result = outcome(law, 0.1, Case.CONTINUED, Family.WIDE, seed)
        worst = max(levy(result.y[:, k, 0], law, float(grid()[k])) for k in places)
        rows.append(Certificate(CLAIM, f"{law.name}: Levy distance of the output's law, continued", worst, "<=", 0.1))
    return rows
