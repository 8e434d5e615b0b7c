"""Learning-rate schedules: the fraction of the peak learning rate at progress p = step / steps in [0, 1].

constant    1
cosine      (1 + cos pi p) / 2
one-cycle   cosine from 1/25 up to 1 at p = 0.3, then cosine down to 1/10,000
"""

import math

_START, _PEAK, _END = 1 / 25, 0.3, 1e-4


def rate(schedule: str, progress: float) -> float:
    """The factor that multiplies the learning rate at this progress."""
    if schedule == "constant":
        return 1.0
    if schedule == "cosine":
        return _between(1.0, 0.0, progress)
    if progress < _PEAK:
        return _between(_START, 1.0, progress / _PEAK)
    return _between(1.0, _END, (progress - _PEAK) / (1 - _PEAK))


def _between(start: float, end: float, p: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * p)) / 2
