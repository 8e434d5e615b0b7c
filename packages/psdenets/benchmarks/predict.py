"""Time of predictions with many weight samples, compared with the same number of separate passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torchsde
from contenders import SHAPES, Joint, block, images, length
from rows import Row
from timing import fastest, interleaved, median, ratio

from psdenets import build, preset
from psdenets.models.base import ImageClassifier
from sdeweights import flow

ONE_BLOCK = "mnist-ode-first"
WHOLE_DEPTH = "cifar10-ode-first"


def measure(*, quick: bool) -> Iterator[Row]:
    """S = 10 and S = 100, one block and the network of three scales; a loop over samples and `torch.vmap`."""
    rounds = 1 if quick else 3
    model = build(preset(ONE_BLOCK))
    yield from against_passes(
        "mnist, ODE-first r = 0.1, batch 32", model, 32, rounds, {10: 4.5, 100: 8.0}, torchsde=7.0
    )
    model = build(preset(WHOLE_DEPTH, scope="network"))
    yield from against_passes("cifar10 2-2-2, scope network, batch 8", model, 8, rounds, {10: 4.0, 100: 8.0})
    yield from loop_or_vmap(rounds)


def against_passes(
    where: str, model: ImageClassifier, batch: int, rounds: int, least: dict[int, float], torchsde: float | None = None
) -> Iterator[Row]:
    """One prediction with S samples compared with S predictions with one sample."""
    spec = model.spec
    x = torch.rand(batch, spec.channels, spec.height, spec.width, generator=seeded(0))
    runs: dict[str, Callable[[], object]] = {
        f"S = {s}": partial(model.predict_proba, x, samples=s, generator=seeded(1)) for s in least
    }
    runs["ten passes"] = lambda: [model.predict_proba(x, samples=1, generator=seeded(i)) for i in range(10)]
    if torchsde is not None:
        runs["ten passes of torchsde"] = ten_passes_of_torchsde(batch)
    order = ["S = 10", "ten passes", "S = 100", "ten passes of torchsde", "S = 10"]
    times = interleaved(runs, rounds, [who for who in order if who in runs])
    for who in runs:
        yield Row("prediction", where, f"{who}: median", median(times, who), "s")
    for s, bound in least.items():
        figure, best = (s / 10 * of(times, "ten passes", f"S = {s}") for of in (ratio, fastest))
        yield Row("prediction", where, f"{s} separate passes / S = {s}", figure, "x", least=bound, fastest=best)
    if torchsde is not None:
        figure, best = (of(times, "ten passes of torchsde", "S = 10") for of in (ratio, fastest))
        what = "ten passes of torchsde / S = 10"
        yield Row("prediction", where, what, figure, "x", least=torchsde, fastest=best)


def ten_passes_of_torchsde(batch: int) -> Callable[[], None]:
    """The joint state (h, w, kl), ten times."""
    shape = SHAPES["mnist"]
    h0, deep = images(shape, batch), block(shape, "ode-first")
    joint, ts = Joint(deep, h0), torch.tensor([0.0, 1.0])

    @torch.no_grad()
    def run() -> None:
        for _ in range(10):
            torchsde.sdeint(joint, joint.start(h0), ts, method="euler", dt=length(deep.grid.steps))

    return run


def loop_or_vmap(rounds: int) -> Iterator[Row]:
    """Ten samples by `torch.vmap`, which turns them into grouped convolutions, compared with a loop."""
    shape = SHAPES["mnist"]
    deep = block(shape, steps=6)
    path = deep.draw(10, seeded(0))
    for batch in (1, 32):
        h0 = images(shape, batch)

        def integrate(h0: torch.Tensor, vectorize: bool) -> None:
            with torch.no_grad():
                flow(deep.f_h, h0, path, per_sample=False, vectorize=vectorize)

        times = interleaved({"loop": partial(integrate, h0, False), "vmap": partial(integrate, h0, True)}, rounds)
        where = f"mnist, ten samples, 6 steps, batch {batch}"
        yield Row("prediction", where, "vmap over samples / loop over samples", ratio(times, "vmap", "loop"), "x")


def seeded(seed: int) -> torch.Generator:
    """A generator with this seed."""
    return torch.Generator().manual_seed(seed)
