"""Priors on weight paths, eq. (5):  dw = f_p(t, w) dt + g(t, w) dB.  The posterior shares g (Lemma 1)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from numbers import Real
from typing import final

import torch
from torch import Tensor, nn

from sdeweights.coefficients import Draws, LogNormal, Positive, Value, checked, in_words, require_finite
from sdeweights.diffusion import Field
from sdeweights.prior_fields import Coefficient, PerSample, Pull


@final
class Constant(nn.Module):
    """A constant function of (t, w); its value is a number, a buffer, a parameter, or a coefficient."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value: Value
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            self.register_buffer("value", value, persistent=False)
        else:
            self.value = value if isinstance(value, Tensor | Positive | LogNormal) else float(value)

    @property
    def now(self) -> float | Tensor:
        """The value as a number or a tensor."""
        return self.value() if isinstance(self.value, Positive | LogNormal) else self.value

    @property
    def latents(self) -> tuple[LogNormal, ...]:
        """The coefficient, if it is random."""
        return (self.value,) if isinstance(self.value, LogNormal) else ()

    def forward(self, t: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002 - constant in t
        return torch.as_tensor(self.now, dtype=w.dtype, device=w.device)

    def like(self, w: Tensor) -> float | Tensor:
        """The value, converted to the dtype and device of w."""
        value = self.now
        return value.to(w) if isinstance(value, Tensor) else value

    def restrict(self, indices: Tensor) -> Constant:
        """The constant of the coordinates `indices`."""
        value = self.now
        if not isinstance(value, Tensor) or value.ndim == 0 or value.shape == (1,):
            return self
        for axis in range(value.ndim):
            value = value.index_select(axis, indices.to(value.device))
        return Constant(value)

    def given(self, draws: Draws) -> Constant | PerSample:
        """The constant, with the drawn values in place of a random coefficient."""
        return next((PerSample(draws[latent]) for latent in self.latents if latent in draws), self)


def zero(t: Tensor, w: Tensor) -> Tensor:  # noqa: ARG001 - constant in t
    """0, with the shape of w."""
    return torch.zeros_like(w)


@final
class MeanReversion(nn.Module):
    """theta (mu - w)."""

    def __init__(self, theta: Coefficient, mu: Coefficient) -> None:
        super().__init__()
        self.theta, self.mu = theta, mu

    @property
    def parts(self) -> dict[str, object]:
        """The coefficients by name."""
        return {"theta": self.theta.value, "mu": self.mu.value}

    @property
    def latents(self) -> tuple[LogNormal, ...]:
        """The random coefficients."""
        return self.theta.latents + self.mu.latents

    def forward(self, t: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002 - constant in t
        return self.theta.like(w) * (self.mu.like(w) - w)

    def restrict(self, indices: Tensor) -> MeanReversion:
        """The drift of the coordinates `indices`."""
        return MeanReversion(self.theta.restrict(indices), self.mu.restrict(indices))

    def given(self, draws: Draws) -> MeanReversion:
        """The drift with the drawn values of its random coefficients."""
        return MeanReversion(self.theta.given(draws), self.mu.given(draws))


class Prior(nn.Module):
    """A prior with any drift f_p(t, w) and diffusion g(t, w).

    Args:
        drift: f_p, from (t, w) with w of shape (..., d) to (..., d).
        diffusion: g, a number, a tensor, a `Positive` or `LogNormal` coefficient, or a function of (t, w). For one
            weight vector w of shape (d,) its value is a scalar (shape () or (1,)), a diagonal (d,) or a dense matrix
            (d, d); for w of shape (n, d) it broadcasts.
        coordinatewise: whether drift and diffusion apply the same formula to each coordinate independently, so they
            can be evaluated on a subset of the coordinates. A split drift built on this prior requires it.

    Example:
        >>> prior = Prior(lambda t, w: -w, lambda t, w: 0.1 + 0.2 * t + 0 * w, coordinatewise=True)
    """

    def __init__(self, drift: Field, diffusion: Field | Value, *, coordinatewise: bool = False) -> None:
        super().__init__()
        if not callable(drift):
            raise ValueError(f"expected a drift f_p(t, w), got {drift!r}")
        self._drift = drift
        self._diffusion = _as_field(diffusion)
        self.coordinatewise = coordinatewise

    @property
    def constant_diffusion(self) -> bool:
        """Whether g is the same for all samples, t and w."""
        return isinstance(self._diffusion, Constant)

    @property
    def sigma(self) -> float | Tensor | None:
        """The value of g, (samples, 1 or d) if samples differ; None if g is a function of (t, w)."""
        return self._diffusion.now if isinstance(self._diffusion, Constant | PerSample) else None

    @property
    def mean_reversion(self) -> tuple[float | Tensor, float] | None:
        """(theta, mu) if f_p = theta (mu - w) with a number mu, and one theta for all coordinates; else None.

        A theta that is trained or differs between samples is a tensor, () or (samples, 1).
        """
        if self._drift is zero:
            return (0.0, 0.0)
        if not isinstance(self._drift, MeanReversion):
            return None
        theta, mu = self._drift.theta.now, self._drift.mu.now
        if isinstance(theta, Tensor) and theta.ndim and theta.shape[-1] > 1:
            return None
        return (theta, mu) if isinstance(mu, float) else None

    @property
    def constant_sigma(self) -> float | Tensor | None:
        """g if it is a fixed number or a fixed number per coordinate (not trainable), else None."""
        value = self._diffusion.value if isinstance(self._diffusion, Constant) else None
        if isinstance(value, Tensor) and (value.requires_grad or value.ndim != 1):
            return None
        return None if isinstance(value, Positive | LogNormal) else value

    @cached_property
    def latents(self) -> tuple[LogNormal, ...]:
        """The random coefficients, of which every weight sample draws its own values."""
        found = (latent for field in (self._drift, self._diffusion) for latent in getattr(field, "latents", ()))
        return tuple(dict.fromkeys(found))

    def given(self, draws: Draws) -> Prior:
        """The prior with the drawn values, (samples, 1 or d), in place of its random coefficients."""
        return Prior(_given(self._drift, draws), _given(self._diffusion, draws), coordinatewise=self.coordinatewise)

    @property
    def description(self) -> str:
        """The prior in one line, which saved weights carry: another prior has another description.

        Numbers have seven digits, fixed tensors a checksum, and functions their name. The values of a trainable
        parameter are not part of it.

        Example:
            >>> OrnsteinUhlenbeck(sigma=0.2).description
            'OrnsteinUhlenbeck(theta=1, mu=0, sigma=0.2)'
        """
        parts = self._parts
        if isinstance(self._diffusion, Constant):
            parts["sigma"] = self._diffusion.value
        else:
            parts["diffusion"] = self._diffusion
        return f"{type(self).__name__}({', '.join(f'{name}={in_words(part)}' for name, part in parts.items())})"

    @property
    def _parts(self) -> dict[str, object]:
        """The coefficients of the drift by name, or the drift itself if it is a function."""
        if self._drift is zero:
            return {}
        return self._drift.parts if isinstance(self._drift, MeanReversion | Pull) else {"drift": self._drift}

    def drift(self, t: Tensor, w: Tensor) -> Tensor:
        """f_p(t, w), with the shape of w."""
        return self._drift(t, w)

    def diffusion(self, t: Tensor, w: Tensor) -> Tensor:
        """g(t, w) as a tensor."""
        value = self._diffusion.now if isinstance(self._diffusion, Constant) else self._diffusion(t, w)
        return torch.as_tensor(value, dtype=w.dtype, device=w.device)

    def __repr__(self) -> str:
        named, sigma = self._parts, getattr(self._diffusion, "value", None)
        plain = "drift" not in named and not any(isinstance(part, Tensor) for part in named.values())
        parts = [f"{name}={_shown(part)}" for name, part in named.items()] if plain else []
        if self.constant_sigma is not None or isinstance(sigma, Positive | LogNormal):
            parts.append(f"sigma={_shown(sigma)}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def restrict(self, indices: Tensor) -> Prior:
        """The prior restricted to the coordinates `indices`; raises ValueError unless the prior is coordinatewise."""
        if not self.coordinatewise:
            raise ValueError(
                "expected a coordinatewise prior, got one that may mix coordinates; see Prior(coordinatewise=)"
            )
        return Prior(_restricted(self._drift, indices), _restricted(self._diffusion, indices), coordinatewise=True)


def _as_field(diffusion: Field | Value) -> Field:
    if isinstance(diffusion, Tensor | Positive | LogNormal) or not callable(diffusion):
        return _constant(diffusion, "sigma")
    return diffusion


def _constant(value: Value, name: str) -> Constant:
    """A coefficient as a function of (t, w); raises ValueError for NaN, infinities and what is not a number."""
    if not isinstance(value, Positive | LogNormal):
        require_finite(value, name)
    return Constant(value)


def _shown(part: object) -> str:
    return (
        f"{part:g}" if isinstance(part, float) else f"<{len(part)} values>" if isinstance(part, Tensor) else repr(part)
    )


def _restricted(field: Field, indices: Tensor) -> Field:
    """A field on some of the coordinates: `field.restrict(indices)` if it has that method, else the field itself."""
    if isinstance(field, Constant) and isinstance(field.value, float):
        return field
    restrict: Callable[[Tensor], Field] | None = getattr(field, "restrict", None)
    return field if restrict is None else restrict(indices)


def _given(field: Field, draws: Draws) -> Field:
    """A field with drawn values: `field.given(draws)` if it has that method, else the field itself."""
    given: Callable[[Draws], Field] | None = getattr(field, "given", None)
    return field if given is None else given(draws)


@final
class OrnsteinUhlenbeck(Prior):
    """dw = theta (mu - w) dt + sigma dB.

    With w_0 given and sigma scalar, w_t is normal with mean mu + (w_0 - mu) e^{-theta t} and variance
    sigma^2 (1 - e^{-2 theta t}) / (2 theta): for theta = sigma = 1 and t = 1 the variance is 0.43233.

    Args:
        theta: rate of mean reversion, a number or (d,).
        mu: mean, a number or (d,).
        sigma: diffusion, a number, (d,) or (d, d); an `nn.Parameter` is trained, and prior and posterior share it.

    Each of them may also be `Positive`, which is trained and stays positive, or `LogNormal`, which every weight sample
    draws again.
    """

    def __init__(self, theta: Value = 1.0, mu: Value = 0.0, sigma: Value = 1.0) -> None:
        drift = MeanReversion(_constant(theta, "theta"), _constant(mu, "mu"))
        super().__init__(drift, sigma, coordinatewise=_is_coordinatewise(sigma))


@final
class Brownian(Prior):
    """dw = sigma dB, where sigma is a number, (d,) or (d, d), `Positive` or `LogNormal`."""

    def __init__(self, sigma: Value = 1.0) -> None:
        super().__init__(zero, sigma, coordinatewise=_is_coordinatewise(sigma))


@final
class BrownianBridge(Prior):
    """dw = (b - w) / (T - t) dt + sigma dB, a Brownian motion that is pinned to b at the time T > 1.

    With w_0 given and sigma scalar, w_t is normal with mean w_0 + (b - w_0) t / T and variance sigma^2 t (T - t) / T.
    For b = 2, T = 1.25, sigma = 1 and w_0 = 0, that is 1.6 and 0.2 at t = 1. For T = 1 the drift at the end of the
    grid would be infinite, so T <= 1 is a ValueError. T slightly above 1 nearly pins w_1 to b.

    Args:
        b: the value at T, a number or (d,).
        T: the time at which w would reach b, above 1.
        sigma: diffusion, as in `OrnsteinUhlenbeck`.
    """

    def __init__(self, b: Value = 0.0, T: float = 1.25, sigma: Value = 1.0) -> None:
        if isinstance(T, bool) or not isinstance(T, Real) or not 1 < float(T) < math.inf:
            raise ValueError(f"expected a finite time T > 1, since the drift is infinite at T, got {T!r}")
        if isinstance(sigma, Real) or (isinstance(sigma, Tensor) and sigma.ndim < 2):
            checked(sigma, "sigma")
        super().__init__(Pull(_constant(b, "the end b"), float(T)), sigma, coordinatewise=_is_coordinatewise(sigma))


def _is_coordinatewise(sigma: Value) -> bool:
    return not isinstance(sigma, Tensor) or sigma.ndim < 2
