"""Speed and memory of psdenets compared with bare convolutions and other libraries: one JSON file and one table.

    python bench.py [--parts step learned noise predict memory scaling start profile] [--json FILE] [--quick]

Contenders take turns in one process, because clock rates and other load vary, and medians are compared. All of them
reuse freed memory (see psdenets.training.allocator); `--give-memory-back` measures the default behaviour of glibc.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path

import learned
import memory
import noise
import predict
import profile_step
import scaling
import start
import step
import torch

from psdenets.training.allocator import keep_freed_memory

PARTS = {
    "step": step,
    "learned": learned,
    "noise": noise,
    "predict": predict,
    "memory": memory,
    "scaling": scaling,
    "start": start,
    "profile": profile_step,
}


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file updated after every figure; other parts in it are kept")
    parser.add_argument("--quick", action="store_true", help="small batches, few rounds: check that everything runs")
    parser.add_argument("--give-memory-back", action="store_true", help="let glibc return freed memory to the system")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    if not args.give_memory_back:
        keep_freed_memory()
    for part in args.parts:
        rows, where = [], None
        for row in PARTS[part].measure(quick=args.quick):
            if row.where != where:
                print(f"{row.part}: {row.where}")
                where = row.where
            print(row.line(), flush=True)
            rows.append(row.as_dict())
            if args.json:
                write(args.json, part, rows, args.threads)


def write(path: Path, part: str, rows: list[dict[str, object]], threads: int) -> None:
    """Write one part of the file and keep the others."""
    found = json.loads(path.read_text()) if path.exists() else {}
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    path.write_text(json.dumps({**found, part: {"threads": threads, **versions, "rows": rows}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
