"""The model of Theorem 4.2's proof, built from the real weight process and flow of sdeweights.

    R1 = [0, 1/2)     dw = sigma dB,  dh = [0, 0, w[1:m]] dt           h = [x, 0, eta],  eta = int sigma B dt ~ N(0, I)
    R2 = [1/2, 3/4)   dw = f_q dt,    dh = 0                           w[1:m_gamma] -> gamma, or within delta of it
    R3 = [3/4, 1]     dw = 0,         dh = 4 [0, F_w(x, eta), 0] dt    h = [x, F_w(x, eta), eta],  L h = F_w(x, eta)

Three things differ from the printed proof. sigma_0^2 is Var int_0^1/2 B dt = 1/24. R3 needs a factor 4, being a quarter
long. And on n1 steps of R1 the integral is Euler's sum, so that sigma is chosen for that sum (`sigma_for`).

Schemes must not look at the right end of a step, where the next region begins: Euler for h, the midpoint rule for w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, final

import torch
from scipy import stats
from torch import Tensor, nn

from sdeweights import Brownian, Cut, Functional, Grid, WeightProcess, flatten, flow
from sdeweights.diffusion import Field
from theory import theorem_a1
from theory.dimensions import Dimensions
from theory.laws import SmoothLaw
from theory.networks import Family, largest_radius

T2, T3 = 0.5, 0.75  # R1, R2 and R3 begin at 0, T2 and T3
D_X = 1


class Case(StrEnum):
    """What becomes of the weights at t2 = 1/2, and how they come to gamma by t = 3/4."""

    FIXED = "fixed"  # (i) w = 0, then f_q = 4 gamma
    LEARNED = "learned"  # (ii) w = gamma, then f_q = 0
    CONTINUED = "continued"  # (iii) w = sigma B, then a linear field contracts it to gamma
    SHEARED = "continued, Lemma 3"  # (iii) the same map by three shears in 2 m_gamma dimensions


def sigma_for(n1: int | None) -> float:
    """sigma with Var eta = 1: sqrt(24) in continuous time (None), a little more for Euler's sum over n1 steps.

    Var (dt sum_{k<n} B_{k dt}) = T^3 / 3 (1 - 1/n) (1 - 1/(2n)),  T = 1/2.
    """
    if n1 is None:
        return math.sqrt(24)
    if n1 < 2:
        raise ValueError(f"expected at least 2 steps in R1, got {n1}: Euler's sum over one step is 0")
    return math.sqrt(24 / variance_share(n1))


def variance_share(n1: int) -> float:
    """The share of the variance 1/24 that Euler's sum over n1 steps has: 0.8203 for 8, 0.9767 for 64."""
    return (1 - 1 / n1) * (1 - 1 / (2 * n1))


@final
class Capped(nn.Module):
    """Lemma 4's field on [x, y, eta]: speed * [0, net(x, eta), 0]; its parameters, gamma, are those of the net."""

    def __init__(self, net: nn.Sequential, r: int, speed: float) -> None:
        super().__init__()
        self.net = net
        self.r = r
        self.speed = speed

    def forward(self, h: Tensor) -> Tensor:
        """The field, of h's shape."""
        x, eta = h[..., :D_X], h[..., D_X + self.r :]
        y = self.speed * self.net(torch.cat([x, eta], -1))
        return torch.cat([torch.zeros_like(x), y, torch.zeros_like(eta)], -1)


