"""Train a generator by the importance-weighted bound, for each pair (x, y) on its own:

    log 1/K sum_k p(y | x, w_k) dP/dQ(w_k)  <=  log p(y | x) = log E_P p(y | x, w)    in the mean over w_k ~ Q

The weights generate y, so they are drawn again for each y, unlike the weights of a regression, which all data share.
All pairs of a batch use the same K paths; this correlates their errors and does not change the mean. The bound rises
with K. If K is small, the learned law is too wide: a y that no path comes near costs more than it should.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel

from sdeweights import importance_bound
from theory.generators import Generator

Pairs = Callable[[int, torch.Generator], tuple[Tensor, Tensor]]  # n and a source -> x (n, d_x) and y (n, d_y)


@dataclass(frozen=True)
class Plan:
    """How to train. sigma_y falls from `wide` to that of the model during the first half of the updates.

    The learned weights are the mean over the last quarter of the updates. The last update alone is a worse model: each
    one follows the noise of its own pairs and paths.
    """

    updates: int = 1500
    pairs: int = 128  # per update, each used once
    paths: int = 128  # K
    rate: float = 0.01  # first learning rate of Adam; the last one is a tenth of it
    wide: float = 0.4


def bounds(log_likelihood: Tensor, log_ratio: Tensor) -> Tensor:
    """The importance-weighted bound of each pair, (n,), from log p(y | x, w), (K, n), and log dQ/dP, (K,)."""
    each: Tensor = torch.vmap(importance_bound, in_dims=(1, None))(log_likelihood, log_ratio)
    return each


def fit(model: Generator, data: Pairs, plan: Plan, source: torch.Generator) -> Generator:
    """Maximise the mean bound over pairs and return a model with averaged weights."""
    averaged = AveragedModel(model)
    adam = torch.optim.Adam(model.parameters(), lr=plan.rate)
    slower = torch.optim.lr_scheduler.CosineAnnealingLR(adam, max(plan.updates, 1), plan.rate / 10)
    for k in range(plan.updates):
        share = min(1.0, 2 * k / plan.updates)
        sigma_y = plan.wide ** (1 - share) * model.sigma_y**share
        x, y = data(plan.pairs, source)
        path = model.even_paths(plan.paths, source)
        loss = -bounds(model.log_likelihood(x, y, path, sigma_y), path.log_ratio).mean()
        adam.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        adam.step()
        slower.step()
        model.f_D.project_()
        if k >= 3 * plan.updates // 4:
            averaged.update_parameters(model)
    return cast("Generator", averaged.module)
