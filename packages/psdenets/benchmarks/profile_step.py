"""Where the time of a training step goes, by PyTorch's profiler: milliseconds per solver step and kind of operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from contenders import SHAPES, block, floor, floor_of, images, ours
from rows import Row
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile

KINDS = {
    "weight process": ("_Steps", "_StepsBackward", "aten::normal_"),
    "convolutions, backward": ("aten::convolution_backward", "_ToThinBackward", "_ToWideBackward"),
    "convolutions, forward": ("aten::conv2d", "aten::conv_transpose2d", "_ToThin", "_ToWide"),
    "activations and time maps": (
        "aten::softplus",
        "aten::softplus_backward",
        "_Softplus",
        "_SoftplusBackward",
        "_Add",
        "_AddBackward",
        "aten::matmul",
        "aten::bmm",
        "aten::mm",
        "aten::addmm",
    ),
}
REST = "everything else: additions, assembling gradients of weights, the graph"


def measure(*, quick: bool) -> Iterator[Row]:
    """Profiles of the floor and of our block."""
    for name in SHAPES:
        shape = SHAPES[name]
        h0, deep = images(shape, 4 if quick else 32), block(shape)
        steps = deep.grid.steps
        runs: dict[str, Callable[[], None]] = {
            "floor": partial(floor, floor_of(shape), h0, steps),
            "ours": partial(ours, deep, h0),
        }
        for who, run in runs.items():
            for kind, milliseconds in by_kind(run).items():
                yield Row("profile", f"{name}, batch {len(h0)}, {who}", kind, milliseconds / steps, "ms")


def by_kind(run: Callable[[], None]) -> dict[str, float]:
    """Self time of the third run, in milliseconds."""
    run()
    run()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    found = dict.fromkeys((*KINDS, REST), 0.0)
    for event in profiler.events():
        found[kind_of(event)] += event.self_cpu_time_total / 1e3
    return found


def kind_of(event: FunctionEvent) -> str:
    """The kind of the outermost caller of this operation that has a kind."""
    kind = REST
    caller: FunctionEvent | None = event
    while caller is not None:
        kind = next((kind for kind, names in KINDS.items() if caller.name in names), kind)
        caller = caller.cpu_parent
    return kind
