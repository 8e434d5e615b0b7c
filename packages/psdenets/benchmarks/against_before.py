"""Time of a training step in this clone relative to an older one, for example `git worktree add ../before COMMIT`.

    python against_before.py ../before [--rounds 20] [--only digits mnist cifar10]

Each clone gets a worker process of one thread, which builds its networks once and waits. In every round both workers
take the same steps one after the other, in alternating order. The figures are CPU seconds per step of the old clone,
the median over rounds of new / old, and the ratio of the fastest rounds.

Only the public interface is used (`build`, `preset`, `Config`, model(x) -> logits, kl), so that clones of different
structure can be compared. A step is: sample the weights, forward, backward, Adam.
"""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

HERE = Path(__file__).parents[3]
PACKAGES = ("sdeweights", "psdenets", "bnneval", "theory")
ALLOCATORS = ("psdenets.training.allocator", "psdenets.allocator")  # now and before


class Workload(NamedTuple):
    """A network, its images, and the number of steps that are timed at once."""

    preset: str  # the default config if a clone does not have the preset
    changes: dict[str, object]
    channels: int
    side: int
    batch: int
    steps: int


WORKLOADS = {
    "digits": Workload("digits-strided", {"hidden_method": "euler"}, 1, 8, 64, 20),
    "mnist": Workload("mnist-ode-first", {"steps": 6}, 1, 28, 128, 2),
    # one block of the second stage: 12 channels of 16 x 16 pixels
    "cifar10": Workload("cifar10-sde-bnn", {"blocks": "1", "squeeze_input": 1, "steps": 4}, 3, 32, 32, 2),
}


def main() -> None:
    """Measure and print one line per workload; with --worker, serve measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="the older clone")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS))
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        serve({name: training_step(WORKLOADS[name]) for name in args.only})
        return
    if not (args.before / "packages" / "psdenets" / "src").is_dir():
        parser.error(f"expected a clone with packages/psdenets/src, got {args.before}")
    before, now = (Worker(tree, args.only) for tree in (args.before.resolve(), HERE))
    for name in args.only:
        before.seconds(name), now.seconds(name)  # warm up
        print(compared(name, before, now, args.rounds), flush=True)
    before.stop()
    now.stop()


def compared(name: str, before: Worker, now: Worker, rounds: int) -> str:
    """One line of the table."""
    times: list[tuple[float, float]] = []
    for k in range(rounds):
        if k % 2:
            second = now.seconds(name)
            times.append((before.seconds(name), second))
        else:
            times.append((before.seconds(name), now.seconds(name)))
    ratio = statistics.median(b / a for a, b in times)
    best = min(b for _, b in times) / min(a for a, _ in times)
    before_ms = 1e3 * statistics.median(a for a, _ in times)
    return f"{name:<10} before {before_ms:8.2f} ms per step   now / before: median {ratio:.3f}, fastest {best:.3f}"


class Worker:
    """A process that times steps of the networks of one clone."""

    def __init__(self, tree: Path, names: list[str]) -> None:
        sources = os.pathsep.join(str(tree / "packages" / package / "src") for package in PACKAGES)
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(tree), "--worker", "--only", *names],
            env={**os.environ, "PYTHONPATH": sources, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tree,
        )  # fmt: skip

    def seconds(self, name: str) -> float:
        """CPU seconds per step."""
        print(name, file=_opened(self.process.stdin), flush=True)
        return float(_opened(self.process.stdout).readline())

    def stop(self) -> None:
        """End the process."""
        _opened(self.process.stdin).close()
        self.process.wait()


def _opened(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise RuntimeError("expected a pipe to the worker, got None")
    return stream


def serve(steps: dict[str, Callable[[], None]]) -> None:
    """Answer every name on stdin with the CPU seconds per step of that workload."""
    for line in sys.stdin:
        name = line.strip()
        count = WORKLOADS[name].steps
        started = time.process_time()
        for _ in range(count):
            steps[name]()
        print((time.process_time() - started) / count, flush=True)


def training_step(workload: Workload) -> Callable[[], None]:
    """A function that takes one training step on random images."""
    import torch
    from torch.nn import functional as F

    from psdenets import PRESETS, Config, build, preset

    torch.set_num_threads(1)
    _keep_freed_memory()
    known = workload.preset in PRESETS
    model = build(preset(workload.preset, **workload.changes) if known else Config())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    g = torch.Generator().manual_seed(0)
    x = torch.rand(workload.batch, workload.channels, workload.side, workload.side, generator=g)
    labels = torch.randint(10, (workload.batch,), generator=g)

    def step() -> None:
        optimizer.zero_grad()
        logits, kl = model(x, g)
        (F.cross_entropy(logits, labels) + 1e-5 * kl).backward()
        optimizer.step()

    return step


def _keep_freed_memory() -> None:
    """Configure the allocator as training does. The module has been moved, so both names are tried."""
    for name in ALLOCATORS:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        module.keep_freed_memory()
        return
    raise RuntimeError(f"expected one of {', '.join(ALLOCATORS)} in this clone, got neither")


if __name__ == "__main__":
    main()
