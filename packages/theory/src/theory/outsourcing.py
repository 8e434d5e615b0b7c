"""Lemma 2, noise outsourcing:  (X, Y) = (X, f~(X, eta)) almost surely, with eta ~ N(0, I_m) independent of X.

The construction is the inverse CDF: eta = Phi^{-1}(F_X(Y)) is a function of (X, Y), and f~(x, eta) = F_x^{-1}(Phi(eta))
inverts it. In more dimensions this is done one coordinate at a time (Rosenblatt). We test the joint law:
F_X(f~(X, eta)) must be uniform in every stratum of X, and for laws on the plane the energy distance to samples drawn
without f~ must be no larger than chance allows.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from scipy import stats
from torch import Tensor

from theory import laws
from theory.certificate import Certificate
from theory.laws import Law
from theory.statistics import FALSE_ALARM

CLAIM = "Lemma 2"
STRATA = 4  # number of strata of X


class Comparison(NamedTuple):
    """A statistic and its critical value, which it exceeds by chance only with a small probability."""

    statistic: float
    critical: float


def uniform_given(x: Tensor, u: Tensor, false_alarm: float = FALSE_ALARM) -> Comparison:
    """Largest Kolmogorov-Smirnov distance to U(0, 1) over columns of u (n, k) and strata of x (n, 1).

    Uniform in each stratum means uniform and independent of x; the critical value has a Bonferroni correction.
    """
    order = x[:, 0].argsort()
    parts = u[order].chunk(STRATA)
    columns = [column.numpy() for part in parts for column in part.unbind(1)]
    distances = [float(stats.kstest(column, "uniform").statistic) for column in columns]
    smallest = min(len(part) for part in parts)
    return Comparison(max(distances), float(stats.kstwo.isf(false_alarm / len(distances), smallest)))


def energy(a: Tensor, b: Tensor, permutations: int, generator: torch.Generator, level: float = 1.0) -> Comparison:
    """Energy distance 2 E|a - b| - E|a - a'| - E|b - b'| of two samples, against relabelled samples.

    The critical value is the quantile of this level over all relabellings. For the largest, level 1, it is exceeded by
    chance with probability 1 / (permutations + 1); for a lower level with probability about 1 - level.
    """
    both = torch.cat([a, b])
    distances = torch.cdist(both, both)
    labels = torch.cat([torch.full((len(a),), 1 / len(a)), torch.full((len(b),), -1 / len(b))]).to(both)
    relabelled = [labels[torch.randperm(len(both), generator=generator)] for _ in range(permutations)]
    signs = torch.stack([labels, *relabelled])
    statistics = -((signs @ distances) * signs).sum(1)
    return Comparison(float(statistics[0]), float(statistics[1:].quantile(level)))


def outsourced(law: Law, x: Tensor, y: Tensor) -> Tensor:
    """eta = Phi^{-1}(F_x(y)), (n, d_y): the noise that generates y, for a law without atoms."""
    eta: Tensor = torch.special.ndtri(law.uniforms(x, y))
    return eta


def generated(
    law: Law, samples: int, seed: int, generator: Callable[[Tensor, Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Samples of (X, f~(X, eta)), with the law's own generator unless another is given: (n, 1) and (n, d_y)."""
    source = torch.Generator().manual_seed(seed)
    x = laws.inputs(samples, source)
    return x, (generator or law.generator)(x, laws.noise(samples, law, source))


def joint_energy(law: Law, seed: int, generator: Callable[[Tensor, Tensor], Tensor] | None = None) -> Comparison:
    """Energy distance between 500 pairs (X, f~(X, eta)) and 500 pairs (X, Y) drawn without f~."""
    source = torch.Generator().manual_seed(seed + 1)
    x, y = generated(law, 500, seed, generator)
    other = laws.inputs(500, source)
    return energy(torch.cat([x, y], 1), torch.cat([other, law.sample(other, source)], 1), 199, source)


def certify(seed: int = 0) -> list[Certificate]:
    """Check the uniforms of every law, energy distances of laws on the plane, and the noise of laws with a density."""
    noisy = [law for law in laws.LAWS if law.name != "deterministic"]
    return [
        _point_mass(seed),
        *[_uniforms(law, seed) for law in noisy],
        *[_energy(law, seed) for law in noisy if law.d_y == 2],
        *[certificate for law in noisy if law.name != "circle" for certificate in _back_to_noise(law, seed)],
    ]


def _point_mass(seed: int) -> Certificate:
    law = laws.Deterministic()
    x, y = generated(law, 1000, seed)
    gap = float((y - law.sample(x, torch.Generator())).abs().max())
    return Certificate(CLAIM, "deterministic: |f~(x, eta) - y|", gap, "==", 0)


def _uniforms(law: Law, seed: int) -> Certificate:
    x, y = generated(law, 20_000, seed)
    test = uniform_given(x, law.uniforms(x, y))
    what = f"{law.name}: KS distance of F_X(f~(X, eta)) to uniform, worst of {STRATA} strata, n = 20000"
    return Certificate(CLAIM, what, test.statistic, "<=", test.critical)


def _energy(law: Law, seed: int) -> Certificate:
    test = joint_energy(law, seed)
    what = f"{law.name}: energy distance of (X, f~(X, eta)) to (X, Y), against 199 relabellings"
    return Certificate(CLAIM, what, test.statistic, "<=", test.critical)


def _back_to_noise(law: Law, seed: int) -> list[Certificate]:
    """eta computed from (X, Y) is normal in every stratum of X, and f~ maps it back to Y."""
    source = torch.Generator().manual_seed(seed + 2)
    x = laws.inputs(20_000, source)
    y = law.sample(x, source)
    eta = outsourced(law, x, y)
    gap = float((law.generator(x, eta) - y).abs().max())
    test = uniform_given(x, torch.special.ndtr(eta))
    why = "rounding of F_x(y), magnified by Phi^{-1} at |eta| < 5"
    return [
        Certificate(CLAIM, f"{law.name}: |f~(X, eta) - Y| for eta = Phi^-1(F_X(Y))", gap, "==", 0, 1e-8, why),
        Certificate(CLAIM, f"{law.name}: KS distance of that eta to N(0, 1)", test.statistic, "<=", test.critical),
    ]
