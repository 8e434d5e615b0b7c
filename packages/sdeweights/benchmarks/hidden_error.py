"""Error of the hidden state along Ornstein-Uhlenbeck weights, for the three places where an Euler step takes them.

python hidden_error.py      a table: root mean square error of h at t = 1 against a grid of 1,024 steps
"""

from __future__ import annotations

from dataclasses import replace

import torch

from sdeweights import Cut, Increments, OrnsteinUhlenbeck, WeightProcess, flatten, flow
from sdeweights.brownian import draw

METHODS = ("euler", "euler-mean", "euler-right")
STEPS = (2, 4, 8, 16, 32)
FINE, PATHS = 1024, 200


@torch.no_grad()
def errors(paths: int = PATHS, fine: int = FINE) -> dict[str, list[float]]:
    """For each method, the error with each number of steps; at the grid points, w is that of the fine path."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).double()
    w0, f_h = flatten(net)
    h0 = torch.randn(5, 3, dtype=torch.float64)
    prior = OrnsteinUhlenbeck(sigma=0.5)
    process = WeightProcess(w0, prior.drift, prior, Cut.full())
    noise = draw(paths, fine, len(w0), 1 / fine, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = process.sample(fine, noise=noise)
    end = flow(f_h, h0, exact, "euler-mean")
    found: dict[str, list[float]] = {method: [] for method in METHODS}
    for steps in STEPS:
        coarse = process.sample(steps, noise=Increments(1 / steps, noise.coarsen(fine // steps).dB))
        path = replace(coarse, w=exact.w[:, :: fine // steps].contiguous())
        for method in METHODS:
            found[method].append((flow(f_h, h0, path, method) - end).square().mean().sqrt().item())
    return found


if __name__ == "__main__":
    print("steps        " + "".join(f"{steps:>8}" for steps in STEPS))
    for method, values in errors().items():
        print(f"{method:<13}" + "".join(f"{value:8.4f}" for value in values))
