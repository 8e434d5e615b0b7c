"""Ratios on a machine that does other things too: contenders take turns in one process, and medians are compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping


def interleaved(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender in each round, after one round that is not counted.

    In every round all contenders run once, one after the other, so that what else the machine does meets all of them.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for round_ in range(rounds + 1):
        for name, run in contenders.items():
            started = time.perf_counter()
            run()
            if round_:
                times[name].append(time.perf_counter() - started)
    return times


def ratio(times: Mapping[str, list[float]], name: str, to: str) -> float:
    """Median over rounds of the ratio within a round."""
    return statistics.median(a / b for a, b in zip(times[name], times[to], strict=True))


def median(times: Mapping[str, list[float]], name: str) -> float:
    """Median seconds."""
    return statistics.median(times[name])
