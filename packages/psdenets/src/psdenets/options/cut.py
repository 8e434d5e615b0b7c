"""Which weights are noisy, and over which part of depth."""

from collections.abc import Sequence
from functools import cached_property
from typing import Literal

from psdenets.errors import BadInput
from psdenets.options.fields import ABOVE_0_TO_1, OPEN_UNIT, SIZES, Group, flag, option


class CutOptions(Group, group="cut"):
    """Which weights are noisy, and over which part of depth.

    Example:
        >>> CutOptions(cut="vertical", order="sde-first", ratio=0.25).window
        (0.0, 0.25)
    """

    cut: Literal["none", "full", "vertical", "horizontal", "both"] = option(
        "vertical", "noise nowhere, everywhere, on part of the depth, on part of the weights, or both"
    )
    order: Literal["ode-first", "sde-first"] = option("ode-first", "place the stochastic depth last or first")
    ratio: float = option(0.1, "stochastic share of depth in a vertical cut", ABOVE_0_TO_1)
    share: float = option(0.5, "stochastic share of the weights in a horizontal cut", OPEN_UNIT)
    t1: float | None = option(None, "start of the stochastic window, instead of --order and --ratio")
    t2: float | None = option(None, "end of the stochastic window, instead of --order and --ratio")
    at_t2: Literal["continue", "fixed", "learned"] = option("continue", "value of the noisy weights after t2")
    scope: Literal["block", "network"] = option(
        "block", "apply the vertical cut in every block, or once over the whole network"
    )
    sde_steps: int | None = option(
        None,
        "steps of the stochastic depth, with several --steps on the last grid (default: in proportion, but at least "
        "two if --steps allows)",
    )
    drift_deterministic: str | None = option(
        None, "hidden sizes of the deterministic half of f_q on a horizontal cut (default: --drift)", SIZES
    )

    def check_together(self) -> None:
        for name in ("t1", "t2"):
            if getattr(self, name) is not None and not self.vertical:
                raise BadInput(_only_with(name, "vertical or both", self.cut))
        if (self.t1 is None) != (self.t2 is None):
            raise BadInput(f"expected --t1 and --t2 together, got t1={self.t1}, t2={self.t2}")
        t1, t2 = self.window
        if not 0 <= t1 < t2 <= 1:
            raise BadInput(f"expected 0 <= t1 < t2 <= 1, got t1={t1}, t2={t2}")
        if self.at_t2 != "continue" and (not self.vertical or t2 == 1):
            raise BadInput(
                f"expected --at-t2 {self.at_t2} with depth left after t2 < 1, got --cut {self.cut} with t2={t2:g}"
            )
        if self.scope == "network" and not self.vertical:
            raise BadInput(f"expected --scope network with --cut vertical or both only, got it with --cut {self.cut}")
        if self.sde_steps is not None and self.phases == 1:
            raise BadInput(f"expected --sde-steps only with a cut in depth, got it with --cut {self.cut}")

    def check_steps(self, counts: Sequence[int]) -> None:
        """Raise `BadInput` if a block has too few steps for the phases of the cut, on the first grid or the last."""
        phases = self.phases
        if counts[0] < phases:
            raise BadInput(f"expected --steps at least {phases}, one for each phase of the cut, got {counts[0]}")
        most = counts[-1] - phases + 1
        if self.sde_steps is not None and not 1 <= self.sde_steps <= most:
            raise BadInput(
                f"expected --sde-steps from 1 to {most}, one step left for every phase, got {self.sde_steps}"
            )

    def sde_steps_on(self, steps: int, finest: int) -> int | None:
        """--sde-steps for a grid of `steps` steps: in proportion, but at least two unless it is one; None by default.

        Example: three stochastic steps of eight are at least two of four, and one of two.
            >>> cut = CutOptions(sde_steps=3)
            >>> [cut.sde_steps_on(steps, 8) for steps in (2, 4, 8, 16)]
            [1, 2, 3, 6]
        """
        if self.sde_steps is None:
            return None
        wanted = max(min(2, self.sde_steps), round(self.sde_steps * steps / finest))
        return min(wanted, steps - self.phases + 1)

    @property
    def vertical(self) -> bool:
        """Whether only part of the depth is noisy."""
        return self.cut in ("vertical", "both")

    @property
    def horizontal(self) -> bool:
        """Whether only some of the weights are noisy."""
        return self.cut in ("horizontal", "both")

    @cached_property
    def window(self) -> tuple[float, float]:
        """The stochastic window (t1, t2); (0, 1) if the cut is not vertical."""
        if not self.vertical:
            return (0.0, 1.0)
        if self.t1 is not None and self.t2 is not None:
            return (self.t1, self.t2)
        return (1 - self.ratio, 1.0) if self.order == "ode-first" else (0.0, self.ratio)

    @property
    def phases(self) -> int:
        """Number of intervals into which the cut divides the depth."""
        t1, t2 = self.window
        return 1 if self.cut == "none" else (t1 > 0) + 1 + (t2 < 1)

    @property
    def noisy_share(self) -> float:
        """Noisy share of the weights times noisy share of the depth; 0 without noise."""
        if self.cut == "none":
            return 0.0
        by_depth = self.ratio if self.vertical else 1.0
        if self.t1 is not None and self.t2 is not None:
            by_depth = self.t2 - self.t1
        return by_depth * (self.share if self.horizontal else 1.0)

    @property
    def widened_by(self) -> str:
        """The flags that make more of the depth or of the weights noisy; empty if there are none."""
        by_ratio = self.vertical and self.t1 is None and self.ratio < 1
        flags = {"--ratio": by_ratio, "--t1 and --t2": self.t1 is not None}
        return " or ".join(name for name, used in (flags | {"--share": self.horizontal}).items() if used)

    @property
    def slug(self) -> str:
        """A short name for directories: "vertical-ode-first", "full"."""
        return f"{self.cut}-{self.order}" if self.vertical else self.cut

    @property
    def words(self) -> str:
        """A readable description: "noise for depth in (0.9, 1)"."""
        t1, t2 = self.window
        window = f"noise for depth in ({t1:.3g}, {t2:.3g})"
        share = f"{self.share:.0%} of the weights noisy"
        return {
            "none": "no noise",
            "full": "all weights noisy",
            "vertical": window,
            "horizontal": share,
            "both": f"{share}, {window}",
        }[self.cut]

    def idle(self) -> dict[str, str]:
        found = {}
        if not self.vertical:
            for name in ("ratio", "order", "at_t2", "scope", "sde_steps"):
                found[name] = _only_with(name, "vertical or both", self.cut)
        if not self.horizontal:
            for name in ("share", "drift_deterministic"):
                found[name] = _only_with(name, "horizontal or both", self.cut)
        if self.t1 is not None:
            message = "expected either --t1 and --t2 or --ratio and --order, got both"
            found |= {"ratio": message, "order": message}
        return found


def _only_with(name: str, cuts: str, cut: str) -> str:
    return f"expected {flag(name)} with --cut {cuts} only, got it with --cut {cut}"