@dataclass(frozen=True, eq=False)
class Construction:
    """One model of the proof; every choice of the proof is a field, so that a wrong choice is a value too.

    Attributes:
        law: the conditional law that is approximated.
        epsilon: both the probability and the error that are allowed.
        case: what becomes of w at t2.
        family: of the network F, and of the network that is f_q on R2.
        net: F, from (x, eta) to y.
        cut: when and where w is noisy.
        steps: of the grid; T2 and T3 have to be among its points.
        sigma: noise of the weights.
        delta: how close w has to come to gamma.
        speed: factor of the field on R3.
    """

    law: SmoothLaw
    epsilon: float
    case: Case
    family: Family
    net: nn.Sequential
    cut: Cut
    steps: int
    sigma: float
    delta: float
    speed: float = 4.0

    def __post_init__(self) -> None:
        Grid.of(self.cut, self.steps).index(T3)

    @property
    def n1(self) -> int:
        """Steps of R1."""
        return Grid.of(self.cut, self.steps).index(T2)

    @cached_property
    def _field(self) -> tuple[Tensor, Functional]:
        return flatten(Capped(self.net, self.law.d_y, self.speed))

    @property
    def gamma(self) -> Tensor:
        """The parameters of the network, (m_gamma,)."""
        return self._field[0]

    @cached_property
    def dimensions(self) -> Dimensions:
        """All sizes."""
        return Dimensions.of(D_X, self.law.d_y, self.law.m, len(self.gamma))

    @property
    def reach(self) -> float:
        """lambda: P(|eta| <= lambda) = 1 - epsilon / 2."""
        return theorem_a1.reach(self.law.m, 1 - self.epsilon / 2)

    @property
    def Lambda(self) -> float:
        """P(|sigma B_1/2 [1:m_gamma]| <= Lambda) = 1 - epsilon / 20.

        The proof asks for 1 - epsilon / 2 at least. With exactly that, P(A) would be 1 - epsilon and some, and no
        number of samples that fits a test could tell the two apart.
        """
        return self.sigma * math.sqrt(T2) * float(stats.chi.ppf(1 - self.epsilon / 20, len(self.gamma)))

    def f_h(self, t: Tensor, h: Tensor, w: Tensor) -> Tensor:
        """The hidden drift of the three regions."""
        if t < T2:
            return torch.cat([torch.zeros_like(h[..., : -self.law.m]), w[: self.law.m].expand(len(h), -1)], -1)
        if t < T3:
            return torch.zeros_like(h)
        f: Tensor = self._field[1](t, h, w[: self.dimensions.m_gamma])
        return f

    def f_q(self, t: Tensor, w: Tensor) -> Tensor:
        """The drift of the weights in the three regions."""
        return self._toward_gamma(t, w) if T2 <= t < T3 else torch.zeros_like(w)

    @cached_property
    def _toward_gamma(self) -> Field:
        """f_q on R2."""
        m_gamma, ratio = len(self.gamma), self.delta / (2 * self.Lambda)
        if self.case is Case.LEARNED:
            return lambda t, w: torch.zeros_like(w)  # noqa: ARG005
        if self.case is Case.FIXED:
            target = self._padded(self.gamma / (T3 - T2))
            return lambda t, w: target.expand_as(w)  # noqa: ARG005
        if self.case is Case.SHEARED:
            return sheared(self.gamma, ratio, self.dimensions.m1)
        linear = contraction(self.family, self.gamma, ratio)
        return lambda t, w: torch.cat([linear(t, w[..., :m_gamma]), torch.zeros_like(w[..., m_gamma:])], -1)

    def _padded(self, values: Tensor) -> Tensor:
        return torch.cat([values, values.new_zeros(self.dimensions.d_w - len(values))])

    def process(self) -> WeightProcess:
        """The weight process: from w_0 = 0, with a Brownian prior."""
        w0 = self._padded(self.gamma[:0])
        after = {Case.FIXED: w0, Case.LEARNED: self._padded(self.gamma)}.get(self.case) if self.cut.resets else None
        return WeightProcess(w0, self.f_q, Brownian(self.sigma), self.cut, after, allow_leak=True)


def contraction(family: Family, gamma: Tensor, ratio: float) -> Field:
    """w' = k (w - c), which carries y at 1/2 to gamma + ratio y at 3/4; as a network of either family.

    e^{k/4} = ratio and c = gamma / (1 - ratio). ReLU networks hold it exactly, u = relu(u) - relu(-u); wide ones as
    tanh(s u) / s, off by s^2 u^2 / 3.
    """
    if not 0 < ratio < 1:
        raise ValueError(f"expected a contraction, 0 < delta / (2 Lambda) < 1, got {ratio:g}")
    k, c = math.log(ratio) / (T3 - T2), gamma / (1 - ratio)
    s = 1e-3  # |u| < 30, so that s^2 u^2 / 3 < 3e-4
    if family is Family.DEEP:
        return lambda t, w: torch.relu(k * (w - c)) - torch.relu(-k * (w - c))  # noqa: ARG005
    return lambda t, w: k / s * torch.tanh(s * (w - c))  # noqa: ARG005


