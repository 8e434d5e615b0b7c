"""Time of a training step of one block of the paper: ours for every cut, the floor, torchsde and torchdiffeq."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from contenders import SHAPES, Joint, block, floor, floor_of, images, ours, torchdiffeq_way, torchsde_way
from rows import Row
from timing import fastest, interleaved, median, ratio

CUTS = ("sde-bnn", "none", "ode-first", "horizontal", "both", "sde-first", "fix-w2")  # the first four at large batches
# Contenders to be compared run consecutively: the floor with every cut, other libraries with the fully stochastic one.
ORDER = (
    *("torchdiffeq", "ours, none", "ours, sde-bnn", "floor", "ours, horizontal", "ours, sde-bnn"),
    *("torchsde", "ours, sde-bnn, compiled", "floor", "ours, ode-first", "ours, both", "floor"),
    *("ours, sde-first", "ours, fix-w2", "floor", "torchsde, channels last", "ours, sde-bnn", "torchsde adjoint"),
)
TORCHSDE_OVER_OURS = {"mnist": (1.5, 1.65), "cifar10-1": (1.4, 1.5)}  # plain, compiled


def measure(*, quick: bool) -> Iterator[Row]:
    """All shapes; the first stage of CIFAR-10 and MNIST with every cut."""
    for batch in (8,) if quick else (32, 128):
        stages: list[Row] = []
        for name in SHAPES:
            whole, large = name in TORCHSDE_OVER_OURS, batch > 32
            cuts = (CUTS[:4] if large else CUTS) if whole else CUTS[:1]
            rows = one_shape(name, batch, 1 if quick else 2 if large else 5, cuts, others=whole and not large)
            for row in rows:
                stages += [row] if name.startswith("cifar10") else []
                yield row.unasked() if quick else row
        for row in network(stages, batch):
            yield row.unasked() if quick else row


def network(stages: list[Row], batch: int) -> Iterator[Row]:
    """The paper's network for CIFAR-10, with two blocks per stage: ratios of sums of medians."""
    seconds: dict[str, float] = {}
    for row in stages:
        if row.unit == "s":
            seconds[row.what] = seconds.get(row.what, 0) + row.figure
    where = f"cifar10, the three stages together, batch {batch}"
    for who, most in (("ours, sde-bnn", 1.15), ("ours, sde-bnn, compiled", 1.05)):
        figure = seconds[f"{who}: median"] / seconds["floor: median"]
        yield Row("training step", where, f"{who} / floor", figure, "x", most=most)
    figure = seconds["torchsde: median"] / seconds["ours, sde-bnn: median"]
    yield Row("training step", where, "torchsde / ours", figure, "x", least=1.4)


def one_shape(name: str, batch: int, rounds: int, cuts: tuple[str, ...], *, others: bool) -> Iterator[Row]:
    """Contenders take turns; `others` adds the adjoint of torchsde, and torchdiffeq."""
    runs = contenders(name, batch, cuts, others=others)
    threads = torch.get_num_threads()
    times = interleaved(runs, rounds, [who for who in ORDER if who in runs])
    shape = f"{name}, batch {batch}, {steps_of(name)} steps, {threads} thread(s), {rounds} rounds"

    def row(what: str, a: str, b: str, most: float | None = None, least: float | None = None) -> Row:
        return Row("training step", shape, what, ratio(times, a, b), "x", most, least, fastest(times, a, b))

    for who in runs:
        yield Row("training step", shape, f"{who}: median", median(times, who), "s")
    for who in runs:
        if who.startswith("ours"):
            yield row(f"{who} / floor", who, "floor", most=1.05 if "compiled" in who else 1.15)
    plain, compiled = TORCHSDE_OVER_OURS.get(name, (None, None))
    yield row("torchsde / ours", "torchsde", "ours, sde-bnn", least=plain)
    yield row("torchsde, channels last by hand / ours", "torchsde, channels last", "ours, sde-bnn")
    yield row("torchsde / ours, compiled", "torchsde", "ours, sde-bnn, compiled", least=compiled)
    if others:
        yield row("torchsde, its adjoint / ours", "torchsde adjoint", "ours, sde-bnn", least=2.2)
        yield row("torchdiffeq / ours without noise", "torchdiffeq", "ours, none")


def steps_of(name: str) -> int:
    """Solver steps of a block of the paper."""
    return block(SHAPES[name]).grid.steps


def contenders(name: str, batch: int, cuts: tuple[str, ...], *, others: bool) -> dict[str, Callable[[], None]]:
    """The functions that are timed, by name."""
    shape = SHAPES[name]
    h0, deep, net = images(shape, batch), block(shape), floor_of(shape)
    steps, joint = deep.grid.steps, Joint(deep, h0)
    runs: dict[str, Callable[[], None]] = {"floor": partial(floor, net, h0, steps)}
    runs |= {f"ours, {cut}": partial(ours, block(shape, cut), h0) for cut in cuts}
    runs["ours, sde-bnn, compiled"] = partial(ours, block(shape, compile=True), h0)
    runs["torchsde"] = partial(torchsde_way, joint, h0, steps)
    runs["torchsde, channels last"] = partial(torchsde_way, Joint(deep, h0, last=True), h0, steps)
    if others:
        runs["torchsde adjoint"] = partial(torchsde_way, joint, h0, steps, adjoint=True)
        runs["torchdiffeq"] = partial(torchdiffeq_way, joint, h0, steps)
    return runs
