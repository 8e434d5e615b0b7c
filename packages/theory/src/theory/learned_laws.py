"""Conditional laws learned from samples: by training, what Theorem 4.2 promises by construction.

    2 E|Y - Y'| - E|Y - Y_2| - E|Y' - Y'_2|      energy distance of the learned law (Y) and the true law (Y') at one x

On n = 1,000 fresh samples of each law, the distance has to be below that of 95 % of relabellings. A perfect model fails
this in 5 % of all test sets. So every input has 20 test sets, of which 14 have to pass: a perfect model passes fewer
with probability 3e-5. The model is that of `theory.generators`, trained by `theory.learning`; its law includes the
noise sigma_y, which is needed because the circle has no density. Theorem 4.1 for the same training: `learned_ring`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from sdeweights.testing import seeded
from theory import laws, learned_ring
from theory.certificate import Certificate
from theory.generators import Generator, Shape
from theory.laws import Law
from theory.learning import Plan, fit
from theory.outsourcing import Comparison, energy

CLAIM = "Learned laws"
INPUTS = (-0.8, 0.0, 0.8)
N, RELABELLINGS, LEVEL = 1000, 99, 0.95
PLAN = Plan()
TEST_SETS, ENOUGH = 20, 0.7  # P(Binomial(20, 0.95) < 14) = 3e-5


@dataclass(frozen=True)
class Task:
    """A law, the shape and the final sigma_y of the model that learns it, and the training."""

    law: Law
    shape: Shape
    sigma_y: float = 0.15
    plan: Plan = PLAN

    def pairs(self, n: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        """n pairs (x, y)."""
        x = laws.inputs(n, source)
        return x, self.law.sample(x, source)

    def untrained(self, seed: int) -> Generator:
        """The model before training."""
        return Generator(self.shape, self.sigma_y, seed)

    def trained(self, seed: int) -> Generator:
        """The model after training."""
        return fit(self.untrained(seed), self.pairs, self.plan, seeded(seed + 1))


TASKS = {
    "bimodal": Task(laws.Bimodal(), Shape()),
    "heteroscedastic Gaussian": Task(laws.HeteroscedasticGaussian(), Shape()),
    "circle": Task(laws.Circle(), Shape(d_y=2), 0.05),
}


class Distances(NamedTuple):
    """The test sets of one input."""

    x: float
    sets: tuple[Comparison, ...]

    @property
    def share(self) -> float:
        """The share of test sets whose distance is below that of 95 % of relabellings."""
        return sum(s.statistic <= s.critical for s in self.sets) / len(self.sets)

    @property
    def distance(self) -> float:
        """The energy distance, median."""
        return median(s.statistic for s in self.sets)

    @property
    def critical(self) -> float:
        """Its critical value, median."""
        return median(s.critical for s in self.sets)

    @property
    def ratio(self) -> float:
        """The distance divided by its critical value, median."""
        return median(s.statistic / s.critical for s in self.sets)


@lru_cache(maxsize=8)
def trained(name: str, seed: int) -> Generator:
    """The trained model of a law."""
    return TASKS[name].trained(seed)


def compare(model: Generator, law: Law, x: float, source: torch.Generator) -> Distances:
    """Energy distances of the learned and the true law at x, on fresh test sets."""
    place = torch.full((N, 1), x, dtype=torch.float64)
    samples = ((model.sample(x, N, source), law.sample(place, source)) for _ in range(TEST_SETS))
    return Distances(x, tuple(energy(a, b, RELABELLINGS, source, LEVEL) for a, b in samples))


@lru_cache(maxsize=8)
def tested(name: str, seed: int) -> tuple[Distances, ...]:
    """The trained model of a law at the three inputs."""
    source = seeded(seed + 3000)
    return tuple(compare(trained(name, seed), TASKS[name].law, x, source) for x in INPUTS)


def certify(seed: int = 0) -> list[Certificate]:
    """The laws, the models before training, and the ring with and without extra dimensions."""
    return [*[c for name in TASKS for c in _law(name, seed)], *learned_ring.certify(seed)]


def _law(name: str, seed: int) -> Iterator[Certificate]:
    below = f"test sets with an energy distance below 95 % of relabellings, n = {N}"
    for found in tested(name, seed):
        yield Certificate(CLAIM, f"{name}, x = {found.x:g}: share of {below}", found.share, ">=", ENOUGH)
    task = TASKS[name]
    before = max(compare(task.untrained(seed), task.law, x, seeded(seed + 3000)).share for x in INPUTS)
    yield Certificate(CLAIM, f"control, {name} before training: largest share of {below}", before, "<=", 0)
