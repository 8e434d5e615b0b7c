"""Signals that ask a session to stop: it completes its step, saves a checkpoint and ends.

    Ctrl-C (SIGINT), SIGTERM, SIGHUP            a user, a supervisor or a closed terminal
    SIGUSR1, SIGXCPU                            a batch system that is about to end the job

Further signals are ignored while the checkpoint is written. Before that, a third Ctrl-C ends the session at once,
without a checkpoint; the one before it is intact.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from psdenets.errors import Interrupted

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGXCPU")
SIGNALS = tuple(getattr(signal, name) for name in _NAMES if hasattr(signal, name))
_PATIENCE = 3  # times that Ctrl-C is pressed before it ends a session at once


class Stopped(Exception):
    """The session was asked to stop."""


class Stop:
    """The signals that a session has received."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self._at_once = self._deaf = False

    def check(self) -> None:
        """Raise `Stopped` if the session was asked to stop."""
        if self.asked:
            raise Stopped

    def at_once(self) -> None:
        """From now on, raise `Stopped` as soon as a signal arrives, because there is nothing to save."""
        self._at_once = True
        self.check()

    def ignore_further(self) -> None:
        """Ignore all signals from now on, because a checkpoint is being written."""
        self._deaf = True

    def interrupted(self, message: str) -> Interrupted:
        """The exception that ends the session."""
        return Interrupted(message, self.asked[0] if self.asked else signal.SIGINT)

    def __call__(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        self.asked.append(number)
        if self._deaf:
            return
        if self._at_once and len(self.asked) == 1:
            raise Stopped
        if self.asked.count(signal.SIGINT) >= _PATIENCE:
            raise KeyboardInterrupt


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Context in which signals are collected instead of ending the process.

    Python delivers signals to the main thread, so in another thread no signal arrives.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, old in before.items():
            signal.signal(number, old)
