"""Count how often execution changes file: a measure of how hard one operation is to follow in the source.

    python trace_files.py [--json]      prints the counts and their bounds; exit status 1 if a bound is exceeded

`sys.setprofile` reports every call and return of a Python function. A call makes the callee's file the current one, a
return the caller's. Only files of the four packages count: a function of another library belongs to the file that
called it. Every change of the current file counts one, and entering the first file counts one. Each operation runs once
before it is counted, so that imports and caches are not part of the count.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from PIL import Image

import psdenets
import sdeweights
from psdenets import predict, preset, train
from psdenets.data import load_splits
from psdenets.training.loop import Trainer

PACKAGES = ("sdeweights", "psdenets", "bnneval", "theory")
BOUNDS = {"training step": 250, "psdenets.load": 250, "prediction": 200, "WeightProcess.sample": 80}
STEPS = 4


def main() -> int:
    """Exit status: 0 if all bounds hold, 1 if not."""
    with tempfile.TemporaryDirectory() as folder:
        operations = {
            "training step": training_step(),
            **prediction(Path(folder)),
            "WeightProcess.sample": weight_path(),
        }
        counts = {name: changes_of_file(operation) for name, operation in operations.items()}
    if "--json" in sys.argv[1:]:
        print(json.dumps({name: (count, BOUNDS[name]) for name, count in counts.items()}))
    else:
        for name, count in counts.items():
            verdict = "" if count <= BOUNDS[name] else "   EXCEEDED"
            print(f"{name:<22} {count:4d} changes of file, at most {BOUNDS[name]}{verdict}")
    return int(any(count > BOUNDS[name] for name, count in counts.items()))


def training_step() -> Callable[[], object]:
    """One step of the paper's network on 64 handwritten digits, with 4 solver steps."""
    config = preset("digits-strided", steps=STEPS)
    return Trainer(config, load_splits(config), torch.device("cpu")).step


def prediction(folder: Path) -> dict[str, Callable[[], object]]:
    """Load a run, and predict one picture with three weight samples, by the paper's network with 4 Euler steps.

    `psdenets.predict` does the one after the other.
    """
    run, picture = folder / "run", folder / "picture.png"
    Image.new("L", (8, 8), 128).save(picture)
    size = "--preset digits-strided --epochs 1 --limit-train 64 --limit-test 10 --hidden-method euler"
    _quietly(lambda: train.main(["--out", str(run), "--steps", str(STEPS), *size.split()]))
    model = psdenets.load(run)

    def predicted() -> list[dict[str, Any]]:
        known = predict.familiar(run)
        return list(predict.classify(model, [picture], 3, 0, known, predict.Failures([])))

    return {"psdenets.load": lambda: psdenets.load(run), "prediction": predicted}


def weight_path() -> Callable[[], object]:
    """A weight path with a horizontal cut and 6 steps, by the solvers that training uses."""
    cut, prior = sdeweights.Cut.horizontal(0.5), sdeweights.OrnsteinUhlenbeck()
    net = sdeweights.bottleneck(10, cut, "1-4-1", "1-4-1", generator=torch.Generator().manual_seed(0))
    process = sdeweights.WeightProcess(torch.zeros(10), sdeweights.PriorPlus(prior, net), prior, cut)
    return lambda: process.sample(6, solver="fused-euler", ode_solver="fused-euler")


def changes_of_file(operation: Callable[[], object]) -> int:
    """Changes of file in the second run of an operation."""
    operation()
    counter = Counter()
    sys.setprofile(counter)
    try:
        operation()
    finally:
        sys.setprofile(None)
    return counter.changes


class Counter:
    """A profile function that counts changes of file, see the module's docstring."""

    def __init__(self) -> None:
        self.changes = 0
        self._current: str | None = None

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Called by Python for every call and return."""
        if event not in ("call", "return") or not _counts(frame.f_code.co_filename):
            return
        here: FrameType | None = frame if event == "call" else frame.f_back
        while here is not None and not _counts(here.f_code.co_filename):
            here = here.f_back
        if here is not None and here.f_code.co_filename != self._current:
            self._current = here.f_code.co_filename
            self.changes += 1


@cache
def _roots() -> tuple[str, ...]:
    specs = [spec for name in PACKAGES if (spec := find_spec(name)) and spec.origin]
    return tuple(str(Path(str(spec.origin)).parent) + os.sep for spec in specs)


@cache
def _counts(file: str) -> bool:
    return file.startswith(_roots())


def _quietly(command: Callable[[], int]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        status = command()
    if status != 0:
        raise RuntimeError(f"expected exit status 0, got {status}")


if __name__ == "__main__":
    sys.exit(main())
