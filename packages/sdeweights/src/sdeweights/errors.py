"""The one error that is not about arguments: an integration that left the finite numbers."""

from __future__ import annotations


class NonFiniteState(ArithmeticError):
    """A state became infinite or NaN; the message names the phase, the step, t and the norm before it."""
