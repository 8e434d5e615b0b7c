"""A figure of a benchmark, its bound, and how it is printed."""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """One figure. `most` or `least` is its bound, if it has one; `fastest` is the figure of the fastest runs."""

    part: str
    where: str
    what: str
    figure: float
    unit: str
    most: float | None = None
    least: float | None = None
    fastest: float | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the bound holds; None if there is no bound."""
        if self.most is None and self.least is None:
            return None
        return (self.most is None or self.figure <= self.most) and (self.least is None or self.figure >= self.least)

    @property
    def asked(self) -> str:
        """The bound in words."""
        bounds = [(self.most, "at most"), (self.least, "at least")]
        return "".join(f"{word} {bound:g}" for bound, word in bounds if bound is not None)

    def unasked(self) -> Row:
        """The figure without its bound."""
        return self._replace(most=None, least=None)

    def as_dict(self) -> dict[str, object]:
        """Plain values."""
        return {**self._asdict(), "holds": self.holds}

    def line(self) -> str:
        """One line of a table."""
        verdict = {True: "yes", False: "NO", None: ""}[self.holds]
        best = "" if self.fastest is None else f"({self.fastest:.3g})"
        return f"  {self.what:<44} {self.figure:9.3g} {self.unit:<3} {best:<8} {self.asked:<14} {verdict}".rstrip()
