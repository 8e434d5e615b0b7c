"""The horizontal cut and Theorem 4.2: the paper neither states nor proves that it is universal. Evidence, not a claim.

Where f_h may read other weights in every region of depth, as the proof lets it, the argument goes through and is
shorter: noise from the stochastic weights on [0, 1/2), the network from the deterministic ones on [3/4, 1], which hold
gamma from the start. That is sampled here. Open is what the experiments use: an f_h that reads all its weights, noisy
ones among them, at every depth. Nothing here says anything about that.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy import stats
from torch import Tensor

from sdeweights import Brownian, Cut, SplitDrift, WeightProcess, flatten, flow
from theory import theorem_a1
from theory.certificate import Certificate
from theory.construction import T2, T3, Capped, sigma_for
from theory.laws import Bimodal, SmoothLaw
from theory.networks import Family

CLAIM = "Horizontal cut (open)"
STEPS, SAMPLES, EPSILON = 16, 1500, 0.1


class Evidence(NamedTuple):
    """|eta| and the largest error over x of every sample, and how far the network's weights lay apart."""

    size: Tensor
    error: Tensor
    spread: float


def sample(law: SmoothLaw, epsilon: float, x: Tensor, samples: int, generator: torch.Generator) -> Evidence:
    """Weights [w_S, w_D], w_S = sigma B on all of [0, 1], w_D = gamma."""
    reach = theorem_a1.reach(law.m, 1 - epsilon / 2)
    net = theorem_a1.approximation(law, Family.WIDE, epsilon).ignoring(law.m - 1).module(reach)
    gamma, field = flatten(Capped(net, law.d_y, 1 / (1 - T3)))
    m, d = law.m, law.m + len(gamma)

    def f_h(t: Tensor, h: Tensor, w: Tensor) -> Tensor:
        if t < T2:
            return torch.cat([torch.zeros_like(h[..., :-m]), w[:m].expand(len(h), -1)], -1)
        return torch.zeros_like(h) if t < T3 else field(t, h, w[m:])

    still = lambda t, w: torch.zeros_like(w)  # noqa: E731, ARG005
    process = WeightProcess(
        torch.cat([gamma.new_zeros(m), gamma]),
        SplitDrift(still, still, list(range(m)), d),
        Brownian(sigma_for(STEPS // 2)),
        Cut.horizontal(range(m)),
    )
    with torch.no_grad():
        path = process.sample(STEPS, samples, generator=generator)
        h1 = flow(f_h, torch.cat([x, x.new_zeros(len(x), law.d_y + m)], 1), path, vectorize=True)
    y, eta = h1[..., 1 : 1 + law.d_y], h1[:, 0, 1 + law.d_y :]
    wanted = law.generator(x.expand(samples, -1, -1), eta[:, None].expand(-1, len(x), -1))
    spread = float((path.w[..., m:] - gamma).abs().max())
    return Evidence(eta.norm(dim=-1), (y - wanted).norm(dim=-1).amax(1), spread)


def certify(seed: int = 0) -> list[Certificate]:
    """One law, one epsilon; what is certified is this run."""
    law = Bimodal()
    x = torch.linspace(-1, 1, 51, dtype=torch.float64)[:, None]
    result = sample(law, EPSILON, x, SAMPLES, torch.Generator().manual_seed(seed))
    inside = result.size <= theorem_a1.reach(law.m, 1 - EPSILON / 2)
    successes = int(inside.sum())
    lower = float(stats.beta.ppf(1e-4, successes, SAMPLES - successes + 1))
    what = f"evidence, {law.name}, eps = {EPSILON}, f_h free to choose its weights"
    return [
        Certificate(CLAIM, f"{what}: P(A), lower bound", lower, ">=", 1 - EPSILON),
        Certificate(CLAIM, f"{what}: sup error on A", float(result.error[inside].max()), "<=", EPSILON),
    ]
