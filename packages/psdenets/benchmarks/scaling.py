"""Time against size: the slope of log time over log size, and the expected slope."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from contenders import SHAPES, block, images, ours
from rows import Row
from timing import interleaved, median

from psdenets import build, preset
from psdenets.models.psde import DeepBlock

SHAPE = SHAPES["mnist"]
Run = Callable[[], object]


def measure(*, quick: bool) -> Iterator[Row]:
    """Steps, batch, weights of f_h, samples, and the weight process alone."""
    rounds = 1 if quick else 5
    steps = (4, 8) if quick else (10, 20, 40, 80)
    batches = (4, 8) if quick else (16, 32, 64, 128)
    widths = (8, 16) if quick else (16, 32, 64, 128)
    samples = (1, 2) if quick else (1, 2, 4, 8, 16)
    h0 = images(SHAPE, 16)
    deep = block(SHAPE, steps=10)
    yield from series(
        "steps of a training step, batch 16", steps, [step(block(SHAPE, steps=n), h0) for n in steps], rounds
    )
    yield from series(
        "batch of a training step, 10 steps", batches, [step(deep, images(SHAPE, n)) for n in batches], rounds
    )
    wide = [block(SHAPE, steps=10, width=w) for w in widths]
    yield from series("d_w of a training step, batch 16, 10 steps", sizes(wide), [step(b, h0) for b in wide], rounds)
    yield from series(
        "d_w of sampling a weight path and back, 10 steps", sizes(wide), [path_of(b) for b in wide], rounds
    )
    model = build(preset("mnist-sde-bnn", steps=10))
    x = torch.rand(16, 1, 28, 28)
    predictions: list[Run] = [partial(model.predict_proba, x, samples=s) for s in samples]
    yield from series("samples of a prediction, fully stochastic", samples, predictions, rounds)


def series(what: str, sizes: Sequence[int], runs: Sequence[Run], rounds: int) -> Iterator[Row]:
    """The time at each size, and the slope, expected to be 1."""
    times = interleaved({str(n): run for n, run in zip(sizes, runs, strict=True)}, rounds)
    seconds = [median(times, str(n)) for n in sizes]
    for n, number in zip(sizes, seconds, strict=True):
        yield Row("scaling", what, f"{n}", number, "s")
    yield Row("scaling", what, "slope, expected 1", slope(sizes, seconds), "")


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    """Least squares of log time on log size."""
    return float(np.polyfit([math.log(n) for n in sizes], [math.log(s) for s in seconds], 1)[0])


def sizes(blocks: Sequence[DeepBlock]) -> list[int]:
    """d_w of each."""
    return [deep.process.d for deep in blocks]


def step(deep: DeepBlock, h0: torch.Tensor) -> Run:
    """A training step."""
    return partial(ours, deep, h0)


def path_of(deep: DeepBlock) -> Run:
    """The weight process alone."""

    def run() -> None:
        path = deep.draw(1, torch.Generator().manual_seed(0))
        (path.w.square().mean() + path.kl.mean()).backward()

    return run
