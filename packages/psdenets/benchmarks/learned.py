"""Time of a training step of the networks with learned features, compared with its convolutions and nothing else.

The convolutions are recorded in a step, with the shapes, strides and gradients that they have there, and then run with
constant inputs and kernels: no weight process, activation, pooling, normalisation, head or optimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from rows import Row
from timing import fastest, interleaved, median, ratio
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from psdenets import build, preset
from psdenets.training.step import TrainingStep

PRESETS = ("cifar10-cpu-none", "cifar10-cpu-sde-bnn", "mnist-cpu-none")


class Call(NamedTuple):
    """A convolution; its input and its kernel require a gradient if they did in the step."""

    x: Tensor
    kernel: Tensor
    stride: list[int]
    padding: list[int]


class Recorder(TorchDispatchMode):
    """Notes convolutions, and which gradients their backward passes compute, from last to first."""

    def __init__(self) -> None:
        super().__init__()
        self.forward: list[tuple[Any, ...]] = []
        self.backward: list[tuple[bool, bool]] = []

    def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if f is torch.ops.aten.convolution.default:
            self.forward.append(args)
        elif f is torch.ops.aten.convolution_backward.default:
            self.backward.append(tuple(args[-1][:2]))
        return f(*args, **(kwargs or {}))


def measure(*, quick: bool) -> Iterator[Row]:
    """Training steps of some presets with one weight sample, and ten weight samples of the ODE-first network."""
    rounds, batch = (1, 20) if quick else (10, 250)
    for name in PRESETS:
        step = a_step(name, batch)
        with Recorder() as recorder:
            step()
        times = interleaved({"step": step, "convolutions": convolutions(recorder)}, rounds)
        where = f"{name}, one weight sample, batch {batch}"
        yield Row("learned features", where, "step: median", median(times, "step"), "s")
        figures = {of: of(times, "step", "convolutions") for of in (ratio, fastest)}
        what = "step / its convolutions alone"
        yield Row("learned features", where, what, figures[ratio], "x", most=1.15, fastest=figures[fastest])
    yield from ten_samples("cifar10-cpu-ode-first", batch, rounds)


def a_step(name: str, batch: int) -> Callable[[], None]:
    """A training step of the network of a preset, on random images."""
    model = build(preset(name))
    spec, g = model.spec, torch.Generator().manual_seed(0)
    x = torch.rand(batch, spec.channels, spec.height, spec.width, generator=g)
    y = torch.randint(len(spec.classes), (batch,), generator=g)
    losses = TrainingStep(model, model.likelihood, 45_000)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        losses(x, y, g, 1e-3).loss.backward()
        optimizer.step()

    step()
    return step


def convolutions(recorder: Recorder) -> Callable[[], None]:
    """The recorded convolutions, forward and backward."""
    fixed = len(recorder.forward) - len(recorder.backward)  # the first ones have no gradient
    masks = [(False, False)] * fixed + recorder.backward[::-1]
    calls = [_call(*args[:2], args[3], args[4], mask) for args, mask in zip(recorder.forward, masks, strict=True)]

    def run() -> None:
        for call in calls:
            out = torch.conv2d(call.x, call.kernel, None, call.stride, call.padding)
            wanted = [t for t in (call.x, call.kernel) if t.requires_grad]
            if wanted:
                torch.autograd.grad(out, wanted, torch.ones_like(out))

    return run


def _call(x: Tensor, kernel: Tensor, stride: list[int], padding: list[int], mask: tuple[bool, bool]) -> Call:
    x, kernel = (
        torch.randn(t.shape).to(t.dtype).contiguous(memory_format=torch.channels_last).requires_grad_(needed)
        for t, needed in zip((x, kernel), mask, strict=True)
    )
    return Call(x, kernel, stride, padding)


def ten_samples(name: str, batch: int, rounds: int) -> Iterator[Row]:
    """A prediction with ten weight samples compared with one; drawing and measuring them is not counted."""
    model = build(preset(name)).eval().requires_grad_(False)
    spec = model.spec
    x = torch.rand(batch, spec.channels, spec.height, spec.width, generator=torch.Generator().manual_seed(0))
    one, ten = (model.draw(s, torch.Generator().manual_seed(1)) for s in (1, 10))

    def predict(weights: Any) -> Callable[[], object]:
        return lambda: model.rest(model.shared(x, weights), weights)

    times = interleaved({"one": predict(one), "ten": predict(ten)}, rounds)
    figure, best = (of(times, "ten", "one") for of in (ratio, fastest))
    where = f"{name}, batch {batch}"
    yield Row("learned features", where, "ten weight samples / one", figure, "x", most=3.0, fastest=best)
