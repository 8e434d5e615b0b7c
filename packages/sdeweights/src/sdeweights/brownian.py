"""Brownian increments on the steps of the stochastic phase, and their time integrals.

    dB = B(t + h) - B(t)                    variance h
    Z  = int_t^{t+h} (B(s) - B(t)) ds       variance h^3 / 3, covariance with dB h^2 / 2

For each sample, step and stochastic coordinate we draw one normal for dB, plus one for Z if the scheme uses it, and no
other random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


class Increments(NamedTuple):
    """Increments of m Brownian motions over equal steps of length `dt`.

    Attributes:
        dt: length of a step.
        dB: (samples, steps, m).
        Z: time integrals, (samples, steps, m), or None if they were not drawn.
    """

    dt: float
    dB: Tensor
    Z: Tensor | None = None

    @property
    def gaussians(self) -> int:
        """Number of standard normals drawn for these increments."""
        return self.dB.numel() * (1 if self.Z is None else 2)

    def coarsen(self, factor: int) -> Increments:
        """Increments of the same Brownian motion over steps `factor` times as long.

        dB is summed. For Z, the increment of short step j persists until the end of the long step, so
        Z = sum_j Z_j + (h - t_j - h_j) dB_j.
        """
        samples, steps, m = self.dB.shape
        if factor < 1 or steps % factor:
            raise ValueError(f"expected factor to divide the {steps} steps, got {factor}")
        dB = self.dB.reshape(samples, steps // factor, factor, m)
        if self.Z is None:
            return Increments(self.dt * factor, dB.sum(2))
        remaining = self.dt * torch.arange(factor - 1, -1, -1, dtype=dB.dtype, device=dB.device)
        Z = self.Z.reshape(dB.shape) + remaining[:, None] * dB
        return Increments(self.dt * factor, dB.sum(2), Z.sum(2))


def draw(
    samples: int,
    steps: int,
    m: int,
    dt: float,
    *,
    noises: int = 1,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> Increments:
    """Draw increments; `noises=2` also draws the time integrals.

    Samples are drawn one after the other, so sample i depends only on the state of the generator and on i, and
    `samples=8` gives the same numbers as two calls with `samples=4`.
    """
    normals = torch.empty((samples, noises, steps, m), dtype=dtype, device=device)
    for sample in normals:
        sample.normal_(std=math.sqrt(dt), generator=generator)
    dB = normals[:, 0]
    if noises == 1:
        return Increments(dt, dB)
    Z = dt / 2 * (dB + normals[:, 1] * math.sqrt(1 / 3))
    return Increments(dt, dB, Z)


def stacked(parts: Sequence[Increments]) -> Increments:
    """The samples of several increments with the same steps, one after the other."""
    Zs = [part.Z for part in parts if part.Z is not None]
    return Increments(parts[0].dt, torch.cat([part.dB for part in parts]), torch.cat(Zs) if Zs else None)
