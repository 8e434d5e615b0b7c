"""Start-up time of commands in excess of `import torch`: new processes that take turns."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

from rows import Row
from timing import interleaved, median


def measure(*, quick: bool) -> Iterator[Row]:
    """`import psdenets` and `--help`."""
    commands = {
        "import torch": ["-c", "import torch"],
        "import psdenets": ["-c", "import torch, psdenets"],
        "psdenets.train --help": ["-m", "psdenets.train", "--help"],
    }
    runs = {name: partial(run, words) for name, words in commands.items()}
    times = interleaved(runs, 1 if quick else 7, clock=time.perf_counter)
    for name in commands:
        yield Row("start", "new processes", f"{name}: median", median(times, name), "s")
    for name, most in (("import psdenets", 0.7), ("psdenets.train --help", 1.0)):
        beyond = median(times, name) - median(times, "import torch")
        yield Row("start", "new processes", f"{name}, beyond import torch", beyond, "s", most=None if quick else most)


def run(words: list[str]) -> None:
    """One process; its output is discarded."""
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
