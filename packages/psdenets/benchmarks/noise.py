"""What noise and a horizontal cut add to a training step: a few percent, which take many rounds to measure.

Three networks take turns in the order without noise, full, horizontal, full, so that those compared run consecutively.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from contenders import SHAPES, block, images, ours
from rows import Row
from timing import fastest, interleaved, median, ratio

NAMES = {"none": "without noise", "sde-bnn": "fully stochastic", "horizontal": "horizontal cut"}
ORDER = ("none", "sde-bnn", "horizontal", "sde-bnn")
ROUNDS = {("mnist", 32): 16, ("cifar10-1", 32): 8, ("mnist", 128): 4, ("cifar10-1", 128): 3}


def measure(*, quick: bool) -> Iterator[Row]:
    """MNIST and the first stage of CIFAR-10."""
    for (name, batch), rounds in ROUNDS.items():
        for row in one_shape(name, 4 if quick else batch, 1 if quick else rounds):
            yield row.unasked() if quick else row


def one_shape(name: str, batch: int, rounds: int) -> Iterator[Row]:
    """Fully stochastic / without noise, and horizontal cut / fully stochastic."""
    h0 = images(SHAPES[name], batch)
    times = interleaved({cut: partial(ours, block(SHAPES[name], cut), h0) for cut in NAMES}, rounds, ORDER)
    where = f"{name}, batch {batch}, {torch.get_num_threads()} thread(s), {rounds} rounds"
    for cut, words in NAMES.items():
        yield Row("noise", where, f"{words}: median", median(times, cut), "s")
    for a, b, most in (("sde-bnn", "none", 1.05), ("horizontal", "sde-bnn", 1.03)):
        what = f"{NAMES[a]} / {NAMES[b]}"
        yield Row("noise", where, what, ratio(times, a, b), "x", most, fastest=fastest(times, a, b))
