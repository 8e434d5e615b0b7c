"""Evidence that the horizontal cut is universal (Theorem 4.2), which the paper neither states nor proves.

If f_h may read different weights in each region of depth, as in the proof, the same argument works and gets shorter:
the stochastic weights supply the noise on [0, 1/2), and the deterministic weights, which equal gamma from the start,
define the network on [3/4, 1]. This module samples that model. The experiments use an f_h that reads all its weights,
including the noisy ones, at every depth; that case is open, and nothing here applies to it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sdeweights import Brownian, Cut, HiddenDrift, SplitDrift, WeightProcess, flatten
from theory import theorem_a1
from theory.certificate import Certificate
from theory.construction import Capped, sigma_for, three_regions
from theory.laws import Bimodal, SmoothLaw
from theory.networks import Family
from theory.simulation import outputs
from theory.statistics import at_least
from theory.steering import T3

CLAIM = "Horizontal cut (open)"
STEPS, SAMPLES, EPSILON = 16, 1500, 0.1


class Evidence(NamedTuple):
    """Results of the sampled weight paths."""

    eta: Tensor  # noise in the hidden state, (samples, m)
    y: Tensor  # outputs, (samples, len(x), d_y)
    error: Tensor  # sup over x of |y - f~(x, eta)|, (samples,)
    spread: float  # the largest distance of a network weight from gamma


def sample(law: SmoothLaw, epsilon: float, x: Tensor, samples: int, generator: torch.Generator) -> Evidence:
    """Sample weights [w_S, w_D] with w_S = sigma B on all of [0, 1] and w_D = gamma."""
    net = theorem_a1.approximation(law, Family.WIDE, epsilon).ignoring(law.m - 1)
    gamma, field = flatten(Capped(net.module(theorem_a1.noise_radius(law, epsilon)), law.d_y, 1 / (1 - T3)))
    m, d = law.m, law.m + len(gamma)
    f_h: HiddenDrift = lambda t, h, w: three_regions(t, h, w[:m], field, w[m:])  # noqa: E731
    still = lambda t, w: torch.zeros_like(w)  # noqa: E731, ARG005
    w0, drift = torch.cat([gamma.new_zeros(m), gamma]), SplitDrift(still, still, list(range(m)), d)
    process = WeightProcess(w0, drift, Brownian(sigma_for(STEPS // 2)), Cut.horizontal(range(m)))
    with torch.no_grad():
        path = process.sample(STEPS, samples, generator=generator)
        eta, y, error = outputs(f_h, law, x, path)
    return Evidence(eta, y, error, float((path.w[..., m:] - gamma).abs().max()))


def certify(seed: int = 0) -> list[Certificate]:
    """Check one law and one epsilon; the certificates describe this run, not a theorem."""
    law = Bimodal()
    x = torch.linspace(-1, 1, 51, dtype=torch.float64)[:, None]
    result = sample(law, EPSILON, x, SAMPLES, torch.Generator().manual_seed(seed))
    inside = result.eta.norm(dim=-1) <= theorem_a1.noise_radius(law, EPSILON)
    lower = at_least(int(inside.sum()), SAMPLES)
    what = f"evidence, {law.name}, eps = {EPSILON}, f_h reads different weights per region"
    return [
        Certificate(CLAIM, f"{what}: P(A), lower bound", lower, ">=", 1 - EPSILON),
        Certificate(CLAIM, f"{what}: sup error on A", float(result.error[inside].max()), "<=", EPSILON),
    ]
