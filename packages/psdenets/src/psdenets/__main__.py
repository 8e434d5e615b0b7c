"""`psdenets COMMAND ...`, the same as `python -m psdenets.COMMAND ...`; without a command it lists the commands."""

import sys
from collections.abc import Sequence
from importlib import import_module

from psdenets.errors import did_you_mean

COMMANDS = {
    "train": "train a classifier and write a run directory",
    "evaluate": "evaluate a finished run on test, out-of-distribution or corrupted images",
    "predict": "class, probability and entropy of pictures",
    "verify": "check the files of a run against the checksums recorded when they were written",
}
_ROWS = "\n".join(f"  {name:<10} {about}" for name, about in COMMANDS.items())
_HELP = f"""usage: psdenets COMMAND ...    (or: python -m psdenets.COMMAND ...)

Image classifiers of infinite depth whose weights are partially stochastic.

commands:
{_ROWS}

psdenets COMMAND --help lists the flags of a command.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; 2 for an unknown command."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        sys.stdout.write(_HELP)
        return 0
    if name not in COMMANDS:
        hint = did_you_mean(name, COMMANDS)
        sys.stderr.write(f"psdenets: error: expected one of {', '.join(COMMANDS)}, got {name}{hint}\n")
        return 2
    status: int = import_module(f"psdenets.{name}").main(arguments[1:])
    return status


if __name__ == "__main__":
    sys.exit(main())
