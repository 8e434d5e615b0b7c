"""The model of Theorem 4.2's proof, built from the weight process and flow of sdeweights.

    R1 = [0, 1/2)     dw = sigma dB,  dh = [0, 0, w[1:m]] dt           h = [x, 0, eta],  eta = int sigma B dt ~ N(0, I)
    R2 = [1/2, 3/4)   dw = f_q dt,    dh = 0                           w[1:m_gamma] -> gamma, or within delta of it
    R3 = [3/4, 1]     dw = 0,         dh = 4 [0, F_w(x, eta), 0] dt    h = [x, F_w(x, eta), eta],  L h = F_w(x, eta)

Three things differ from the printed proof. sigma_0^2 is Var int_0^1/2 B dt = 1/24. R3 has length 1/4, so its field
needs the factor 4. With n1 steps in R1 the integral is an Euler sum, and sigma is chosen for that sum (`sigma_for`).

The schemes must not evaluate the right end of a step, where the next region begins, so we use Euler for h and midpoint
for w.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import final

import torch
from scipy import stats
from torch import Tensor, nn

from sdeweights import Brownian, Cut, Functional, Grid, WeightProcess, flatten
from sdeweights.diffusion import Field
from theory import theorem_a1
from theory.dimensions import Dimensions
from theory.laws import SmoothLaw
from theory.networks import Family, largest_radius
from theory.steering import T2, T3, contraction, sheared

D_X = 1


class Case(StrEnum):
    """What happens to the weights at t2 = 1/2, and how they reach gamma by t = 3/4."""

    FIXED = "fixed"  # (i) w = 0, then f_q = 4 gamma
    LEARNED = "learned"  # (ii) w = gamma, then f_q = 0
    CONTINUED = "continued"  # (iii) w = sigma B, then a linear field contracts it to gamma
    SHEARED = "continued, Lemma 3"  # (iii) the same map by three shears in 2 m_gamma dimensions


def sigma_for(n1: int | None) -> float:
    """sigma with Var eta = 1: sqrt(24) in continuous time (None), slightly more for an Euler sum over n1 steps.

    Var (dt sum_{k<n} B_{k dt}) = T^3 / 3 (1 - 1/n) (1 - 1/(2n)),  T = 1/2.
    """
    if n1 is None:
        return math.sqrt(24)
    if n1 < 2:
        raise ValueError(f"expected at least 2 steps in R1, got {n1}: the Euler sum over one step is 0")
    return math.sqrt(24 / variance_share(n1))


def variance_share(n1: int) -> float:
    """Variance of the Euler sum over n1 steps as a fraction of 1/24: 0.8203 for 8 steps, 0.9767 for 64."""
    return (1 - 1 / n1) * (1 - 1 / (2 * n1))


@final
class Capped(nn.Module):
    """Lemma 4's field on [x, y, eta]: speed * [0, net(x, eta), 0]. Its parameters are gamma, those of the net."""

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


def three_regions(t: Tensor, h: Tensor, noise: Tensor, field: Functional, gamma: Tensor) -> Tensor:
    """f_h: the noisy weights, (m,), move the last m coordinates in R1, nothing moves in R2, the network acts in R3."""
    if t < T2:
        return torch.cat([torch.zeros_like(h[..., : -len(noise)]), noise.expand(len(h), -1)], -1)
    f: Tensor = torch.zeros_like(h) if t < T3 else field(t, h, gamma)
    return f


@dataclass(frozen=True, eq=False)
class Construction:
    """A model of the proof. Every choice made in the proof is a field, so tests can also build a wrong model."""

    law: SmoothLaw  # the conditional law to approximate
    epsilon: float  # the largest allowed probability of failure, and the largest allowed error
    case: Case  # what happens to w at t2
    family: Family  # of the network F, and of the network f_q on R2
    net: nn.Sequential  # F, from (x, eta) to y
    cut: Cut  # when w is noisy, and in which coordinates
    steps: int  # of the grid; T2 and T3 must be grid points
    sigma: float  # noise of the weights
    delta: float  # how close w has to come to gamma
    speed: float = 1 / (1 - T3)  # factor of the field on R3, which has length 1 - T3

    def __post_init__(self) -> None:
        Grid.of(self.cut, self.steps).index(T3)

    @cached_property
    def _field(self) -> tuple[Tensor, Functional]:
        return flatten(Capped(self.net, self.law.d_y, self.speed))

    @property
    def gamma(self) -> Tensor:
        """The parameters of the network, (m_gamma,)."""
        return self._field[0]

    @cached_property
    def dimensions(self) -> Dimensions:
        """All dimensions of the model."""
        return Dimensions.of(D_X, self.law.d_y, self.law.m, len(self.gamma))

    @property
    def reach(self) -> float:
        """lambda, the radius of the event A_1:  P(|eta| <= lambda) = 1 - epsilon / 2."""
        return theorem_a1.noise_radius(self.law, self.epsilon)

    @property
    def Lambda(self) -> float:
        """The radius of the event A_2:  P(|sigma B_1/2 [1:m_gamma]| <= Lambda) = 1 - epsilon / 20.

        The proof requires at least 1 - epsilon / 2. With exactly that value, P(A) would barely exceed 1 - epsilon, and
        telling the two apart would take too many samples.
        """
        return self.sigma * math.sqrt(T2) * float(stats.chi.ppf(1 - self.epsilon / 20, len(self.gamma)))

    def f_h(self, t: Tensor, h: Tensor, w: Tensor) -> Tensor:
        """The hidden drift of the three regions."""
        return three_regions(t, h, w[: self.law.m], self._field[1], w[: self.dimensions.m_gamma])

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
        """The weight process, which starts at w_0 = 0 and has a Brownian prior."""
        w0 = self._padded(self.gamma[:0])
        after = {Case.FIXED: w0, Case.LEARNED: self._padded(self.gamma)}.get(self.case) if self.cut.resets else None
        return WeightProcess(w0, self.f_q, Brownian(self.sigma), self.cut, after, allow_leak=True)


def construct(
    law: SmoothLaw, epsilon: float, case: Case, family: Family = Family.WIDE, steps: int | None = None
) -> Construction:
    """The model of the proof for a law, an epsilon and a case.

    Half of epsilon is spent on the network (Theorem A.1) and half on delta, using the bound of `networks.sensitivity`.
    The paper's Sigma is zero on the last m2 weights, which here is a cut of the first m1 weights. Only Lemma 3 needs
    it; in the other cases all weights may be noisy. The linear field has a rate of about -40 and needs 96 steps; the
    other fields are exact with 16.
    """
    reach = theorem_a1.noise_radius(law, epsilon)
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
