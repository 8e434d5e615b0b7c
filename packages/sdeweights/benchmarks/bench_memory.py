"""Peak memory of a training step against the number of steps, for the three gradient modes of `flow`.

Each point runs in a separate process and reports its peak resident size minus that of the same process after a single
step. The hidden state takes 8 MB and there are only three weights, so any growth comes from what the gradient mode
stores.

The processes run with MALLOC_MMAP_THRESHOLD_ set, which makes glibc return large tensors to the system when they are
freed. By default it keeps them on a heap that fragments; `--default-malloc` shows the memory that a process then uses.

    python bench_memory.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
from pathlib import Path

STEPS = (16, 32, 64, 128, 256)
CASES = (("backprop", "euler"), ("checkpoint", "euler"), ("adjoint", "reversible_heun"))
STATE_BYTES = 2_000_000 * 4


def measure(gradient: str, method: str, steps: int) -> float:
    """Peak memory of one forward and backward pass, minus the memory the process used before, in bytes."""
    import torch

    from sdeweights import Cut, OrnsteinUhlenbeck, WeightProcess, flow

    torch.set_num_threads(1)
    process = WeightProcess(torch.tensor([0.5, -0.5, 1.0]), lambda t, w: -w, OrnsteinUhlenbeck(sigma=0.1), Cut.full())
    h0 = torch.linspace(-1, 1, STATE_BYTES // 4).view(1000, -1)
    # take one step first, so buffers that every mode needs are not counted
    for n in (1, steps):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        path = process.sample(n, generator=torch.Generator().manual_seed(0))
        h1 = flow(lambda t, h, w: torch.tanh(h * w[0] + w[1]) * w[2], h0, path, method, gradient)
        h1.square().mean().backward()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


def slope(values: list[float]) -> float:
    """Least-squares slope of log memory against log steps."""
    x, y = [math.log(n) for n in STEPS], [math.log(max(v, 1.0)) for v in values]
    x0, y0 = sum(x) / len(x), sum(y) / len(y)
    return sum((a - x0) * (b - y0) for a, b in zip(x, y, strict=True)) / sum((a - x0) ** 2 for a in x)


def main() -> None:
    """Measure each case in a separate process and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--default-malloc", action="store_true", help="leave glibc's allocator as it is")
    parser.add_argument("--one", nargs=3, metavar=("GRADIENT", "METHOD", "STEPS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        gradient, method, steps = arguments.one
        print(measure(gradient, method, int(steps)))
        return
    environment = dict(os.environ)
    if not arguments.default_malloc:
        environment["MALLOC_MMAP_THRESHOLD_"] = str(2**20)
    rows = []
    print("peak memory of forward + backward above one step's, in hidden states of 8 MB\n")
    print(f"{'gradient':12}{'method':18}" + "".join(f"{n:>8}" for n in STEPS) + f"{'slope':>8}")
    for gradient, method in CASES:
        peaks = []
        for steps in STEPS:
            command = [sys.executable, __file__, "--one", gradient, method, str(steps)]
            done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
            peaks.append(float(done.stdout))
        states = [peak / STATE_BYTES for peak in peaks]
        rows.append({"gradient": gradient, "method": method, "steps": STEPS, "states": states, "slope": slope(peaks)})
        shown = "".join(f"{value:8.1f}" for value in states)
        print(f"{gradient:12}{method:18}{shown}{slope(peaks):8.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
