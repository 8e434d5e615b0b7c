"""The one error the user can fix: commands print it on one line and exit with status 2."""

from collections.abc import Iterable
from difflib import get_close_matches


class BadInput(ValueError):
    """An unusable flag, file or data set; the message says what was expected and what was given."""


def did_you_mean(name: str, known: Iterable[str], n: int = 1, cutoff: float = 0.6) -> str:
    """The end of a message about an unknown name: "; did you mean width?", or nothing if no known name is similar."""
    near = get_close_matches(name, list(known), n, cutoff)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def printable(text: str) -> str:
    r"""Text for a terminal: characters that would control it, such as those of a file's name, are escaped.

    Example:
        >>> print(printable("a\x1b[31m.png"))
        a\x1b[31m.png
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Interrupted(KeyboardInterrupt):
    """Training was interrupted by a signal, after a checkpoint; the message says how to resume."""

    def __init__(self, message: str, number: int = 2) -> None:
        super().__init__(message)
        self.number = number

    @property
    def status(self) -> int:
        """The exit status of a command that was ended by this signal: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + self.number
