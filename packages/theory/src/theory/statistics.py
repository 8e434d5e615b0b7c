"""Statistical bounds used by several claims, each with its probability of failing by chance."""

import math

import torch
from scipy import stats
from torch import Tensor

from theory.certificate import Certificate
from theory.laws import Law

STANDARD_ERRORS = 4.5  # a normal error is larger with probability 7e-6
FALSE_ALARM = 1e-4  # probability that a true statement is rejected, for tests that are not about normal errors


def sup(x: Tensor) -> float:
    """The largest |x_i|."""
    return float(x.detach().abs().max())


def at_least(successes: int, trials: int, false_alarm: float = FALSE_ALARM) -> float:
    """Clopper-Pearson lower bound on a probability: 0.9194 for 950 of 1000 and a false-alarm rate of 1e-4."""
    return float(stats.beta.ppf(false_alarm, successes, trials - successes + 1)) if successes else 0.0


def mean_and_variance(claim: str, name: str, x: Tensor, mean: float, variance: float) -> list[Certificate]:
    """Certificates for the mean and variance of samples x, (n,), from a normal law."""
    n = len(x)
    why = f"{STANDARD_ERRORS} standard errors of {n} paths"
    of_mean, of_variance = math.sqrt(variance / n), variance * math.sqrt(2 / n)
    return [
        Certificate(claim, f"E {name}", float(x.mean()), "==", mean, STANDARD_ERRORS * of_mean, why),
        Certificate(claim, f"Var {name}", float(x.var()), "==", variance, STANDARD_ERRORS * of_variance, why),
    ]


def levy(samples: Tensor, law: Law, x: float) -> float:
    """Levy distance of samples (n,) to a law on the line at x: least e with F(y - e) - e <= G(y) <= F(y + e) + e."""
    y = samples.sort().values
    ranks = torch.arange(len(y) + 1, dtype=y.dtype) / len(y)
    below, above = ranks[:-1], ranks[1:]
    place = torch.full((len(y), 1), x, dtype=y.dtype)

    def fits(e: float) -> bool:
        low, high = (law.uniforms(place, (y + shift)[:, None])[:, 0] for shift in (-e, e))
        return bool((low - e <= below).all() and (above <= high + e).all())

    a, b = 0.0, 1.0
    for _ in range(40):
        a, b = (a, (a + b) / 2) if fits((a + b) / 2) else ((a + b) / 2, b)
    return b
