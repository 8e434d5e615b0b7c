"""The one error the user can fix: commands print it on one line and exit with status 2."""

from __future__ import annotations


class BadInput(ValueError):
    """An unusable flag, file or data set; the message says what was expected and what was given."""
