"""The error raised when an integration produces a NaN or infinity; invalid arguments raise ValueError."""

from torch import Tensor


class NonFiniteState(ArithmeticError):
    """A state became infinite or NaN; the message names the phase, the step, t and the norm before the step."""


def norm(x: Tensor) -> float:
    """The largest Euclidean norm along the last axis, computed without overflow; used in error messages.

    Example:
        >>> f"{norm(torch.tensor([3e200, 4e200], dtype=torch.float64)):g}"
        '5e+200'
    """
    x = x.detach().double()
    largest = float(x.abs().max())
    return largest * float((x / largest).norm(dim=-1).max()) if largest > 0 else largest
