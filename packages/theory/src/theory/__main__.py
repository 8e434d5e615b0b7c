"""`python -m theory`: check the claims of the paper; exit status 1 if one fails, 2 for invalid arguments."""

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from theory import pages, report


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the claims, print the table, write the requested files and return the exit status."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)  # the tensors are too small for threads to help
    outcomes = report.check(options.claims or report.CLAIMS, options.seed)
    sys.stdout.write(report.table(outcomes, shutil.get_terminal_size((120, 40)).columns) + "\n")
    for outcome in outcomes:
        sys.stderr.write(outcome.error)
    if options.json:
        options.json.write_text(report.as_json(outcomes, options.seed) + "\n", encoding="utf-8")
    if options.figures:
        from theory.figures import draw_all  # matplotlib takes a second to import, and most runs draw nothing

        for path in draw_all(options.figures, options.seed):
            sys.stdout.write(f"wrote {path}\n")
    if options.page:
        text = options.page.read_text(encoding="utf-8")
        options.page.write_text(pages.updated(text, [outcome.name for outcome in outcomes], options.seed), "utf-8")
    return report.status(outcomes)


class _OneLineParser(argparse.ArgumentParser):
    """A parser that reports an error in one line, without the usage."""

    def error(self, message: str) -> None:  # type: ignore[override]
        """Exit with status 2."""
        self.exit(2, f"python -m theory: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(prog="python -m theory", description="Check the claims of the paper, one line each.")
    parser.add_argument(
        "--claims", nargs="+", metavar="NAME", choices=list(report.CLAIMS), help="check only these claims: %(choices)s"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    parser.add_argument("--json", type=_file_to_write, metavar="FILE", help="also write the table as JSON")
    parser.add_argument("--page", type=_page, metavar="FILE", help="also update the tables of docs/THEORY.md")
    parser.add_argument("--figures", type=_directory, metavar="DIR", help="also draw the figures into this directory")
    return parser


def _file_to_write(name: str) -> Path:
    path = Path(name)
    if path.is_dir() or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file in an existing directory, got {name}")
    return path


def _page(name: str) -> Path:
    path = Path(name)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"expected an existing page, got {name}")
    return path


def _directory(name: str) -> Path:
    path = Path(name)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a directory, got the file {name}")
    return path


if __name__ == "__main__":
    sys.exit(main())
