"""Priors on weight paths, eq. (5):  dw = f_p(t, w) dt + g(t, w) dB.  The posterior shares g (Lemma 1)."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn

from sdeweights.diffusion import Field

Value = float | Tensor


class _Constant(nn.Module):
    """A constant function of (t, w); its value is a number, a buffer or a parameter."""

    def __init__(self, value: Value) -> None:
        super().__init__()
        self.value: Value
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            self.register_buffer("value", value, persistent=False)
        else:
            self.value = value if isinstance(value, Tensor) else float(value)

    def forward(self, t: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002 - constant in t
        return torch.as_tensor(self.value, dtype=w.dtype, device=w.device)

    def like(self, w: Tensor) -> Value:
        """The value, converted to the dtype and device of w."""
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
        return self.theta.like(w) * (self.mu.like(w) - w)

    def restrict(self, indices: Tensor) -> _MeanReversion:
        return _MeanReversion(self.theta.restrict(indices), self.mu.restrict(indices))


def _zero(t: Tensor, w: Tensor) -> Tensor:  # noqa: ARG001 - constant in t
    return torch.zeros_like(w)


class Prior(nn.Module):
    """A prior with any drift f_p(t, w) and diffusion g(t, w).

    Args:
        drift: f_p, from (t, w) with w of shape (..., d) to (..., d).
        diffusion: g, a number, a tensor, or a function of (t, w). For one weight vector w of shape (d,) its value is a
            scalar (shape () or (1,)), a diagonal (d,) or a dense matrix (d, d); for w of shape (n, d) it broadcasts.
        coordinatewise: whether drift and diffusion apply the same formula to each coordinate independently, so they
            can be evaluated on a subset of the coordinates. A split drift built on this prior requires it.

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
    def mean_reversion(self) -> tuple[float, float] | None:
        """(theta, mu) if f_p = theta (mu - w) with numbers theta and mu, else None."""
        if self._drift is _zero:
            return (0.0, 0.0)
        if not isinstance(self._drift, _MeanReversion):
            return None
        theta, mu = self._drift.theta.value, self._drift.mu.value
        return (theta, mu) if isinstance(theta, float) and isinstance(mu, float) else None

    @property
    def constant_sigma(self) -> float | Tensor | None:
        """g if it is a fixed number or a fixed number per coordinate (not trainable), else None."""
        value = self._diffusion.value if isinstance(self._diffusion, _Constant) else None
        if isinstance(value, Tensor) and (value.requires_grad or value.ndim != 1):
            return None
        return value

    @property
    def description(self) -> str:
        """The prior in one line, which saved weights carry: another prior has another description.

        Numbers have seven digits, fixed tensors a checksum, and functions their name. The values of a trainable
        parameter are not part of it.

        Example:
            >>> OrnsteinUhlenbeck(sigma=0.2).description
            'OrnsteinUhlenbeck(theta=1, mu=0, sigma=0.2)'
        """
        parts: dict[str, object] = {"drift": self._drift}
        if isinstance(self._drift, _MeanReversion):
            parts = {"theta": self._drift.theta.value, "mu": self._drift.mu.value}
        elif self._drift is _zero:
            parts = {}
        if isinstance(self._diffusion, _Constant):
            parts["sigma"] = self._diffusion.value
        else:
            parts["diffusion"] = self._diffusion
        return f"{type(self).__name__}({', '.join(f'{name}={_in_words(part)}' for name, part in parts.items())})"

    def drift(self, t: Tensor, w: Tensor) -> Tensor:
        """f_p(t, w), with the shape of w."""
        return self._drift(t, w)

    def diffusion(self, t: Tensor, w: Tensor) -> Tensor:
        """g(t, w) as a tensor."""
        return torch.as_tensor(self._diffusion(t, w), dtype=w.dtype, device=w.device)

    def __repr__(self) -> str:
        reversion, sigma = self.mean_reversion, self.constant_sigma
        parts = [] if reversion is None or self._drift is _zero else [f"theta={reversion[0]:g}, mu={reversion[1]:g}"]
        if sigma is not None:
            parts.append(f"sigma={sigma:g}" if isinstance(sigma, float) else f"sigma=<{len(sigma)} values>")
        return f"{type(self).__name__}({', '.join(parts)})"

    def restrict(self, indices: Tensor) -> Prior:
        """The prior restricted to the coordinates `indices`; raises ValueError unless the prior is coordinatewise."""
        if not self.coordinatewise:
            raise ValueError(
                "expected a coordinatewise prior, got one that may mix coordinates; see Prior(coordinatewise=)"
            )
        return Prior(_restricted(self._drift, indices), _restricted(self._diffusion, indices), coordinatewise=True)


def _in_words(part: object) -> str:
    """A constant or a function, on one line."""
    if isinstance(part, nn.Parameter):
        return f"<{part.numel()} trainable>"
    if isinstance(part, Tensor) and part.numel() > 1:
        return f"<{part.numel()} values, {checksum(part)}>"
    if isinstance(part, Tensor | float):
        return f"{float(part):.7g}"
    return str(getattr(part, "__qualname__", type(part).__qualname__))


def checksum(values: Tensor) -> str:
    """A checksum of integers, or of numbers rounded to float32, so it does not depend on their device and precision."""
    exact = values.detach().cpu().float() if values.is_floating_point() else values.cpu()
    return f"{zlib.crc32(exact.contiguous().numpy().tobytes()):08x}"


def _restricted(field: Field, indices: Tensor) -> Field:
    """A field on some of the coordinates: `field.restrict(indices)` if it has that method, else the field itself."""
    restrict: Callable[[Tensor], Field] | None = getattr(field, "restrict", None)
    return field if restrict is None else restrict(indices)


@final
class OrnsteinUhlenbeck(Prior):
    """dw = theta (mu - w) dt + sigma dB.

    With w_0 given and sigma scalar, w_t is normal with mean mu + (w_0 - mu) e^{-theta t} and variance
    sigma^2 (1 - e^{-2 theta t}) / (2 theta): for theta = sigma = 1 and t = 1 the variance is 0.43233.

    Args:
        theta: rate of mean reversion, a number or (d,).
        mu: mean, a number or (d,).
        sigma: diffusion, a number, (d,) or (d, d); an `nn.Parameter` is trained, and prior and posterior share it.
    """

    def __init__(self, theta: Value = 1.0, mu: Value = 0.0, sigma: Value = 1.0) -> None:
        super().__init__(_MeanReversion(theta, mu), sigma, coordinatewise=_is_coordinatewise(sigma))


@final
class Brownian(Prior):
    """dw = sigma dB, where sigma is a number, (d,) or (d, d)."""

    def __init__(self, sigma: Value = 1.0) -> None:
        super().__init__(_zero, sigma, coordinatewise=_is_coordinatewise(sigma))


def _is_coordinatewise(sigma: Value) -> bool:
    return not isinstance(sigma, Tensor) or sigma.ndim < 2
