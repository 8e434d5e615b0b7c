"""Train the paper's network f_q = f_p + net on a regression of w_1, for any cut and price of its deterministic part.

    loss = E [KL - log p(y | w_1)]  (+ action of the deterministic part, if it is charged)

The net is a `BottleneckDrift` with the activation silu. silu(x) - silu(-x) = x and silu(0) = 0, so pairs of opposite
units start as an affine function of w, and a layer whose gate is closed passes nothing on. If the prior's drift is kept
outside the window, two steep gates close the net there, to the last bit, and the net of w_D is zero. So every solver
integrates every case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from sdeweights import BottleneckDrift, Cut, Grid, PriorPlus, SplitDrift, WeightProcess
from sdeweights.drifts import ConcatSquash
from sdeweights.kl import path_action
from sdeweights.testing import seeded
from theory.best_drifts import Price, Problem
from theory.linear_gaussian import PRIOR

SOLVER = "fused-euler"
STEEP = 1e5  # slope of a gate that is 0 or 1 at every grid point


class Stage(NamedTuple):
    """Part of a training run: the number of steps of the grid, that of updates, and the first learning rate."""

    steps: int
    updates: int
    rate: float


def affine_net(d: int, seed: int) -> BottleneckDrift:
    """A net that passes on w and w times a gate that opens with t, in pairs of units; its last layer is zero."""
    net = BottleneckDrift(d, (4 * d, 2 * d), activation=nn.functional.silu, generator=seeded(seed)).double()
    pairs = torch.cat([torch.eye(d), -torch.eye(d)]).double()
    first, second, _ = _layers(net)
    with torch.no_grad():
        for layer in (first, second):
            for part in (layer.bias, layer.gate_slope, layer.gate_bias, layer.time_slope):
                part.zero_()
        first.weight.copy_(2 * torch.cat([pairs, pairs]))  # a gate of 1/2
        first.gate_slope[2 * d :] = 4.0
        first.gate_bias[2 * d :] = -4.0
        second.weight.copy_(pairs @ torch.cat([pairs, pairs]).T)
    return net


def closed_outside(net: BottleneckDrift, cut: Cut, finest: int) -> BottleneckDrift:
    """The same net, zero at grid points outside the window [t1, t2) on grids of at most `finest` steps."""
    _, opens, closes = _layers(net)
    with torch.no_grad():
        for layer, slope, t in ((opens, STEEP, cut.t1), (closes, -STEEP, cut.t2)):
            layer.gate_slope.fill_(slope)
            layer.gate_bias.fill_(-slope * (t - 0.5 / finest))
            layer.time_slope.zero_()
        closes.bias.zero_()
    for frozen in (opens.gate_slope, opens.gate_bias, opens.time_slope, *list(closes.parameters())[1:]):
        frozen.requires_grad_(False)  # of the last layer, only its first parameter, the weight, is trained
    return net


def process_of(problem: Problem, price: Price, finest: int, seed: int) -> WeightProcess:
    """The process before training, equal to the prior."""
    cut, S, D, kept = problem.cut, problem.S, problem.D, price is Price.KEPT
    net: nn.Module = affine_net(len(S), seed)
    if kept and (cut.t1 > 0 or cut.t2 < 1):
        net = closed_outside(net, cut, finest)  # type: ignore[arg-type]
    if len(D):
        net = SplitDrift(net, affine_net(len(D), seed + 1).requires_grad_(not kept), S, len(problem.w0))
    return WeightProcess(problem.w0, PriorPlus(PRIOR, net), PRIOR, cut)


def train(problem: Problem, price: Price, stages: Sequence[Stage], seed: int, paths: int = 32) -> WeightProcess:
    """Train the net by Adam on one grid after the other; w_0 stays as it is."""
    generator = seeded(seed)
    process = process_of(problem, price, max(stage.steps for stage in stages), seed)
    process.w0.requires_grad_(False)
    parameters = [p for p in process.parameters() if p.requires_grad]
    for steps, updates, rate in stages:
        adam = torch.optim.Adam(parameters, lr=rate)
        slower = torch.optim.lr_scheduler.CosineAnnealingLR(adam, updates, rate / 20)
        grid = Grid.of(problem.cut, steps)
        for _ in range(updates):
            path = process.sample(grid, paths, generator=generator, solver=SOLVER, ode_solver=SOLVER)
            loss: Tensor = path.kl_stl - problem.data.log_likelihood(path.w[:, -1])
            if price is Price.CHARGED:
                loss = loss + path_action(PRIOR, path, problem.cut)
            adam.zero_grad()
            loss.mean().backward()  # type: ignore[no-untyped-call]
            adam.step()
            slower.step()
    return process


def _layers(net: BottleneckDrift) -> list[ConcatSquash]:
    return [layer for layer in net.layers if isinstance(layer, ConcatSquash)]
