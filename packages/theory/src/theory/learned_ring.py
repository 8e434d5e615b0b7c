"""Theorem 4.1 for a model that is trained like those of `theory.learned_laws`: the ball and the ring around it.

    y | x = z(x),  z = -1 on the ball, +1 on the ring:   sup_A |L(psi_1(x)) - z(x)| >= 1 on every path if d_h = d_x

The hidden drift is capped at Lip <= 7.6, so that dt * Lip <= 0.95 on the 8 steps of training: the trained network
itself is a homeomorphism, not only the flow that it approximates. With the same cap and two extra dimensions, the same
training succeeds.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sdeweights import WeightPath, flow
from sdeweights.testing import seeded
from theory.certificate import Certificate
from theory.fields import step_condition
from theory.generators import STEPS, Generator, Shape
from theory.learning import Plan, fit
from theory.separation import LP_TOLERANCE, Hyperplane
from theory.theorem41 import ANNULUS, Verdict, judge

CLAIM = "Learned laws"
SHAPE = Shape(d_x=2, extra=0, m=1, width=24, cap=0.95 * STEPS)
EXTRA = 2
PLAN = Plan(updates=200, pairs=60, paths=16, rate=0.03, wide=1.0)
SIGMA_Y, PATHS = 0.3, 20


class Ring(NamedTuple):
    """A trained model of the ring, and verdicts on it along several weight paths."""

    model: Generator
    verdicts: tuple[Verdict, ...]
    rate: float  # largest dt * Lip


def pairs(n: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """About n points of A and z there."""
    sample = ANNULUS.sample(2, n // 5, source)
    return sample.x, sample.z[:, None]


@lru_cache(maxsize=4)
def trained(extra: int, seed: int) -> Generator:
    """The model of the ring with this number of extra dimensions, in double precision."""
    shape = Shape(SHAPE.d_x, SHAPE.d_y, extra, SHAPE.m, SHAPE.width, SHAPE.cap)
    return fit(Generator(shape, SIGMA_Y, seed), pairs, PLAN, seeded(seed + 1)).double()


def images(model: Generator, x: Tensor, path: WeightPath) -> Tensor:
    """psi_1(x) along the first sample of a path, (n, d_h)."""
    with torch.no_grad():
        return flow(model.f_h, nn.functional.pad(x, (0, model.shape.extra)), path[0])[0]


def judged(extra: int, seed: int) -> Ring:
    """Verdicts along fresh weight paths, on 1,280 points of A."""
    model, sample = trained(extra, seed), ANNULUS.sample(2, 256, seeded(seed + 2))
    with torch.no_grad():
        paths = model.paths(PATHS, seeded(seed + 3))
    L = Hyperplane(model.L.weight[0].detach(), float(model.L.bias.detach()))
    of = [(images(model, sample.ball, paths[i]), images(model, sample.ring, paths[i])) for i in range(PATHS)]
    return Ring(model, tuple(judge(ball, ring, L) for ball, ring in of), step_condition(model.f_h, paths))


def certify(seed: int = 0) -> list[Certificate]:
    """Without extra dimensions every path fails; with two, no path does."""
    plain, wider = judged(0, seed), judged(EXTRA, seed)
    own, best = (min(getattr(v, which) for v in plain.verdicts) for which in ("own", "best"))
    residual, worst = max(v.residual for v in plain.verdicts), max(v.own for v in wider.verdicts)
    what = f"ring, d_h = d_x, {PATHS} weight paths"
    rounding, lp = "rounding of a convex combination", "tolerance of the linear programme"
    return [
        Certificate(CLAIM, f"{what}: largest dt * Lip", plain.rate, "<=", 0.999),
        Certificate(CLAIM, f"{what}: smallest sup |L psi_1 - z|", own, ">=", 1),
        Certificate(CLAIM, f"{what}: smallest sup, best L", best, ">=", 1, LP_TOLERANCE, lp),
        Certificate(CLAIM, f"{what}: hulls of the images meet, residual", residual, "<=", 0, 1e-12, rounding),
        Certificate(CLAIM, f"control, ring, d_h = d_x + {EXTRA}, same training: largest sup", worst, "<=", 0.9),
    ]
