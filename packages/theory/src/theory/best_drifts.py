"""The best drift of a regression on w_1, for any cut and any price of the deterministic part.

    objective = E log p(y | w_1) - KL - price * action of the deterministic part

The weights w_S are noisy in the window, so their drift may use feedback; they are the chain of `linear_gaussian`. The
other weights w_D follow one path, and the least action that takes it from its mean m_D under the prior to m_D + x is
|x|^2 / 2v, with v the prior variance of a noisy weight. As the objective is quadratic, the shift of E w_1 is

    argmin_x  1/2 |y - X (m + x)|^2 + 1/2 sum_i x_i^2 / c_i,    c_i = sum_k dt (1 - dt)^{2(n - 1 - k)} / price_ik,

and the feedback does not depend on it. A drift that is kept has an infinite price, a free one none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from sdeweights import Cut
from theory.linear_gaussian import FREE, KEPT, Chain, Law, Regression


class Price(StrEnum):
    """What the drift of deterministic phases and coordinates costs."""

    KEPT = "prior's drift"  # f_q = f_p there
    FREE = "free drift"  # nothing: the paper's objective
    CHARGED = "free drift, MAP price"  # its action under the prior

    @property
    def number(self) -> float:
        """The price of a unit of action, finite and positive."""
        return {Price.KEPT: KEPT, Price.FREE: FREE, Price.CHARGED: 1.0}[self]


@dataclass(frozen=True, eq=False)
class Problem:
    """A regression on w_1 and a cut of the weights, on a grid that has t1 and t2 as points; no reset at t2."""

    data: Regression
    w0: Tensor
    cut: Cut
    steps: int

    @property
    def S(self) -> Tensor:
        """The stochastic coordinates."""
        return self.cut.indices(len(self.w0))

    @property
    def D(self) -> Tensor:
        """The deterministic coordinates."""
        return self.cut.complement(len(self.w0))

    def prior(self, price: Price = Price.KEPT) -> Law:
        """The prior of w_1: with the noise of the cut, or of all weights at all depths if the action is charged."""
        whole = Chain(self.w0, torch.ones(self.steps).to(self.w0)).prior()
        if price is Price.CHARGED:
            return whole
        noisy = torch.zeros_like(self.w0).index_fill(0, self.S, float(self.chain().prior().cov[0, 0]))
        return Law(whole.mean, torch.diag(noisy))

    def log_evidence(self, price: Price = Price.KEPT) -> float:
        """The log evidence of that prior."""
        return self.data.log_evidence(self.prior(price))

    def posterior(self, price: Price = Price.KEPT) -> Law:
        """The posterior of w_1 under that prior, whose covariance need not be invertible."""
        return conditioned(self.data, self.prior(price))

    def chain(self) -> Chain:
        """The Euler chain of the stochastic coordinates."""
        return Chain.of(Cut.vertical(self.cut.t1, self.cut.t2), self.w0[self.S], self.steps)

    def best(self, price: Price) -> tuple[Law, float]:
        """The law of w_1 for the best drift at this price, and its objective."""
        chain, data = self.chain(), self.data
        prices = torch.where(chain.noisy > 0, 1.0, price.number).to(self.w0)
        shift = self._shift(prices, price)
        mean_D, paid = (self.prior().mean + shift)[self.D], price is Price.CHARGED
        of_S = Regression(data.X[:, self.S], data.y - data.X[:, self.D] @ mean_D)
        drift = chain.best(of_S, prices)
        law = chain.laws(drift)[-1]
        action = float(shift[self.D].square().sum() / (2 * self._reach(torch.ones_like(prices))))
        objective = chain.objective(of_S, drift, torch.ones_like(prices) if paid else chain.noisy) - paid * action
        mean, cov = torch.zeros_like(self.w0), torch.zeros(len(self.w0), len(self.w0)).to(self.w0)
        mean[self.S], mean[self.D] = law.mean, mean_D
        cov[self.S[:, None], self.S] = law.cov
        return Law(mean, cov), objective

    def _shift(self, prices: Tensor, price: Price) -> Tensor:
        """The best shift of E w_1 from its mean under the prior, (d,)."""
        free = torch.full_like(self.w0, self._reach(torch.full_like(prices, price.number)))
        reach = free.index_fill(0, self.S, self._reach(prices))
        return self.data.posterior(Law(self.prior().mean, torch.diag(reach))).mean - self.prior().mean

    def _reach(self, prices: Tensor) -> float:
        """c: shifting a weight by x until t = 1 costs at least x^2 / 2c at these prices of the steps."""
        dt, n = 1 / self.steps, torch.arange(self.steps).flip(0).to(self.w0)
        return float((dt * (1 - dt) ** (2 * n) / prices).sum())


def conditioned(data: Regression, law: Law) -> Law:
    """The law of w given y, also for a singular covariance."""
    XC = data.X @ law.cov
    gain = torch.linalg.solve(torch.eye(len(data.y)).to(XC) + XC @ data.X.T, XC).T
    return Law(law.mean + gain @ (data.y - data.X @ law.mean), law.cov - gain @ XC)
