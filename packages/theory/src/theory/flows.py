"""Flows are homeomorphisms, the step of Theorem 4.1's proof that rules z out.

Along a continuous weight path dh = f_h(t, h; w_t) dt is an ordinary differential equation with a field Lipschitz in h.
Its flow psi has an inverse, the flow of -f_h backwards in time; it keeps order on the line (d = 1), the sign of
det D psi, and how often a curve winds around a point of the plane. All of that holds already for Euler's network of n
steps while dt * Lip < 1:

    h = h1 - dt f_h(t, h; w) is the fixed point of a contraction,   prod (1 - dt Lip) <= |psi x - psi y| / |x - y|.

Coarser steps are no homeomorphisms, which the paper passes over: `theory.fields.fold` is a counter-example.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sdeweights import Brownian, Cut, WeightPath, WeightProcess, flow
from sdeweights.functional import HiddenDrift
from sdeweights.testing import observed_order, seeded
from theory.annulus import Annulus, directions
from theory.certificate import Certificate
from theory.fields import FOLD_LIPSCHITZ, fold, step_condition
from theory.models import CUTS, Model, random_model

CLAIM = "Flows"
Map = Callable[[Tensor], Tensor]  # (n, d) -> (n, d)


def reversed_path(path: WeightPath) -> WeightPath:
    """The same weights run through backwards; left and right limits at a reset change places."""
    w = path.w.flip(1)
    reset, after = None, None
    if path.reset is not None and path.after_reset is not None:
        reset, after = path.steps - path.reset, path.w[:, path.reset]
        w = w.clone()
        w[:, reset] = path.after_reset
    times = tuple(1 - t for t in reversed(path.times))
    return WeightPath(1 - path.ts.flip(0), w, path.kl, times, reset=reset, after_reset=after)


def reverse_flow(f_h: HiddenDrift, h1: Tensor, path: WeightPath, method: str) -> Tensor:
    """Where the states h1 at t = 1 came from, by the flow of -f_h backwards in time: (samples, n, d)."""
    return flow(lambda s, h, w: -f_h(1 - s, h, w), h1, reversed_path(path), method, per_sample=True)


def banach_inverse(f_h: HiddenDrift, h1: Tensor, path: WeightPath, iterations: int = 200) -> Tensor:
    """The exact inverse of Euler's network along one weight path, h1 of shape (n, d).

    Step by step, from the last to the first, h is the limit of h <- h1 - dt f_h(t, h; w), which contracts by dt * Lip.
    """
    for k in reversed(range(path.steps)):
        t, w, dt = path.ts[k], path.start(k)[0], path.times[k + 1] - path.times[k]
        h = h1
        for _ in range(iterations):
            h, before = h1 - dt * f_h(t, h, w), h
            if bool((h - before).abs().max() <= 1e-14 * (1 + h.abs().max())):  # rounding goes on for ever
                break
        h1 = h
    return h1


def expansion_bounds(rates: Sequence[float]) -> tuple[float, float]:
    """prod (1 - rate) and prod (1 + rate), rate = dt * Lip: how much closer and farther Euler's steps may move points.

    Example:
        >>> expansion_bounds([0.5, 0.5])
        (0.25, 2.25)
    """
    return math.prod(1 - rate for rate in rates), math.prod(1 + rate for rate in rates)


def jacobians(psi: Map, x: Tensor) -> Tensor:
    """D psi at the points x, (n, d): (n, d, d). Points do not see each other, so their sum has the gradient of each."""
    with torch.enable_grad():
        start = x.detach().requires_grad_()
        rows = [torch.autograd.grad(y.sum(), start, retain_graph=True)[0] for y in psi(start).unbind(-1)]
    return torch.stack(rows, 1)


def winding_number(curve: Tensor, point: Tensor) -> int:
    """How often a closed polygon, (n, 2), winds around a point, (2,); a ``ValueError`` where it is too coarse."""
    spokes = torch.view_as_complex((curve - point).contiguous())
    turns = torch.angle(spokes.roll(-1) / spokes)
    if not bool((turns.abs() < math.pi / 2).all()):
        raise ValueError(f"expected turns below 90 degrees, got {math.degrees(float(turns.abs().max())):.0f}; refine")
    return round(float(turns.sum()) / (2 * math.pi))


def winding_of_image(psi: Map, radius: float, start: int = 256, largest: int = 2**16) -> int:
    """How often the image of the circle |x| = radius winds around that of 0; the circle is refined until it tells."""
    n = start
    while True:
        circle = radius * directions(2, n, seeded())
        try:
            return winding_number(psi(circle), psi(torch.zeros(1, 2, dtype=torch.float64))[0])
        except ValueError:
            if n >= largest:
                raise
            n *= 4


def euler_fold(n: int) -> Map:
    """Euler with n steps on the field `fold`: no homeomorphism while 2 / n >= 1."""

    def psi(x: Tensor) -> Tensor:
        for _ in range(n):
            x = x + fold(x.new_zeros(()), x, x) / n
        return x

    return psi


def roughness(path: WeightPath, lags: tuple[int, ...] = (1, 4, 16, 64)) -> float:
    """The exponent a in E |w_{t + s} - w_t| ~ s^a over the lags s: 1/2 for Brownian motion, 1 for a smooth path."""
    dt = 1 / path.steps
    means = [float((path.w[:, lag:] - path.w[:, :-lag]).abs().mean()) for lag in lags]
    return observed_order([lag * dt for lag in lags], means)


def certify(seed: int = 0) -> list[Certificate]:
    """Random models of every cut, then the counter-example."""
    return [_continuous_weights(seed), *_on_the_line(seed), *_in_the_plane(seed), *_coarse_steps()]


def _continuous_weights(seed: int) -> Certificate:
    process = WeightProcess(torch.zeros(1, dtype=torch.float64), lambda t, w: -w, Brownian(), Cut.full())  # noqa: ARG005
    with torch.no_grad():
        path = process.sample(4096, 50, generator=seeded(seed))
    return Certificate(
        CLAIM,
        "Hoelder exponent of sampled weights (no jumps)",
        roughness(path),
        "==",
        0.5,
        0.02,
        "the drift at the longest lag, 64 / 4096, and chance",
    )


def _models(d: int, seed: int) -> list[tuple[Model, WeightPath]]:
    """Two models for every cut, each with one weight path."""
    drawn = [random_model(d, seed + k) for k in range(2 * len(CUTS))]
    return [(model, model.paths(1, seeded(seed + k))) for k, model in enumerate(drawn)]


def _on_the_line(seed: int) -> list[Certificate]:
    x = torch.linspace(-3, 3, 2001, dtype=torch.float64).unsqueeze(-1)
    models = _models(1, seed)
    slopes = [model.images(x, path)[0].diff(dim=0) / x.diff(dim=0) for model, path in models]
    return [
        Certificate(
            CLAIM,
            f"largest dt * Lip, {len(models)} models of {len(CUTS)} cuts",
            max(step_condition(model.f_h, path) for model, path in models),
            "<=",
            0.999,
        ),
        Certificate(
            CLAIM,
            "d = 1: smallest slope between 2001 points (order is kept)",
            min(float(s.min()) for s in slopes),
            ">=",
            1e-6,
        ),
    ]


def _in_the_plane(seed: int) -> list[Certificate]:
    x = Annulus().sample(2, 40, seeded(seed)).x
    back, inverse, determinants, liouville, windings = [], [], [], [], []
    for model, path in _models(2, seed):
        psi: Map = lambda x, model=model, path=path: flow(model.f_h, x, path)[0]  # type: ignore[misc]  # noqa: E731
        with torch.no_grad():
            fine = flow(model.f_h, x, path, "rk4")
            back.append(float((reverse_flow(model.f_h, fine, path, "rk4")[0] - x).abs().max()))
            inverse.append(float((banach_inverse(model.f_h, psi(x), path) - x).abs().max()))
            windings.append(winding_of_image(psi, 2.0))
            determinants.append(float(torch.linalg.det(jacobians(psi, x)).min()))
            liouville.append(liouville_gap(model, path, x[::10]))
    return [
        Certificate(
            CLAIM, "|reverse flow(flow(x)) - x|, Runge-Kutta", max(back), "<=", 0, 1e-4, "dt^4 with dt * Lip <= 1/4"
        ),
        Certificate(CLAIM, "|inverse(Euler(x)) - x|, by contraction", max(inverse), "<=", 0, 1e-10, "rounding"),
        Certificate(CLAIM, "d = 2: smallest det D psi (orientation is kept)", min(determinants), ">=", 1e-6),
        Certificate(
            CLAIM, "|ln det D psi - int div f_h dt|", max(liouville), "<=", 0, 1e-3, "trapezoidal rule and Runge-Kutta"
        ),
        Certificate(CLAIM, "winding number of a circle's image, smallest", min(windings), "==", 1),
        Certificate(CLAIM, "winding number of a circle's image, largest", max(windings), "==", 1),
    ]


def liouville_gap(model: Model, path: WeightPath, x: Tensor) -> float:
    """|ln det D psi - int div f_h dt| at its worst, psi by Runge-Kutta. Liouville's formula: so det is positive."""

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
    return [
        Certificate(CLAIM, "coarse Euler: dt * Lip with one step", FOLD_LIPSCHITZ, ">=", 1),
        Certificate(CLAIM, "coarse Euler: |psi(x) - psi(-x)|, d = 1 (two points meet)", meeting, "==", 0),
        Certificate(CLAIM, "coarse Euler: share of the plane turned over, 1 step", flipped[1], ">=", 0.25),
        Certificate(CLAIM, "winding number of a circle's image, 1 step", winding_of_image(euler_fold(1), 2.0), "==", 0),
        Certificate(CLAIM, "share of the plane turned over, 3 and 10 steps", max(flipped[3], flipped[10]), "==", 0),
        Certificate(
            CLAIM, "winding number of a circle's image, 3 steps", winding_of_image(euler_fold(3), 2.0), "==", 1
        ),
    ]
