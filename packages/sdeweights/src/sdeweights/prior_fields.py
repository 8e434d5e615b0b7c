"""Fields of priors that are used less: a coefficient with a value per sample, and the drift of a Brownian bridge.

A field whose coefficients may be random lists them in `latents`, and `given(draws)` is the field with their values.
"""

from __future__ import annotations

from typing import Any, Protocol, Self, final

from torch import Tensor, nn

from sdeweights.coefficients import Draws, LogNormal


class Coefficient(Protocol):
    """A coefficient that is the same for all t and w; `value` is what it was made from."""

    value: Any

    @property
    def latents(self) -> tuple[LogNormal, ...]:
        """The coefficient, if it is random."""
        ...

    @property
    def now(self) -> float | Tensor:
        """The value as a number or a tensor."""
        ...

    def like(self, w: Tensor) -> float | Tensor:
        """The value, converted to the dtype and device of w."""
        ...

    def restrict(self, indices: Tensor) -> Self:
        """The coefficient of the coordinates `indices`."""
        ...

    def given(self, draws: Draws) -> Any:
        """The coefficient with the drawn values in place of a random one."""
        ...


@final
class PerSample(nn.Module):
    """A coefficient with a value for each of the samples in w of shape (samples, d); `value` is (samples, 1 or d)."""

    latents: tuple[LogNormal, ...] = ()

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value: Tensor
        self.register_buffer("value", value, persistent=False)

    @property
    def now(self) -> Tensor:
        """The values, (samples, 1 or d)."""
        return self.value

    def forward(self, t: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002 - constant in t
        return self.like(w)

    def like(self, w: Tensor) -> Tensor:
        """The values, converted to the dtype and device of w; those of the first sample for a single w of (d,)."""
        return (self.value if w.ndim > 1 else self.value[0]).to(w)

    def restrict(self, indices: Tensor) -> PerSample:
        """The values of the coordinates `indices`."""
        return self if self.value.shape[-1] == 1 else PerSample(self.value[:, indices])

    def given(self, draws: Draws) -> PerSample:  # noqa: ARG002 - the values are drawn already
        """This coefficient."""
        return self


@final
class Pull(nn.Module):
    """(b - w) / (T - t)."""

    def __init__(self, b: Coefficient, T: float) -> None:
        super().__init__()
        self.b, self.T = b, T

    @property
    def parts(self) -> dict[str, object]:
        """The coefficients by name."""
        return {"b": self.b.value, "T": self.T}

    @property
    def latents(self) -> tuple[LogNormal, ...]:
        """The random coefficients."""
        return self.b.latents

    def forward(self, t: Tensor, w: Tensor) -> Tensor:
        return (self.b.like(w) - w) / (self.T - t)

    def restrict(self, indices: Tensor) -> Pull:
        """The drift of the coordinates `indices`."""
        return Pull(self.b.restrict(indices), self.T)

    def given(self, draws: Draws) -> Pull:
        """The drift with the drawn values of its random coefficients."""
        return Pull(self.b.given(draws), self.T)
