"""Peak memory of a training step: every figure is the highest resident size of a separate process, read from Linux.

glibc is configured to return large tensors as soon as they are freed, so that peaks are those of tensors, not of its
heap.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rows import Row

if TYPE_CHECKING:
    from torch import Tensor

GIGABYTE = 1e9
LIMIT = 2 * GIGABYTE
NAMES = {"pieces": "ours, pieces as in training", "ours": "ours, batch in one piece", "torchsde": "torchsde"}
GRADIENTS = (("backprop", "euler"), ("checkpoint", "euler"), ("adjoint", "reversible_heun"))


def measure(*, quick: bool) -> Iterator[Row]:
    """Memory compared with torchsde, and as a function of the steps; the largest batch that fits in 2 GB."""
    for shape in ("mnist", "cifar10-1"):
        batch = 4 if quick else 128
        where = f"{shape}, batch {batch}, the paper's steps"
        used = {who: peak(who, shape, batch) for who in ("pieces", "ours", "torchsde")}
        for who, number in used.items():
            yield Row("memory", where, NAMES[who], number / GIGABYTE, "GB")
        bound = None if quick else 0.6
        yield Row("memory", where, "ours / torchsde", used["pieces"] / used["torchsde"], "x", most=bound)
        yield Row("memory", where, "ours, batch in one piece / torchsde", used["ours"] / used["torchsde"], "x")
    yield from against_steps((6, 12) if quick else (30, 240), 4 if quick else 128, bound=None if quick else 1.3)
    for scope in ("block", "network"):
        yield prediction(scope, samples=2 if quick else 100, most=None if quick else 4.0)
    for shape in ("mnist", "cifar10-1"):
        for gradient, method in GRADIENTS:
            yield largest_batch(shape, gradient, method, (4, 8) if quick else (16, 48))


def against_steps(steps: tuple[int, ...], batch: int, bound: float | None) -> Iterator[Row]:
    """Memory of the whole process, PyTorch included. The weight path has one point per step, so it grows."""
    for gradient, method in GRADIENTS:
        images = batch // 4 if gradient == "backprop" else batch
        where = f"mnist, batch {images}, {gradient} with {method}, whole process"
        used = {n: peak("ours", "mnist", images, n, gradient, method, whole=True) for n in steps}
        for n, number in used.items():
            yield Row("memory", where, f"{n} steps", number / GIGABYTE, "GB")
        most = bound if gradient == "adjoint" else None
        figure = used[steps[-1]] / used[steps[0]]
        yield Row("memory", where, f"{steps[-1]} steps / {steps[0]} steps", figure, "x", most=most)


def prediction(scope: str, samples: int, most: float | None) -> Row:
    """A prediction with many samples on the network of three scales."""
    where = f"cifar10 2-2-2, ODE-first, scope {scope}, prediction of 8 images, whole process"
    number = in_another_process(["predict", scope, "8", str(samples), "-", "-"])[1]
    return Row("memory", where, f"S = {samples}", number / GIGABYTE, "GB", most=most)


def largest_batch(shape: str, gradient: str, method: str, batches: tuple[int, int]) -> Row:
    """The batch size at which the whole process, PyTorch included, reaches 2 GB: peaks are linear in the batch size."""
    small, large = (peak("ours", shape, b, None, gradient, method, whole=True) for b in batches)
    slope = (large - small) / (batches[1] - batches[0])
    batch = int(batches[0] + (LIMIT - small) / slope)
    where = f"{shape}, the paper's steps, {gradient} with {method}"
    return Row("memory", where, "largest batch in 2 GB, in one piece", batch, "images")


def peak(
    who: str,
    shape: str,
    batch: int,
    steps: int | None = None,
    gradient: str = "backprop",
    method: str = "euler",
    *,
    whole: bool = False,
) -> float:
    """Bytes that a training step adds to the process, or bytes of the whole process."""
    before, highest = in_another_process([who, shape, str(batch), str(steps or 0), gradient, method])
    return highest if whole else highest - before


def in_another_process(words: list[str]) -> tuple[float, float]:
    """Resident sizes before the step and at the highest point."""
    env = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**16), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=True, env=env)
    before, highest = (float(word) for word in done.stdout.split())
    return before, highest


def predict_in_this_process(scope: str, batch: int, samples: int) -> None:
    """Print the resident sizes before the prediction and at the highest point."""
    import torch

    from psdenets import build, preset

    model = build(preset("cifar10-ode-first", scope=scope))
    before = status("VmRSS")
    x = torch.rand(batch, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model.predict_proba(x, samples=samples, generator=torch.Generator().manual_seed(1))
    print(before, status("VmHWM"))


def in_this_process(who: str, shape_name: str, batch: int, steps: int, gradient: str, method: str) -> None:
    """Print the resident sizes before the step and at the highest point."""
    from contenders import SHAPES, Joint, block, images, ours, ours_in_pieces, torchsde_way

    from psdenets import ImageSpec, preset
    from psdenets.training.micro_batches import kept_by_an_image, size_for

    shape = SHAPES[shape_name]
    changes = {"gradient": gradient, "hidden_method": method, **({"steps": steps} if steps else {})}
    deep = block(shape, **changes)
    zeros, ones = (0.0,) * shape.channels, (1.0,) * shape.channels
    spec = ImageSpec(shape.channels, shape.side, shape.side, tuple("0123456789"), zeros, ones)
    kept = kept_by_an_image(preset(shape.preset.format(cut="sde-bnn"), blocks="1"), spec)

    def run(h0: Tensor) -> None:
        if who == "ours":
            ours(deep, h0)
        elif who == "pieces":
            ours_in_pieces(deep, h0, size_for(batch, kept))
        else:
            torchsde_way(Joint(deep, h0), h0, deep.grid.steps)

    run(images(shape, 1))  # libraries load kernels at the first convolution
    Path("/proc/self/clear_refs").write_text("5")  # resets the highest size
    before = status("VmRSS")
    run(images(shape, batch))
    print(before, status("VmHWM"))


def status(name: str) -> int:
    """A size of this process in bytes. (`getrusage` would include the parent process before the start.)"""
    text = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for word in ("who", "shape", "batch", "steps", "gradient", "method"):
        parser.add_argument(word, type=int if word in ("batch", "steps") else str)
    given = parser.parse_args()
    if given.who == "predict":
        predict_in_this_process(given.shape, given.batch, given.steps)
    else:
        in_this_process(given.who, given.shape, given.batch, given.steps, given.gradient, given.method)
