"""Time of a training step against the floor and against other libraries, for the blocks of the paper.

python bench_step.py [--shapes mnist cifar10-1] [--batch 32] [--rounds 5] [--threads 1] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import torch
from contenders import SHAPES, Joint, block, floor, floor_of, images, ours, torchdiffeq_way, torchsde_way
from timing import interleaved, median, ratio

CUTS = ("sde-bnn", "none", "ode-first", "sde-first", "fix-w2", "horizontal", "both")


def measure(name: str, batch: int, rounds: int, cuts: tuple[str, ...] = CUTS) -> dict[str, Any]:
    """Median seconds of every contender at one shape, and ratios to the floor."""
    shape = SHAPES[name]
    h0, deep, net = images(shape, batch), block(shape), floor_of(shape)
    steps, joint = deep.grid.steps, Joint(deep, h0)
    contenders = {"floor": partial(floor, net, h0, steps)}
    contenders |= {f"ours, {cut}": partial(ours, block(shape, cut), h0) for cut in cuts}
    contenders |= {
        "torchsde": partial(torchsde_way, joint, h0, steps),
        "torchsde adjoint": partial(torchsde_way, joint, h0, steps, adjoint=True),
        "torchdiffeq": partial(torchdiffeq_way, joint, h0, steps),
    }
    times = interleaved(contenders, rounds)
    return {
        "shape": name,
        "batch": batch,
        "steps": steps,
        "threads": torch.get_num_threads(),
        "seconds": {who: median(times, who) for who in times},
        "to_floor": {who: ratio(times, who, "floor") for who in times},
    }


def table(result: dict[str, Any]) -> str:
    """One line a contender."""
    head = "{shape}, batch {batch}, {steps} steps, {threads} thread(s)".format(**result)
    lines = [
        f"  {who:<20} {result['seconds'][who]:7.2f} s   {result['to_floor'][who]:5.2f} x floor"
        for who in result["seconds"]
    ]
    return "\n".join([head, *lines])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["mnist", "cifar10-1"])
    parser.add_argument("--batch", type=int, nargs="+", default=[32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results = []
    for name in args.shapes:
        for batch in args.batch:
            results.append(measure(name, batch, args.rounds))
            print(table(results[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
