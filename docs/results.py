"""Train, evaluate and record the runs of RESULTS.md, and write the page from results.json.

    python docs/results.py                                                        only write RESULTS.md
    python docs/results.py --train NAME... --data-root DIR --runs DIR             train, evaluate and record these runs
    python docs/results.py --record DIR...                                        record existing run directories

NAME is ROW-seedK, or ROW for seed 0, and is also the name of the run directory. Training resumes an interrupted run and
skips what is finished. Each run is recorded in results.json as soon as it is evaluated.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from measured.page import page
from measured.record import note_origin, read, record
from measured.rows import ROWS, Run, run_of
from psdenets import cli
from psdenets.errors import BadInput
from psdenets.runs.files import write_text

HERE = Path(__file__).parent


def main(argv: Sequence[str] | None = None, folder: Path = HERE) -> int:
    """Run the command and return its exit status: 0 done, 2 bad input."""
    return cli.run("results.py", lambda given: _main(given, folder), argv)


def _parser() -> argparse.ArgumentParser:
    parser = cli.OneLineParser(
        description=__doc__,
        epilog=f"rows: {', '.join(ROWS)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--train", nargs="+", metavar="NAME", default=[], help="runs to train, evaluate and record")
    parser.add_argument("--record", nargs="+", metavar="DIR", type=Path, default=[], help="run directories to record")
    parser.add_argument("--runs", type=Path, default=Path("runs/results"), help="directory for the run directories")
    parser.add_argument("--data-root", default="data", help="directory containing the data sets")
    parser.add_argument("--threads", type=int, help="CPU threads of training")
    return parser


def _main(argv: Sequence[str], folder: Path) -> int:
    args = _parser().parse_args(argv)
    file = folder / "results.json"
    runs = [run_of(name) for name in args.train]
    for found in args.record:
        run_of(found.resolve().name)  # refuse an unknown name before any work
    for run in runs:
        train(run, args.runs, args.data_root, args.threads)
        record(args.runs.resolve() / run.name, file)
    for found in args.record:
        record(found.resolve(), file)
    write_text(folder / "RESULTS.md", page(read(file)))
    return 0


def train(run: Run, runs: Path, data_root: str, threads: int | None) -> None:
    """Train or resume the run and evaluate it on its OOD sets, unless that is done."""
    folder = runs / run.name
    if not (folder / "metrics.json").exists():
        note_origin(folder)
    flags = [*shlex.split(run.flags(runs)), "--data-root", data_root, "--out", str(folder), "--resume"]
    call("psdenets.train", *flags, *([] if threads is None else ["--threads", str(threads)]))
    for ood in run.ood:
        out = folder / f"ood-{ood}"
        if not (out / "metrics.json").exists():
            call("psdenets.evaluate", str(folder), "--ood", ood, "--out", str(out), "--data-root", data_root)


def call(module: str, *args: str) -> None:
    """Run `python -m MODULE ARGS`; raise BadInput if it fails."""
    status = subprocess.run([sys.executable, "-m", module, *args], check=False).returncode
    if status:
        raise BadInput(f"exit status {status} of python -m {module} {shlex.join(args)}")


if __name__ == "__main__":
    sys.exit(main())
