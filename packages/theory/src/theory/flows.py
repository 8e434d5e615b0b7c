"""Flows are homeomorphisms: the step of Theorem 4.1's proof that rules out z.

Along a continuous weight path, dh = f_h(t, h; w_t) dt is an ordinary differential equation whose field is Lipschitz in
h. Its flow psi has an inverse: the flow of -f_h backwards in time. It preserves the order of points on the line
(d = 1), orientation (det D psi > 0), and the winding number of a curve around a point in the plane. All of this also
holds for an Euler network of n steps if dt * Lip < 1:

    h = h1 - dt f_h(t, h; w) is the fixed point of a contraction,   prod (1 - dt Lip) <= |psi x - psi y| / |x - y|.

Coarser steps need not be homeomorphisms, a case the paper does not discuss: `theory.fields.fold` is a counterexample.
"""

import torch
from torch import Tensor

from sdeweights import Brownian, Cut, WeightPath, flow
from sdeweights.functional import HiddenDrift
from sdeweights.testing import observed_order, seeded
from theory.annulus import Annulus
from theory.certificate import Certificate
from theory.equations import SOLVERS, affine_process, sample
from theory.fields import FOLD_LIPSCHITZ, step_condition
from theory.maps import Map, euler_fold, jacobians, winding_of_image
from theory.models import CUTS, Model, random_bottleneck_model, random_model

CLAIM = "Flows"


def reversed_path(path: WeightPath) -> WeightPath:
    """The same weights backwards in time; left and right limits at a reset are swapped."""
    w = path.w.flip(1)
    reset, after = None, None
    if path.reset is not None and path.after_reset is not None:
        reset, after = path.steps - path.reset, path.w[:, path.reset]
        w = w.clone()
        w[:, reset] = path.after_reset
    times = tuple(1 - t for t in reversed(path.times))
    return WeightPath(1 - path.ts.flip(0), w, path.kl, times, reset=reset, after_reset=after)


def reverse_flow(f_h: HiddenDrift, h1: Tensor, path: WeightPath, method: str) -> Tensor:
    """The states at t = 0 that lead to h1 at t = 1, by the flow of -f_h backwards in time: (samples, n, d)."""
    return flow(lambda s, h, w: -f_h(1 - s, h, w), h1, reversed_path(path), method, per_sample=True)


def banach_inverse(f_h: HiddenDrift, h1: Tensor, path: WeightPath, iterations: int = 200) -> Tensor:
    """The exact inverse of the Euler network along one weight path, h1 of shape (n, d).

    Each step, from the last to the first, is inverted by iterating h <- h1 - dt f_h(t, h; w), which contracts distances
    by the factor dt * Lip.
    """
    for k in reversed(range(path.steps)):
        t, w, dt = path.ts[k], path.start(k)[0], path.times[k + 1] - path.times[k]
        h = h1
        for _ in range(iterations):
            h, before = h1 - dt * f_h(t, h, w), h
            # because of rounding, the iterates never stop changing
            if bool((h - before).abs().max() <= 1e-14 * (1 + h.abs().max())):
                break
        h1 = h
    return h1


def roughness(path: WeightPath, lags: tuple[int, ...] = (1, 4, 16, 64)) -> float:
    """The exponent a in E |w_{t + s} - w_t| ~ s^a over the lags s: 1/2 for Brownian motion, 1 for a smooth path."""
    dt = 1 / path.steps
    means = [float((path.w[:, lag:] - path.w[:, :-lag]).abs().mean()) for lag in lags]
    return observed_order([lag * dt for lag in lags], means)


def certify(seed: int = 0) -> list[Certificate]:
    """Check random models for every cut and solver, then the counterexample."""
    return [
        *[_continuous_weights(seed, solver) for solver in SOLVERS],
        *[certificate for solver in SOLVERS for certificate in _on_the_line(seed, solver)],
        *[certificate for solver in SOLVERS for certificate in _in_the_plane(seed, solver)],
        *_coarse_steps(),
    ]


def _continuous_weights(seed: int, solver: str) -> Certificate:
    """The Hoelder exponent of sampled paths of dw = -w dt + dB."""
    process = affine_process(Cut.full(), Brownian(), torch.zeros(1, dtype=torch.float64), matrix=-1.0)
    exponent = roughness(sample(process, 4096, 50, solver, seed))
    what = f"Hoelder exponent of sampled weights (no jumps), {solver}"
    why = "the drift at the longest lag, 64 / 4096, and chance"
    return Certificate(CLAIM, what, exponent, "==", 0.5, 0.02, why)


def _models(d: int, seed: int, solver: str) -> list[tuple[Model, WeightPath]]:
    """One model for every cut, each with one weight path; state-dependent noise for the plain solver."""
    general = solver == "euler"
    seeds = range(seed, seed + len(CUTS))
    drawn = [random_model(d, s) if general else random_bottleneck_model(d, s, solver) for s in seeds]
    return [(model, model.paths(1, seeded(s))) for model, s in zip(drawn, seeds, strict=True)]


