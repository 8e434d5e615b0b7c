"""Sampled weight paths on a grid."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from sdeweights.grid import Phase, as_float


@dataclass(frozen=True, eq=False)
class WeightPath:
    """Weights w at the points of a grid for several samples, and the KL of each sample.

    Attributes:
        ts: grid, (steps + 1,), first 0 and last 1, in the dtype of w.
        w: (samples, steps + 1, d); the left limit at a reset.
        kl: 1/2 int |u|^2 of each sample, plus `kl_start` if there is one: (samples,).
        times: the grid as Python floats, exact even if `ts` is rounded to float32.
        reset: grid index of t2 if w is reset there, else None.
        after_reset: right limit at the reset, (samples, d), or None.
        shared: the samples agree at the grid points 0 .. shared; -1 if they differ from the start.
        evaluations: number of drift evaluations; for a split drift, that of the half with more of them.
        gaussians: number of standard normals drawn.
        phases: the deterministic and stochastic phases of the grid, () if unknown.
        kl_start: the part of `kl` for a random w_0 and random coefficients of the prior, (); None if they are fixed.
        latents: values of the random coefficients, in the order of `prior.latents`, (samples, 1 or d) each.
    """

    ts: Tensor
    w: Tensor
    kl: Tensor
    times: tuple[float, ...] = ()
    reset: int | None = None
    after_reset: Tensor | None = None
    shared: int = -1
    evaluations: int = 0
    gaussians: int = 0
    phases: tuple[Phase, ...] = ()
    kl_start: Tensor | None = None
    latents: tuple[Tensor, ...] = ()
    _girsanov: Callable[[bool, WeightPath], Tensor] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.w.ndim != 3 or self.w.shape[1] != len(self.ts) or self.kl.shape != self.w.shape[:1]:
            shapes = [tuple(x.shape) for x in (self.ts, self.w, self.kl)]
            raise ValueError(
                f"expected ts (n,), w (samples, n, d) and kl (samples,), got {', '.join(map(str, shapes))}"
            )
        if not self.times:
            object.__setattr__(self, "times", tuple(self.ts.double().tolist()))

    @cached_property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.w)

    @cached_property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.ts) - 1

    @property
    def d(self) -> int:
        """Number of weights."""
        return self.w.shape[-1]

    def start(self, k: int) -> Tensor:
        """Weights at the start of step k, (samples, d): `w[:, k]`, or the right limit at a reset."""
        return self.after_reset if k == self.reset and self.after_reset is not None else self.w[:, k]

    def at(self, t: float | Tensor, *, left: bool = False) -> Tensor:
        """Weights at any time in [0, 1], (samples, d), interpolated linearly between grid points.

        At a reset this is the right limit, or the left limit with `left=True`.
        """
        time = self._rounded.get(as_float(t), as_float(t))
        if not self.times[0] <= time <= self.times[-1]:
            raise ValueError(f"expected {self.times[0]} <= t <= {self.times[-1]}, got {time}")
        if left and self.reset is not None and time == self.times[self.reset]:
            return self.w[:, self.reset]
        k = min(bisect_right(self.times, time) - 1, self.steps - 1)
        t0, t1 = self.times[k], self.times[k + 1]
        return torch.lerp(self.start(k), self.w[:, k + 1], (time - t0) / (t1 - t0))

    def __getitem__(self, samples: int | slice) -> WeightPath:
        """The path of one sample, or of a slice of the samples."""
        if isinstance(samples, int):
            size = self.samples
            if not -size <= samples < size:
                raise IndexError(f"expected a sample below {size}, got {samples}")
            samples = slice(samples % size, samples % size + 1)
        part = samples
        return replace(
            self,
            w=self.w[part],
            kl=self.kl[part],
            after_reset=None if self.after_reset is None else self.after_reset[part],
            latents=tuple(values[part] for values in self.latents),
            _girsanov=None if self._girsanov is None else lambda detached, _: self._noise_term(detached)[part],
        )

    def __getstate__(self) -> dict[str, Any]:
        """The state for pickle and copy: the tensors only; `kl_stl` and `log_ratio` need the process and are lost."""
        return self.__dict__ | {"_girsanov": None}

    @cached_property
    def _rounded(self) -> dict[float, float]:
        """Map each value in `ts`, which may be float32, to the exact grid point; this makes `at(ts[k])` exact."""
        return dict(zip(self.ts.tolist(), self.times, strict=True))

    @cached_property
    def stl_term(self) -> Tensor:
        """int u dB with the parameters of u detached, (samples,); its mean is zero.

        A random w_0 and random coefficients add log q / p - KL(q || p), with the parameters of q detached.
        """
        return self._noise_term(detached=True)

    @cached_property
    def log_ratio(self) -> Tensor:
        """log dQ/dP = 1/2 int |u|^2 dt + int u dB of each path, (samples,); its mean is the KL.

        A random w_0 and random coefficients of the prior add their log q / p.

        For Euler-Maruyama this is exactly the log ratio of the densities of the two Markov chains. It is evaluated at
        the left ends of steps for every scheme.
        """
        return self._noise_term(detached=False)

    def _noise_term(self, detached: bool) -> Tensor:
        """The stl_term or the log_ratio."""
        if self._girsanov is None:
            raise ValueError("expected a path sampled by a WeightProcess, got one without its noise")
        return self._girsanov(detached, self)

    @property
    def kl_stl(self) -> Tensor:
        """KL with a "sticking the landing" gradient, (samples,): kl + stl_term.

        Its gradient has the same mean as the gradient of `kl`, and zero variance if the posterior is exact. Use it in
        the loss instead of `kl`.
        """
        return self.kl + self.stl_term
