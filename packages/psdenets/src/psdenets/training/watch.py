"""What follows a training session: the display, callbacks, and the images if they were given from Python."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psdenets.data import Pool, load_splits
from psdenets.data.sets import splits_of
from psdenets.training.callbacks import Callback, Step, Training
from psdenets.training.display import Display, display_on

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.data import Splits
    from psdenets.runs.directory import RunDir
    from psdenets.training.loop import StepReport, Trainer


class CallbackFailed(Exception):
    """A callback raised `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class Watch:
    """What follows a session.

    Attributes:
        progress: "auto", "live", "bar", "lines" or "none", see `psdenets.training.display`.
        callbacks: called after every step and epoch.
        data: images to use instead of those of --dataset.
        resumes: the run directory to resume, if it is not that of the session: an ensemble resumes as a whole.
    """

    progress: str = "auto"
    callbacks: tuple[Callback, ...] = ()
    data: Pool | None = None
    resumes: Path | None = None

    def splits(self, config: Config) -> Splits:
        """The images of the session."""
        return load_splits(config, self._reading) if self.data is None else splits_of(self.data, config)

    def _reading(self, done: int, total: int) -> None:
        self.say(f"reading pictures: {done:,} of {total:,}\n")

    def say(self, text: str) -> None:
        """Print text, unless progress is "none"."""
        if self.progress != "none":
            sys.stdout.write(text)
            sys.stdout.flush()

    def resume_with(self, path: Path) -> str:
        """How to resume the run in this directory."""
        again = f"--out {shlex.quote(str(self.resumes or path))} --resume"
        return f"python -m psdenets.train {again}" if self.data is None else f"fit(out={str(path)!r}, resume=True, ...)"

    @contextmanager
    def following(self, trainer: Trainer) -> Iterator[Followed]:
        """Show and report the progress of a trainer."""
        with display_on(self.progress) as display:
            yield Followed(trainer, display, self.callbacks)


class Followed:
    """A session whose steps and epochs are shown and passed to callbacks; `ended` is set if one of them ends it."""

    def __init__(self, trainer: Trainer, display: Display, callbacks: tuple[Callback, ...]) -> None:
        self.trainer, self.display, self.callbacks = trainer, display, callbacks
        self.ended = False

    def say(self, text: str) -> None:
        """Print a line of text."""
        self.display.say(text)

    def begin(self, run: RunDir) -> None:
        """Report that training begins or resumes."""
        training = Training(self.trainer.config, run.path, tuple(self.trainer.at.history))
        self.tell(lambda callback: callback.on_begin(training))

    def step(self, report: StepReport) -> None:
        """Report a step."""
        self.display.step(self.trainer, report)
        if self.callbacks:
            at, lr = self.trainer.at, self.trainer.optimizer.param_groups[0]["lr"]
            step = Step(at.epoch + 1, at.step, *report, lr=lr, seconds=at.seconds)
            self.tell(lambda callback: callback.on_step(step))

    def epoch(self, record: dict[str, Any]) -> None:
        """Report an epoch."""
        self.display.show_epoch(record)
        self.tell(lambda callback: callback.on_epoch(record))

    def tell(self, event: Callable[[Callback], object]) -> None:
        """Call all callbacks; training ends if one returns True."""
        for callback in self.callbacks:
            try:
                self.ended = bool(event(callback)) or self.ended  # also a true value of numpy or torch
            except Exception as error:
                raise CallbackFailed(error) from error
