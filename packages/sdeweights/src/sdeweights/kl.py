"""Path-space KL, Section 2:  KL = E 1/2 int_{t1}^{t2} |u|^2 dt,  u = g_SS^{-1} (f_q - f_p)_S.

By Girsanov's theorem log dQ/dP = 1/2 int |u|^2 dt + int u dB along a path of the posterior. On a grid both integrals
are left-point sums, which for Euler-Maruyama give exactly the KL of the two Markov chains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sdeweights import diffusion
from sdeweights.diffusion import Kind
from sdeweights.drifts import with_gap
from sdeweights.grid import index_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sdeweights.cuts import Cut
    from sdeweights.diffusion import Field
    from sdeweights.path import WeightPath
    from sdeweights.priors import Prior


def control(kind: Kind, gap: Tensor, g: Tensor) -> Tensor:
    """u = g^{-1} (f_q - f_p) from the gap f_q - f_p, all on the stochastic coordinates: (..., m)."""
    return diffusion.solve(kind, g, gap)


def integrand(u: Tensor) -> Tensor:
    """1/2 |u|^2, the rate at which KL accrues: (..., m) -> (...). The only place that knows the 1/2.

    Example:
        >>> integrand(torch.tensor([3.0, 4.0]))
        tensor(12.5000)
    """
    return 0.5 * (u * u).sum(-1)


def energy(us: Sequence[Tensor], dts: Sequence[float]) -> Tensor:
    """1/2 int |u|^2 dt as the sum of ``integrand(u_k) dt_k``: (samples,)."""
    rates = torch.stack([integrand(u) for u in us], -1)
    return (rates * rates.new_tensor(dts)).sum(-1)


def martingale(us: Sequence[Tensor], dB: Tensor) -> Tensor:
    """int u dB as the sum of u_k . dB_k; dB of shape (samples, steps, m): (samples,)."""
    return (torch.stack(list(us), -2) * dB).sum((-1, -2))


def path_kl(posterior_drift: Field, prior: Prior, path: WeightPath, cut: Cut) -> Tensor:
    """1/2 int_{t1}^{t2} |u|^2 dt along each sample of a path that is already there: (samples,).

    t1 and t2 of the cut have to be grid points of the path; the window may be any part of it, so that the KL of
    consecutive windows adds up to that of their union.

    Example: for a drift gap of 0.3 in each of 2 coordinates, sigma = 0.5 and the window (0, 1) it is
    1/2 * 2 * (0.3 / 0.5)^2 = 0.36.
    """
    if cut.deterministic:
        return path.w.new_zeros(len(path.w))
    us, dts = controls(posterior_drift, prior, path, cut)
    return energy(us, dts)


def controls(posterior_drift: Field, prior: Prior, path: WeightPath, cut: Cut) -> tuple[list[Tensor], list[float]]:
    """u at the left end of every step in the window of a cut, and the lengths of these steps."""
    # A path made by hand in float32 has its grid rounded to 2^-24.
    first, last = (index_of(path.times, t, tolerance=1e-6) for t in (cut.t1, cut.t2))
    S = cut.indices(path.d).to(path.w.device)
    kind = diffusion.kind_of(prior.diffusion, path.ts[0], path.w[0, 0])
    f_and_gap = with_gap(posterior_drift, prior)
    us = []
    for k in range(first, last):
        t, w = path.ts[k], path.start(k)
        g = diffusion.restrict(kind, prior.diffusion(t, w), S)
        us.append(control(kind, f_and_gap(t, w)[1][..., S], g))
    return us, [path.times[k + 1] - path.times[k] for k in range(first, last)]
