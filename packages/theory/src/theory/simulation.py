"""Sample the model of Theorem 4.2: weight paths, their outputs, and the errors  sup_x |L h_1 - f~(x, eta)|."""

from typing import NamedTuple

import torch
from torch import Tensor

from sdeweights import HiddenDrift, WeightPath, flow
from theory.construction import Construction
from theory.laws import SmoothLaw
from theory.steering import T2, T3


class Outcome(NamedTuple):
    """Results of the sampled weight paths."""

    eta: Tensor  # noise in the hidden state, (samples, m)
    y: Tensor  # outputs L h_1, (samples, len(x), d_y)
    error: Tensor  # sup over x of |y - f~(x, eta)|, (samples,)
    inside: Tensor  # whether the sample lies in A, (samples,)
    distance: Tensor  # |w_3/4 [1:m_gamma] - gamma|, (samples,)
    kl: Tensor  # KL of the path, (samples,)


def run(model: Construction, x: Tensor, samples: int, generator: torch.Generator, batch: int = 100) -> Outcome:
    """Sample weight paths, in batches to limit memory, and compare outputs at x, (n, 1), with the law's generator."""
    sizes = [min(batch, samples - done) for done in range(0, samples, batch)]
    with torch.no_grad():
        parts = [_run_batch(model, x, size, generator) for size in sizes]
    return Outcome(*(torch.cat(field) for field in zip(*parts, strict=True)))


def _run_batch(model: Construction, x: Tensor, samples: int, generator: torch.Generator) -> Outcome:
    m_gamma = len(model.gamma)
    path = model.process().sample(model.steps, samples, generator=generator, ode_solver="midpoint")
    eta, y, error = outputs(model.f_h, model.law, x, path)
    inside = eta.norm(dim=-1) <= model.reach
    if not model.cut.resets:
        inside &= path.at(T2)[:, :m_gamma].norm(dim=-1) <= model.Lambda
    distance = (path.at(T3)[:, :m_gamma] - model.gamma).norm(dim=-1)
    return Outcome(eta, y, error, inside, distance, path.kl)


def outputs(f_h: HiddenDrift, law: SmoothLaw, x: Tensor, path: WeightPath) -> tuple[Tensor, Tensor, Tensor]:
    """eta, (samples, m), the outputs, (samples, n, d_y), and their largest error over x, (samples,), along a path."""
    h1 = flow(f_h, torch.cat([x, x.new_zeros(len(x), law.d_y + law.m)], 1), path, per_sample=False, vectorize=True)
    y, eta = h1[..., 1 : 1 + law.d_y], h1[:, 0, 1 + law.d_y :]
    wanted = law.generator(x.expand(path.samples, -1, -1), eta[:, None].expand(-1, len(x), -1))
    return eta, y, (y - wanted).norm(dim=-1).amax(1)
