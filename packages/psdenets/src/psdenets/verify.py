"""`python -m psdenets.verify RUN_DIR`: check the files of a run against the checksums of when they were written."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from psdenets import cli
from psdenets.errors import BadInput

if TYPE_CHECKING:
    from psdenets.runs.directory import RunDir


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0 all files are as written, 2 bad input or a damaged file."""
    return cli.run("psdenets.verify", _main, argv)


def _parser() -> argparse.ArgumentParser:
    parser = cli.OneLineParser(
        prog="python -m psdenets.verify",
        description="Check the files of a run, its checkpoints, chains and members against their checksums.",
    )
    parser.add_argument("run_dir", metavar="RUN_DIR", help="a run directory")
    parser.add_argument(
        "--record",
        action="store_true",
        help="record the checksums of the files as they are: accept files that you changed, or a run of an earlier "
        "version, which has no checksums",
    )
    return parser


def _main(argv: Sequence[str]) -> int:
    from psdenets.runs.directory import RunDir
    from psdenets.runs.lock import only_writer

    args = _parser().parse_args(argv)
    run = RunDir(Path(args.run_dir))
    if not run.holds_run:
        raise BadInput(f"expected a run directory with config.json, got {run.path}")
    runs = [run, *(RunDir(path.parent) for path in sorted(run.path.glob("members/*/config.json")))]
    if args.record:
        with only_writer(run.path):
            for each in runs:
                each.record()
    for each in runs:
        sys.stdout.write(_checked(each))
    return 0


def _checked(run: RunDir) -> str:
    """One line per directory; raises BadInput for the first file that is damaged, or if there are no checksums."""
    if run.folder.records() is None:
        raise BadInput(f"{run.path} was written by an earlier version, without checksums; --record adds them")
    found = [(folder.path, folder.verify(complete=run.finished)) for folder in run.folders()]
    return "".join(f"{path}: {len(names)} files are as they were written\n" for path, names in found)


if __name__ == "__main__":
    sys.exit(main())