def sheared(gamma: Tensor, ratio: float, m1: int) -> Field:
    """Lemma 3's field for phi(y) = gamma + ratio y on [1/2, 3/4), between w[1:m_gamma] and the zeros w[m1:]."""
    quarter = (T3 - T2) / 4

    def field(t: Tensor, w: Tensor) -> Tensor:
        x, rest, y = w[..., : len(gamma)], w[..., len(gamma) : m1], w[..., m1:]
        dx, dy = torch.zeros_like(x), torch.zeros_like(y)
        if t < T2 + quarter:
            dy = (gamma + ratio * x) / quarter
        elif t < T2 + 3 * quarter:
            dx = (y - (y - gamma) / ratio) / (2 * quarter)
        else:
            dy = -x / quarter
        return torch.cat([dx, torch.zeros_like(rest), dy], -1)

    return field


def construct(
    law: SmoothLaw, epsilon: float, case: Case, family: Family = Family.WIDE, steps: int | None = None
) -> Construction:
    """The model of the proof for a law, an epsilon and a case.

    Half of epsilon goes to the network (Theorem A.1), half to delta, by the bound of `networks.sensitivity`. The
    paper's Sigma, zero on the last m2 weights, is the cut of the first m1 weights; only Lemma 3 needs it, elsewhere all
    weights may be noisy. The linear field needs steps that resolve a rate of about -40; all else is exact on 16 steps.
    """
    reach = theorem_a1.reach(law.m, 1 - epsilon / 2)
    net = theorem_a1.approximation(law, family, epsilon).ignoring(law.m - 1).module(reach)
    steps = steps or (96 if case is Case.CONTINUED else 16)
    m_gamma = sum(parameter.numel() for parameter in net.parameters())
    cuts = {
        Case.FIXED: Cut.vertical(0, T2, at_t2="fixed"),
        Case.LEARNED: Cut.vertical(0, T2, at_t2="learned"),
        Case.CONTINUED: Cut.vertical(0, T2),
        Case.SHEARED: Cut.both(0, T2, range(max(law.m, m_gamma))),
    }
    sigma = sigma_for(Grid.of(cuts[case], steps).index(T2))
    resets = case in (Case.FIXED, Case.LEARNED)
    delta = 0.0 if resets else largest_radius(net, math.hypot(1, reach), epsilon / 2)
    return Construction(law, epsilon, case, family, net, cuts[case], steps, sigma, delta)


class Outcome(NamedTuple):
    """What the samples of a model came to.

    Attributes:
        eta: noise in the hidden state, (samples, m).
        y: outputs L h_1, (samples, len(x), d_y).
        error: sup over x of |y - f~(x, eta)|, (samples,).
        inside: whether the sample lies in A, (samples,).
        distance: |w_3/4 [1:m_gamma] - gamma|, (samples,).
        kl: of the path, (samples,).
    """

    eta: Tensor
    y: Tensor
    error: Tensor
    inside: Tensor
    distance: Tensor
    kl: Tensor


def run(model: Construction, x: Tensor, samples: int, generator: torch.Generator, batch: int = 100) -> Outcome:
    """Sample the weights, carry the inputs x, (n, 1), along them, and compare with the generator of the law.

    In batches, for the memory of the paths; the samples are those of one batch, whatever its size.
    """
    process = model.process()
    sizes = [min(batch, samples - done) for done in range(0, samples, batch)]
    with torch.no_grad():
        parts = [_run_batch(model, process, x, size, generator) for size in sizes]
    return Outcome(*(torch.cat(field) for field in zip(*parts, strict=True)))


def _run_batch(
    model: Construction, process: WeightProcess, x: Tensor, samples: int, generator: torch.Generator
) -> Outcome:
    d, law = model.dimensions, model.law
    path = process.sample(model.steps, samples, generator=generator, ode_solver="midpoint")
    h0 = torch.cat([x, x.new_zeros(len(x), d.r + d.m)], 1)
    h1 = flow(model.f_h, h0, path, method="euler", vectorize=True)
    y, eta = h1[..., d.d_x : d.d_x + d.r], h1[:, 0, d.d_x + d.r :]
    wanted = law.generator(x.expand(samples, -1, -1), eta[:, None].expand(-1, len(x), -1))
    inside = eta.norm(dim=-1) <= model.reach
    if not model.cut.resets:
        inside &= path.at(T2)[:, : d.m_gamma].norm(dim=-1) <= model.Lambda
    distance = (path.at(T3)[:, : d.m_gamma] - model.gamma).norm(dim=-1)
    return Outcome(eta, y, (y - wanted).norm(dim=-1).amax(1), inside, distance, path.kl)
