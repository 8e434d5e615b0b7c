"""A drift f_p + F(t, W w) whose W has r rows, such as the paper's bottleneck network, narrows only r directions.

Let w_1 have the prior variance v in every direction, and let lambda_1 >= lambda_2 >= ... be the eigenvalues of
v X^T X. Then for every W of rank r and every function F, also a nonlinear one,

    ELBO <= log evidence - 1/2 sum_{i > r} (lambda_i - ln(1 + lambda_i)).

In continuous time the bound is attained, by W with the first r eigenvectors as rows. The proof is in docs/THEORY.md.

The numbers are for a design with nearly orthogonal columns, so the weights are nearly independent given the data, and
a drift that acts on each coordinate by itself, f_p + a(t) (m(t) - w), is good enough.
"""

import math

import torch

from sdeweights import BottleneckDrift, Cut, PriorPlus, WeightProcess
from sdeweights.testing import seeded
from theory.certificate import Certificate
from theory.equations import SOLVERS, sample
from theory.linear_gaussian import PRIOR, Chain, Drift, Regression
from theory.statistics import STANDARD_ERRORS

CLAIM = "Low rank"
D, POINTS, STEPS, RANK, PATHS = 20, 40, 40, 2, 4_000
ROUNDING = "rounding of matrices of 20 to 40 rows"


def near_orthogonal(seed: int, size: float = 2.6, tilt: float = 0.02) -> Regression:
    """A regression on 20 weights of size 1, with X^T X close to size^2 I."""
    generator = seeded(seed)
    X, w, noise = (torch.randn(*s, generator=generator, dtype=torch.float64) for s in ((POINTS, D), (D,), (POINTS,)))
    X = size * (torch.linalg.qr(X).Q + tilt * torch.randn(POINTS, D, generator=generator, dtype=torch.float64))
    return Regression(X, X @ w + noise)


def shortfall(data: Regression, variance: float, rank: int) -> float:
    """1/2 sum_{i > r} (lambda_i - ln(1 + lambda_i)): what rank r loses at least, in nats.

    Example:
        >>> shortfall(Regression(2 * torch.eye(3), torch.ones(3)), 0.5, 2)  # lambda = 2: (2 - ln 3) / 2
        0.4506...
    """
    x = variance * torch.linalg.eigvalsh(data.information)[: len(data.X.T) - rank]
    return 0.5 * float((x - x.log1p()).sum())


def of_rank(data: Regression, chain: Chain, rank: int) -> Drift:
    """The best drift, with feedback only from the `rank` directions about which the data say most."""
    best = chain.best(data, chain.noisy)
    W = torch.linalg.eigh(data.information).eigenvectors[:, len(chain.w0) - rank :]
    return chain.with_feedback(best, best.A @ W @ W.T)


def diagonal(data: Regression, chain: Chain) -> Drift:
    """f_p + a(t) (m(t) - w), with one a per coordinate: that of the best drift for the diagonal of X^T X."""
    roots = Regression(torch.diag(data.information.diagonal().sqrt()), data.y[:D])
    return chain.with_feedback(chain.best(data, chain.noisy), chain.best(roots, chain.noisy).A)


def trained(data: Regression, seed: int, updates: int = 150) -> WeightProcess:
    """The paper's bottleneck network with two units at both ends, fitted to the ELBO by Adam."""
    generator, w0 = seeded(seed), torch.zeros(D, dtype=torch.float64)
    net = BottleneckDrift(D, (RANK, 16, RANK), generator=generator).double()
    process = WeightProcess(w0, PriorPlus(PRIOR, net), PRIOR, Cut.full())
    adam = torch.optim.Adam(net.parameters(), lr=0.03)
    for _ in range(updates):
        path = process.sample(STEPS, 32, generator=generator, solver="fused-euler")
        adam.zero_grad()
        (path.kl - data.log_likelihood(path.w[:, -1])).mean().backward()  # type: ignore[no-untyped-call]
        adam.step()
    return process


def certify(seed: int = 0) -> list[Certificate]:
    """The diagonal drift reaches the evidence; one of rank 2 cannot, trained or not; one of full rank can."""
    data, chain = near_orthogonal(seed), Chain.of(Cut.full(), torch.zeros(D, dtype=torch.float64), STEPS)
    law, eigenvalues = chain.prior(), torch.linalg.eigvalsh(data.information)
    evidence, even = data.log_evidence(law), float(eigenvalues[0] / eigenvalues[-1])
    loss = shortfall(data, float(law.cov[0, 0]), RANK)
    bound, process = evidence - loss, trained(data, seed)
    drifts = of_rank(data, chain, RANK), diagonal(data, chain), of_rank(data, chain, D)
    low, narrow, full = (chain.objective(data, drift, chain.noisy) for drift in drifts)
    return [
        Certificate(CLAIM, f"{D} weights: smallest over largest eigenvalue of X^T X", even, ">=", 0.5),
        Certificate(CLAIM, "diagonal drift: relative gap to the log evidence", 1 - evidence / narrow, "<=", 0.02),
        Certificate(CLAIM, f"rank {RANK}: nats that every drift loses, by proof", loss, ">=", 10),
        Certificate(CLAIM, f"rank {RANK}: ELBO of the best drift, at most", low, "<=", bound, 1e-9, ROUNDING),
        Certificate(CLAIM, f"rank {RANK}: the same, attained", low, "==", bound, 0.1, "order dt"),
        *[c for solver in SOLVERS for c in _of_trained(process, data, bound, seed, solver)],
        Certificate(CLAIM, f"control, rank {D}: relative gap to the log evidence", 1 - evidence / full, "<=", 0.02),
    ]


def _of_trained(process: WeightProcess, data: Regression, bound: float, seed: int, solver: str) -> list[Certificate]:
    path = sample(process, STEPS, PATHS, solver, seed)
    values = data.log_likelihood(path.w[:, -1]) - path.kl
    elbo, error = float(values.mean()), STANDARD_ERRORS * float(values.std()) / math.sqrt(PATHS)
    what, why = f"bottleneck {RANK}-16-{RANK}, trained, {solver}: ELBO", f"{STANDARD_ERRORS} standard errors"
    return [
        Certificate(CLAIM, f"{what}, at most", elbo, "<=", bound, error, why),
        Certificate(CLAIM, f"{what}, close to the bound", elbo, ">=", bound - 5, error, why),
    ]
