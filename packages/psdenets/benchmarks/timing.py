"""Ratios on a machine that does other things too: contenders take turns in one process, and medians are compared."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping

import torch

Clock = Callable[[], float]


def clock_for(threads: int) -> Clock:
    """CPU time for one thread: it leaves out the time in which the processor is given to others. Else wall time."""
    return time.process_time if threads == 1 else time.perf_counter


def interleaved(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender in each round, after one round that is not counted.

    In every round all contenders run once, in an order of its own, so that what else the machine does, and what a
    contender leaves behind in caches and heap, meets all of them.
    """
    clock = clock_for(torch.get_num_threads())
    times: dict[str, list[float]] = {name: [] for name in contenders}
    order = random.Random(0)
    for round_ in range(rounds + 1):
        for name in order.sample(list(contenders), len(contenders)):
            started = clock()
            contenders[name]()
            if round_:
                times[name].append(clock() - started)
    return times


def ratio(times: Mapping[str, list[float]], name: str, to: str) -> float:
    """Ratio of medians: two runs of a round may lie half a minute apart, so ratios within a round say no more."""
    return median(times, name) / median(times, to)


def median(times: Mapping[str, list[float]], name: str) -> float:
    """Median seconds."""
    return statistics.median(times[name])
