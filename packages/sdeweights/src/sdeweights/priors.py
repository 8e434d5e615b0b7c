"""Priors on weight paths, eq. (5):  dw = f_p(t, w) dt + g(t, w) dB.  The posterior shares g (Lemma 1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from sdeweights.diffusion import Field

Value = float | Tensor


class _Constant(nn.Module):
    """A function of (t, w) that has one value: a number, a buffer, or a parameter where it is one."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value: Value
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            self.register_buffer("value", value, persistent=False)
        else:
            self.value = value if isinstance(value, Tensor) else float(value)

    def forward(self, t: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002 - constant in t
        return torch.as_tensor(self.value, dtype=w.dtype, device=w.device)

    def beside(self, w: Tensor) -> Value:
        """The value for arithmetic with w."""
        return self.value.to(w) if isinstance(self.value, Tensor) else self.value

    def restrict(self, indices: Tensor) -> _Constant:
        value = self.value
        if not isinstance(value, Tensor) or value.ndim == 0 or value.shape == (1,):
            return self
        for axis in range(value.ndim):
            value = value.index_select(axis, indices.to(value.device))
        return _Constant(value)


class _MeanReversion(nn.Module):
    """theta (mu - w)."""

    def __init__(self, theta: Value | _Constant, mu: Value | _Constant) -> None:
        super().__init__()
        self.theta = theta if isinstance(theta, _Constant) else _Constant(theta)
        self.mu = mu if isinstance(mu, _Constant) else _Constant(mu)

    def forward(self, t: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002 - constant in t
        return self.theta.beside(w) * (self.mu.beside(w) - w)

    def restrict(self, indices: Tensor) -> _MeanReversion:
        return _MeanReversion(self.theta.restrict(indices), self.mu.restrict(indices))


class Numbers(NamedTuple):
    """dw = theta (mu - w) dt + sigma dB with plain numbers."""

    theta: float
    mu: float
    sigma: float


def _zero(t: Tensor, w: Tensor) -> Tensor:  # noqa: ARG001 - constant in t
    return torch.zeros_like(w)


class Prior(nn.Module):
    """Any drift f_p(t, w) and diffusion g(t, w).

    Args:
        drift: f_p, from (t, w) with w of shape (..., d) to (..., d).
        diffusion: g, a number, a tensor, or a function of (t, w). For one weight vector w of shape (d,) its value is a
            scalar (shape () or (1,)), a diagonal (d,) or a dense matrix (d, d); for w of shape (n, d) it broadcasts.
        coordinatewise: says that drift and diffusion treat every coordinate by itself and by one formula, so that they
            can be evaluated on part of the coordinates. A split drift built on this prior needs that.

    Example:
        >>> prior = Prior(lambda t, w: -w, lambda t, w: 0.1 + 0.2 * t + 0 * w, coordinatewise=True)
    """

    def __init__(self, drift: Field, diffusion: Field | Value, *, coordinatewise: bool = False) -> None:
        super().__init__()
        self._drift = drift
        self._diffusion: Field = (
            diffusion if callable(diffusion) and not isinstance(diffusion, Tensor) else _Constant(diffusion)
        )
        self.coordinatewise = coordinatewise

    @property
    def constant_diffusion(self) -> bool:
        """Whether g is a number or a tensor, not a function of (t, w)."""
        return isinstance(self._diffusion, _Constant)

    @property
    def numbers(self) -> Numbers | None:
        """theta, mu and sigma where that is all there is to the prior; None for tensors and functions of (t, w)."""
        drift, sigma = self._drift, _number(self._diffusion)
        if drift is _zero:
            return None if sigma is None else Numbers(0.0, 0.0, sigma)
        if not isinstance(drift, _MeanReversion):
            return None
        theta, mu = _number(drift.theta), _number(drift.mu)
        return None if theta is None or mu is None or sigma is None else Numbers(theta, mu, sigma)

    def drift(self, t: Tensor, w: Tensor) -> Tensor:
        """f_p(t, w), of w's shape."""
        return self._drift(t, w)

    def diffusion(self, t: Tensor, w: Tensor) -> Tensor:
        """g(t, w) as a tensor."""
        return torch.as_tensor(self._diffusion(t, w), dtype=w.dtype, device=w.device)

    def restrict(self, indices: Tensor) -> Prior:
        """The prior of the coordinates ``indices`` alone; only where every coordinate goes by itself."""
        if not self.coordinatewise:
            raise ValueError(
                "expected a coordinatewise prior, got one that may mix coordinates; see Prior(coordinatewise=)"
            )
        return Prior(_restricted(self._drift, indices), _restricted(self._diffusion, indices), coordinatewise=True)


def _number(field: Field) -> float | None:
    return field.value if isinstance(field, _Constant) and isinstance(field.value, float) else None


def _restricted(field: Field, indices: Tensor) -> Field:
    """A field on part of the coordinates: by its own ``restrict`` where it holds tensors, else by calling it there."""
    restrict: Callable[[Tensor], Field] | None = getattr(field, "restrict", None)
    return field if restrict is None else restrict(indices)


@final
class OrnsteinUhlenbeck(Prior):
    """dw = theta (mu - w) dt + sigma dB.

    With w_0 given and sigma scalar, w_t is normal with mean mu + (w_0 - mu) e^{-theta t} and variance
    sigma^2 (1 - e^{-2 theta t}) / (2 theta): for theta = sigma = 1 and t = 1 the variance is 0.43233.

    Args:
        theta: rate of return, a number or (d,).
        mu: mean, a number or (d,).
        sigma: noise, a number, (d,) or (d, d); an ``nn.Parameter`` is learned, for prior and posterior alike.
    """

    def __init__(self, theta: Value = 1.0, mu: Value = 0.0, sigma: Value = 1.0) -> None:
        super().__init__(_MeanReversion(theta, mu), sigma, coordinatewise=_is_coordinatewise(sigma))


@final
class Brownian(Prior):
    """dw = sigma dB; sigma a number, (d,) or (d, d)."""

    def __init__(self, sigma: Value = 1.0) -> None:
        super().__init__(_zero, sigma, coordinatewise=_is_coordinatewise(sigma))


def _is_coordinatewise(sigma: Value) -> bool:
    return not isinstance(sigma, Tensor) or sigma.ndim < 2
