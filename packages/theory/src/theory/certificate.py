"""The result of checking one statement: the measured number, its bound, and the verdict."""

import math
from dataclasses import dataclass
from enum import StrEnum


class Relation(StrEnum):
    """The required relation between the measured number and the bound."""

    AT_MOST = "<="
    AT_LEAST = ">="
    EQUAL = "=="


@dataclass(frozen=True)
class Certificate:
    """One measured statement.

    Example:
        >>> Certificate("Lemma 1", "slope of the KL", 0.8075, "==", 0.8069, 0.01, "4 standard errors").holds
        True
    """

    claim: str  # of the paper, e.g. "Theorem 4.1"
    statement: str  # what was measured, in one line
    measured: float
    relation: str  # "<=", ">=" or "=="
    bound: float  # the value that the claim predicts
    tolerance: float = 0.0  # how far the number may violate the bound (rounding, discretisation, chance); at least 0
    why: str = ""  # the reason for the tolerance; required unless it is 0

    def __post_init__(self) -> None:
        if self.relation not in list(Relation):
            raise ValueError(f"expected relation to be one of {', '.join(Relation)}, got {self.relation!r}")
        if not (math.isfinite(self.bound) and math.isfinite(self.tolerance) and self.tolerance >= 0):
            raise ValueError(f"expected a finite bound and tolerance >= 0, got {self.bound} and {self.tolerance}")
        if self.tolerance > 0 and not self.why:
            raise ValueError(f"expected a reason for the tolerance {self.tolerance:g}, got an empty one")

    @property
    def holds(self) -> bool:
        """Whether the number satisfies the bound within the tolerance; False for NaN."""
        gap, tolerance = self.measured - self.bound, self.tolerance
        return {"<=": gap <= tolerance, ">=": gap >= -tolerance, "==": abs(gap) <= tolerance}[self.relation]
