"""Path-space KL, Section 2:  KL = E 1/2 int_{t1}^{t2} |u|^2 dt,  u = g_SS^{-1} (f_q - f_p)_S.

By Girsanov's theorem, log dQ/dP = 1/2 int |u|^2 dt + int u dB along a path of the posterior. On a grid both integrals
are left-point sums; for Euler-Maruyama these give exactly the KL between the two Markov chains.
"""

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sdeweights import diffusion
from sdeweights.cuts import Cut
from sdeweights.diffusion import Field, Kind
from sdeweights.drifts import with_gap
from sdeweights.grid import index_of
from sdeweights.path import WeightPath
from sdeweights.priors import Prior

_HALF = 0.5  # the 1/2 of the KL, used for both the value and the gradient


def control(kind: Kind, gap: Tensor, g: Tensor) -> Tensor:
    """u = g^{-1} (f_q - f_p) from the gap f_q - f_p, all on the stochastic coordinates: (..., m)."""
    return diffusion.solve(kind, g, gap)


def integrand(u: Tensor) -> Tensor:
    """1/2 |u|^2, the KL per unit of time: (..., m) -> (...).

    Example:
        >>> integrand(torch.tensor([3.0, 4.0]))
        tensor(12.5000)
    """
    return _HALF * (u * u).sum(-1)


def slope(u: Tensor) -> Tensor:
    """The gradient of `integrand`, 2 * 1/2 * u, for schemes with hand-written gradients."""
    return 2 * _HALF * u


def energy(us: Sequence[Tensor], dts: Sequence[float]) -> Tensor:
    """1/2 int |u|^2 dt from u at the left end of every step: (samples,)."""
    return _sum_over_steps([integrand(u) for u in us], dts)


def of_squares(squares: Sequence[Tensor], dts: Sequence[float]) -> Tensor:
    """1/2 int |u|^2 dt from |u|^2, (samples,), at the left end of every step."""
    return _HALF * _sum_over_steps(squares, dts)


def _sum_over_steps(rates: Sequence[Tensor], dts: Sequence[float]) -> Tensor:
    stacked = torch.stack(list(rates), -1)
    return (stacked * stacked.new_tensor(dts)).sum(-1)


def martingale(us: Sequence[Tensor], dB: Tensor) -> Tensor:
    """int u dB as the sum of u_k . dB_k; dB of shape (samples, steps, m): (samples,)."""
    return (torch.stack(list(us), -2) * dB).sum((-1, -2))


def path_kl(posterior_drift: Field, prior: Prior, path: WeightPath, cut: Cut) -> Tensor:
    """1/2 int_{t1}^{t2} |u|^2 dt along each sample of a given path: (samples,).

    The cut's t1 and t2 must be grid points of the path. The window may cover any part of the path, and the KLs of
    consecutive windows add up to that of their union. The KL of a random w_0 is not part of it.

    Example: for a drift gap of 0.3 in each of 2 coordinates, sigma = 0.5 and the window (0, 1), the KL is
    1/2 * 2 * (0.3 / 0.5)^2 = 0.36.
    """
    _require_fixed(prior)
    if cut.deterministic:
        return path.w.new_zeros(len(path.w))
    us, dts = controls(posterior_drift, prior, path, cut)
    return energy(us, dts)


def controls(posterior_drift: Field, prior: Prior, path: WeightPath, cut: Cut) -> tuple[list[Tensor], list[float]]:
    """u at the left end of every step in the window of a cut, and the lengths of these steps."""
    # In a path built by hand in float32, the grid points are rounded to 2^-24.
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


def path_action(prior: Prior, path: WeightPath, cut: Cut) -> Tensor:
    """1/2 int |g^{-1} (dw/dt - f_p)|^2 dt over the deterministic phases and coordinates of each sample: (samples,).

    The Onsager-Machlup price of the deterministic part under the prior, up to a constant if f_p is affine: with it, the
    objective is a MAP estimate there, as weight decay is for an ordinary network. Without it, a deterministic phase can
    move the weights anywhere free of charge, and undo the noise of an earlier phase. dw/dt is a difference quotient
    over each step, which for an Euler scheme is exactly f_q at its left end. Jumps at a reset are free, like w0.

    Example: for a drift gap of 0.3 in each of 2 coordinates, sigma = 0.5 and no noise at all, the action is
    1/2 * 2 * (0.3 / 0.5)^2 = 0.36.
    """
    _require_fixed(prior)
    kind = diffusion.kind_of(prior.diffusion, path.ts[0], path.w[0, 0])
    everything, D = torch.arange(path.d), cut.complement(path.d)
    us, dts = [], []
    for k, (start, stop) in enumerate(itertools.pairwise(path.times)):
        noisy = not cut.deterministic and cut.t1 - 1e-6 < start and stop < cut.t2 + 1e-6
        indices = (D if noisy else everything).to(path.w.device)
        if len(indices):
            t, w = path.ts[k], path.start(k)
            gap = (path.w[:, k + 1] - w) / (stop - start) - prior.drift(t, w)
            g = diffusion.restrict(kind, prior.diffusion(t, w), indices)
            us.append(control(kind, gap if len(indices) == path.d else gap[..., indices], g))
            dts.append(stop - start)
    return energy(us, dts) if us else path.w.new_zeros(path.samples)


def _require_fixed(prior: Prior) -> None:
    if prior.latents:
        raise ValueError(
            "expected a prior without random coefficients, got one with LogNormal: a path from elsewhere does not say "
            "which values its samples drew; path.kl and path.log_ratio use the right ones"
        )


def sticking_the_landing(drift: Field, prior: Prior, path: WeightPath, cut: Cut, dB: Tensor | None) -> Tensor:
    """int u dB with the parameters of f_q detached, so gradients flow only through the path: (samples,)."""
    if dB is None:
        return path.w.new_zeros(path.samples)
    us, _ = controls(_with_parameters_detached(drift, path), prior, path, cut)
    return martingale(us, dB)


def log_ratio(drift: Field, prior: Prior, path: WeightPath, cut: Cut, dB: Tensor | None) -> Tensor:
    """log dQ/dP = 1/2 int |u|^2 dt + int u dB along each sample, with all gradients: (samples,)."""
    if dB is None:
        return path.w.new_zeros(path.samples)
    us, dts = controls(drift, prior, path, cut)
    return energy(us, dts) + martingale(us, dB)


def _with_parameters_detached(drift: Field, path: WeightPath) -> Field:
    visible = fixed = drift
    if isinstance(drift, nn.Module):
        frozen = {name: p.detach() for name, p in drift.named_parameters()}
        drawn = {name: b.detach() for name, b in drift.named_buffers()}  # values of random coefficients stay attached
        fixed = lambda t, w: torch.func.functional_call(drift, frozen, (t, w))  # noqa: E731
        visible = lambda t, w: torch.func.functional_call(drift, frozen | drawn, (t, w))  # noqa: E731
    with torch.enable_grad():
        if visible(path.ts[0], path.w[:, 0].detach()).requires_grad:
            raise ValueError(
                "expected a drift whose parameters belong to an nn.Module for kl_stl, got a function that hides some"
            )
    return fixed
