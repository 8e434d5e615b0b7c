"""Theorem 4.1: a model with d_h = d_x and a(x) = x cannot represent z = -1 on a ball, +1 on a ring around it.

The paper shows P(sup_A |L(psi_1(omega, x)) - z(x)| > 1/2) = 1. The same argument gives more:

    sup_A |L o psi_1 - z| >= 1   almost surely,   with equality for L = 0.

If the supremum were below 1, L would be negative on the image of the ball and positive on that of the ring. But psi_1
is a homeomorphism, so the image of the sphere |x| = r2 surrounds that of the ball, and their convex hulls meet. We find
a common point by linear programming and verify it (`theory.separation`). It covers every L at once. There is no
sampling error, because a supremum that is at least 1 on a subset of A is at least 1 on A. There is no discretisation
error either: the Euler network itself is a homeomorphism if dt * Lip < 1, which is checked along every path.

One more dimension removes the obstruction: with h = (x, a) and da = clamp(w_1 |x| + w_2) dt, the output a equals z.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sdeweights import Cut, OrnsteinUhlenbeck, PriorPlus, WeightPath, WeightProcess, bottleneck, flow
from sdeweights.testing import seeded
from theory.annulus import Annulus, Sample
from theory.certificate import Certificate
from theory.fields import FOLD_LIPSCHITZ, step_condition
from theory.maps import euler_fold
from theory.models import CUTS, Model, random_model
from theory.separation import LP_TOLERANCE, Hyperplane, best_sup, common_point, sup_error

CLAIM = "Theorem 4.1"
WEIGHT_SOLVER = "fused-euler"  # for the trained models
ANNULUS = Annulus()
FINEST = 2**14  # largest number of points on the sphere r2


class Verdict(NamedTuple):
    """How well affine maps L represent z after a given map psi_1."""

    own: float  # sup |L - z| for the model's own output layer
    best: float  # the same for the best affine L
    residual: float  # of a common point of both convex hulls; infinite if no such point was found


def images(model: Model, sample: Sample, path: WeightPath) -> tuple[Tensor, Tensor]:
    """Images of the ball and the ring under the flow along the first sample of a path."""
    y = model.images(sample.x, path[0])[0]
    return y[: len(sample.ball)], y[len(sample.ball) :]


def judge(ball: Tensor, ring: Tensor, L: Hyperplane) -> Verdict:
    """The verdict for given images of the ball and the ring."""
    common = common_point(ball, ring)
    residual = float("inf") if common is None else common.residual(ball, ring)
    return Verdict(sup_error(L, ball, ring), best_sup(ball, ring), residual)


def random_output(d: int, seed: int) -> Hyperplane:
    """A random affine output layer L."""
    a = torch.randn(d + 1, generator=seeded(seed), dtype=torch.float64)
    return Hyperplane(a[:d], float(a[d]))


def judge_random(d: int, seed: int) -> list[Verdict]:
    """Verdicts on one random model along three weight paths."""
    model = random_model(d, seed)
    path = model.paths(3, seeded(seed))
    sample = ANNULUS.sample(d, 100 if d < 3 else 300, seeded(seed))
    return [judge(*images(model, sample, path[i]), random_output(d, seed)) for i in range(3)]


class Trained(NamedTuple):
    """A model trained to represent z, and its output layer; inputs are padded with zeros, a(x) = (x, 0)."""

    model: Model
    L: Hyperplane


def train_to_break(seed: int, cut: Cut, extra: int = 0, iterations: int = 150) -> Trained:
    """Train a model in the plane to represent z, by Adam on a smooth supremum of |L(psi_1(x)) - z(x)|.

    Each step uses new points of A and new weight paths; w0, the drift f_q (prior + network) and L are all trained. The
    supremum is smoothed to log mean exp(beta e) / beta, with beta from 1 (close to the mean) to 16 (close to the
    supremum).
    """
    generator = seeded(seed)
    start = random_model(2 + extra, seed, cut=cut, cap=30.0, width=12)
    prior = OrnsteinUhlenbeck(sigma=0.1)
    drift = PriorPlus(prior, bottleneck(start.f_h.d, cut, "4-16-4", generator=generator)).double()
    process = WeightProcess(start.process.w0.detach(), drift, prior, cut)
    a = torch.randn(2 + extra, generator=generator, dtype=torch.float64).requires_grad_()
    c = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([*process.parameters(), a, c], lr=0.05)
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, iterations)
    for k in range(iterations):
        sample = ANNULUS.sample(2, 30, generator)
        path = process.sample(8, 1, generator=generator, solver=WEIGHT_SOLVER, ode_solver=WEIGHT_SOLVER)
        output = flow(start.f_h, nn.functional.pad(sample.x, (0, extra)), path)[0] @ a + c
        beta = 16 ** (k / iterations)
        loss = torch.logsumexp(beta * (output - sample.z).abs(), 0) / beta
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        slower.step()
    return Trained(Model(start.f_h, process, WEIGHT_SOLVER), Hyperplane(a.detach(), float(c.detach())))


def judge_trained(trained: Trained, seed: int) -> Verdict:
    """Judge a trained model on a grid with dt * Lip < 1/2, along a new weight path and on a dense sample of A.

    A flow can stretch the circle r2 so much that a line fits between two of its sampled points. The sample is therefore
    refined until the hulls meet or there are 2^14 points per circle.
    """
    path, extra = _resolved(trained.model, seed), len(trained.L.a) - 2
    n = 256
    while True:
        sample = Sample(*(nn.functional.pad(part, (0, extra)) for part in ANNULUS.sample(2, n, seeded())))
        verdict = judge(*images(trained.model, sample, path), trained.L)
        if verdict.residual < 1 or n >= FINEST:
            return verdict
        n *= 4


def _resolved(model: Model, seed: int) -> WeightPath:
    """A weight path on a grid so fine that dt * Lip < 1/2."""
    steps = 8
    while True:
        with torch.no_grad():
            path = model.process.sample(steps, 1, generator=seeded(seed), solver=model.solver, ode_solver=model.solver)
        if step_condition(model.f_h, path) < 0.5:
            return path
        steps *= 2


def augmented(annulus: Annulus, d: int, samples: int, seed: int, sigma: float = 0.1) -> tuple[Tensor, Sample]:
    """Outputs of the explicit model with one more dimension, (samples, n), and the points at which they were computed.

    h = (x, a), a(0) = 0:   dx = 0,   da = clamp(w_1 (|x| - m) / g, -1, 1) dt,   m, g: middle and half-width of the gap

    with w_0 = 2 and noise on the first half of depth. If w_1 >= 1 on all of [0, 1], a(1) = z exactly.
    """
    middle, gap = (annulus.r1 + annulus.r2) / 2, (annulus.r2 - annulus.r1) / 2

    def f_h(t: Tensor, h: Tensor, w: Tensor) -> Tensor:  # noqa: ARG001
        da = torch.clamp(w[0] * (h[:, :-1].norm(dim=-1, keepdim=True) - middle) / gap, -1, 1)
        return torch.cat([torch.zeros_like(h[:, :-1]), da], -1)

    prior = OrnsteinUhlenbeck(mu=2.0, sigma=sigma)
    process = WeightProcess(torch.full((1,), 2.0, dtype=torch.float64), prior.drift, prior, Cut.sde_first(0.5))
    sample = annulus.sample(d, 100, seeded(seed))
    h0 = torch.cat([sample.x, torch.zeros_like(sample.x[:, :1])], -1)
    with torch.no_grad():
        path = process.sample(16, samples, generator=seeded(seed))
        return flow(f_h, h0, path, per_sample=False)[..., -1], sample


def certify(seed: int = 0) -> list[Certificate]:
    """Check random models, trained models, the output L = 0, coarse steps, and one more dimension."""
    return [*_random(seed), *_trained(seed), _sharp(), *_coarse(), *_augmented(seed)]


def _random(seed: int) -> list[Certificate]:
    verdicts = [v for d in (1, 2, 3) for k in range(2 * len(CUTS)) for v in judge_random(d, seed + k)]
    what = f"{len(verdicts)} random flows, d = 1, 2, 3"
    above = sum(v.own > 0.5 for v in verdicts) / len(verdicts)
    return [
        Certificate(CLAIM, f"share with sup > 1/2 (the paper's bound), {what}", above, "==", 1),
        Certificate(CLAIM, f"smallest sup, random L, {what}", min(v.own for v in verdicts), ">=", 1),
        *_all_outputs(verdicts, what),
    ]


def _all_outputs(verdicts: Sequence[Verdict], what: str) -> list[Certificate]:
    residual, why = max(v.residual for v in verdicts), "rounding of a convex combination"
    meet = f"convex hulls of the images meet: largest residual, {what}"
    return [
        _of_best(f"smallest sup, best L, {what}", min(v.best for v in verdicts), ">=", 1),
        Certificate(CLAIM, meet, residual, "<=", 0, 1e-12, why),
    ]


def _of_best(statement: str, sup: float, relation: str, bound: float) -> Certificate:
    """A statement about `best_sup`, whose error is that of the linear programme."""
    return Certificate(CLAIM, statement, sup, relation, bound, LP_TOLERANCE, "tolerance of the linear programme")


def _trained(seed: int) -> list[Certificate]:
    cuts = (Cut.ode_first(0.2), Cut.full(), Cut.none())
    trained = [train_to_break(seed + k, cut) for k, cut in enumerate(cuts)]
    verdicts = [judge_trained(t, seed + k) for k, t in enumerate(trained)]
    what = f"{len(verdicts)} models trained to break it"
    escaped = judge_trained(train_to_break(seed, cuts[0], extra=1), seed)
    return [
        Certificate(CLAIM, f"smallest sup, own L, {what}", min(v.own for v in verdicts), ">=", 1),
        *_all_outputs(verdicts, what),
        Certificate(CLAIM, "the same training with one more dimension: sup, best L", escaped.best, "<=", 0.95),
    ]


def _sharp() -> Certificate:
    sample = ANNULUS.sample(2, 50, seeded())
    zero = Hyperplane(torch.zeros(2, dtype=torch.float64), 0.0)
    return Certificate(CLAIM, "sup for L = 0: the bound 1 is attained", sup_error(zero, *sample), "==", 1)


def _coarse() -> list[Certificate]:
    sample = ANNULUS.sample(2, 200, seeded())
    best = {n: best_sup(*(euler_fold(n)(part) for part in sample)) for n in (1, 3, 10)}
    return [
        _of_best(f"one Euler step with dt * Lip = {FOLD_LIPSCHITZ:g} escapes: sup, best L", best[1], "<=", 0.5),
        _of_best("the same field, 3 and 10 steps: sup, best L", min(best[3], best[10]), ">=", 1),
    ]


def _augmented(seed: int) -> list[Certificate]:
    worst = 0.0
    for d in (1, 2, 3):
        outputs, sample = augmented(ANNULUS, d, 200, seed)
        worst = max(worst, float((outputs - sample.z).abs().max()))
    return [Certificate(CLAIM, "one more dimension: largest sup over 600 weight paths, d = 1, 2, 3", worst, "<=", 0.5)]
