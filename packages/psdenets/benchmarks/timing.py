"""Time ratios on a shared machine: contenders take turns in one process, and consecutive runs are compared.

On a shared machine the time of the same step varies by half, for seconds or minutes at a time. So each ratio is that of
two consecutive runs, and the figure is the median over all rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch

Clock = Callable[[], float]
Round = Sequence[tuple[str, float]]  # name and seconds of every run, in order


def clock_for(threads: int) -> Clock:
    """CPU time for one thread, which leaves out the time given to other processes; wall time for more."""
    return time.process_time if threads == 1 else time.perf_counter


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    rounds: int,
    order: Sequence[str] | None = None,
    clock: Clock | None = None,
) -> list[Round]:
    """Seconds of all contenders in each round, after one round that is not counted.

    Args:
        contenders: functions by name.
        rounds: number of rounds.
        order: names in the order of a round, possibly repeated; every second round is reversed.
        clock: by default `clock_for` the number of threads; work in other processes needs wall time.
    """
    clock = clock_for(torch.get_num_threads()) if clock is None else clock
    turns = list(contenders) if order is None else list(order)
    times: list[Round] = []
    for round_ in range(rounds + 1):
        found = []
        for name in turns if round_ % 2 else reversed(turns):
            started = clock()
            contenders[name]()
            found.append((name, clock() - started))
        times += [found] if round_ else []
    return times


def ratio(times: Sequence[Round], name: str, to: str) -> float:
    """Median over rounds of the ratio of consecutive runs."""
    return statistics.median(neighbours(round_, name, to) for round_ in times)


def neighbours(round_: Round, name: str, to: str) -> float:
    """Each run of `name` divided by the nearest runs of `to`, on average.

    Example: the first a has one b next to it, the second has two.
        >>> neighbours([("a", 2.0), ("b", 1.0), ("c", 9.0), ("b", 2.0), ("a", 3.0), ("b", 4.0)], "a", "b")
        1.5
    """
    places = [k for k, (who, _) in enumerate(round_) if who == to]
    found = []
    for k, (who, seconds) in enumerate(round_):
        if who == name:
            nearest = min(abs(k - place) for place in places)
            nearby = [round_[place][1] for place in places if abs(k - place) == nearest]
            found.append(seconds / statistics.mean(nearby))
    return statistics.mean(found)


def fastest(times: Sequence[Round], name: str, to: str) -> float:
    """Ratio of the fastest runs, those that other processes disturbed least."""
    best = {who: min(seconds for round_ in times for w, seconds in round_ if w == who) for who in (name, to)}
    return best[name] / best[to]


def median(times: Sequence[Round], name: str) -> float:
    """Median seconds of all runs."""
    return statistics.median(seconds for round_ in times for who, seconds in round_ if who == name)