def _on_the_line(seed: int, solver: str) -> list[Certificate]:
    x = torch.linspace(-3, 3, 2001, dtype=torch.float64).unsqueeze(-1)
    models = _models(1, seed, solver)
    slopes = [model.images(x, path)[0].diff(dim=0) / x.diff(dim=0) for model, path in models]
    worst = max(step_condition(model.f_h, path) for model, path in models)
    smallest = min(float(s.min()) for s in slopes)
    what = f"d = 1: smallest slope between {len(x)} points (order is kept), {solver}"
    return [
        Certificate(CLAIM, f"largest dt * Lip, models of {len(CUTS)} cuts, {solver}", worst, "<=", 0.999),
        Certificate(CLAIM, what, smallest, ">=", 1e-6),
    ]


def _in_the_plane(seed: int, solver: str) -> list[Certificate]:
    x = Annulus().sample(2, 40, seeded(seed)).x
    back, inverse, determinants, liouville, windings = [], [], [], [], []
    for model, path in _models(2, seed, solver):
        psi: Map = lambda x, model=model, path=path: flow(model.f_h, x, path)[0]  # type: ignore[misc]  # noqa: E731
        with torch.no_grad():
            fine = flow(model.f_h, x, path, "rk4")
            back.append(float((reverse_flow(model.f_h, fine, path, "rk4")[0] - x).abs().max()))
            inverse.append(float((banach_inverse(model.f_h, psi(x), path) - x).abs().max()))
            windings.append(winding_of_image(psi, 2.0))
            determinants.append(float(torch.linalg.det(jacobians(psi, x)).min()))
            liouville.append(liouville_gap(model, path, x[::10]))
    order_4, quadrature = "dt^4 with dt * Lip <= 1/4", "trapezoidal rule and Runge-Kutta"
    contraction = f"|inverse(Euler(x)) - x|, by contraction, {solver}"
    return [
        Certificate(CLAIM, f"|reverse flow(flow(x)) - x|, Runge-Kutta, {solver}", max(back), "<=", 0, 1e-4, order_4),
        Certificate(CLAIM, contraction, max(inverse), "<=", 0, 1e-10, "rounding"),
        Certificate(CLAIM, f"d = 2: smallest det D psi (orientation is kept), {solver}", min(determinants), ">=", 1e-6),
        Certificate(CLAIM, f"|ln det D psi - int div f_h dt|, {solver}", max(liouville), "<=", 0, 1e-3, quadrature),
        Certificate(CLAIM, f"winding number of a circle's image, smallest, {solver}", min(windings), "==", 1),
        Certificate(CLAIM, f"winding number of a circle's image, largest, {solver}", max(windings), "==", 1),
    ]


def liouville_gap(model: Model, path: WeightPath, x: Tensor) -> float:
    """The largest |ln det D psi - int div f_h dt| for psi by Runge-Kutta; 0 by Liouville's formula, hence det > 0."""

    def with_divergence(t: Tensor, h: Tensor, w: Tensor) -> Tensor:
        state = h[:, :-1]
        slopes = jacobians(lambda state: model.f_h(t, state, w), state)
        divergence = torch.diagonal(slopes, dim1=-2, dim2=-1).sum(-1, keepdim=True)
        return torch.cat([model.f_h(t, state, w), divergence], -1)

    start = torch.cat([x, torch.zeros_like(x[:, :1])], -1)
    integral = flow(with_divergence, start, path, "rk4")[0, :, -1]
    psi: Map = lambda x: flow(model.f_h, x, path, "rk4")[0]  # noqa: E731
    log_determinant = torch.linalg.slogdet(jacobians(psi, x)).logabsdet
    return float((log_determinant - integral).abs().max())


def _coarse_steps() -> list[Certificate]:
    x = Annulus().sample(2, 100, seeded()).x[1:]
    x = x[x.norm(dim=-1) > 0.05]  # |h| has no derivative at 0
    flipped = {n: float((torch.linalg.det(jacobians(euler_fold(n), x)) < 0).double().mean()) for n in (1, 3, 10)}
    line = torch.linspace(-1, 1, 201, dtype=torch.float64).unsqueeze(-1)
    meeting = float((euler_fold(1)(line) - euler_fold(1)(-line)).abs().max())
    windings = {n: winding_of_image(euler_fold(n), 2.0) for n in (1, 3)}
    fine = max(flipped[3], flipped[10])
    return [
        Certificate(CLAIM, "fold, 1 Euler step: dt * Lip", FOLD_LIPSCHITZ, ">=", 1),
        Certificate(CLAIM, "fold, 1 step: |psi(x) - psi(-x)|, d = 1 (two points meet)", meeting, "==", 0),
        Certificate(CLAIM, "fold, 1 step: share of the plane with reversed orientation", flipped[1], ">=", 0.25),
        Certificate(CLAIM, "fold, 1 step: winding number of a circle's image", windings[1], "==", 0),
        Certificate(CLAIM, "fold, 3 and 10 steps: share with reversed orientation", fine, "==", 0),
        Certificate(CLAIM, "fold, 3 steps: winding number of a circle's image", windings[3], "==", 1),
    ]
