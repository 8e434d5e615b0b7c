"""The one error that is the user's to mend: it becomes one line and exit status 2."""

from __future__ import annotations


class BadInput(ValueError):
    """A flag, a file or a data set that cannot be used; the message says what was expected and what came."""
