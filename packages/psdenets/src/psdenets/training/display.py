"""Progress of a training run.

live    progress bars and a table of epochs, redrawn in place          a terminal
bar     a single line, overwritten by the next                         a notebook
lines   one line per epoch, and one per minute during long epochs      elsewhere
none    nothing
"""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self, TextIO, final

from psdenets.errors import BadInput
from psdenets.tasks import CLASSIFICATION, task_of

if TYPE_CHECKING:
    from psdenets.training.loop import StepReport, Trainer

_ESTIMATE_AFTER = 4, 5.0  # steps or seconds, whichever comes first


class Display(AbstractContextManager["Display"], ABC):
    """Shows the progress of training."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.started = time.perf_counter()
        self.seen = self.solver_steps = 0
        self.estimated = False

    def __enter__(self) -> Self:
        self.started = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        """Restore the terminal."""

    @abstractmethod
    def say(self, text: str) -> None:
        """Print a line of text."""

    @abstractmethod
    def show_step(self, trainer: Trainer, report: StepReport) -> None:
        """Show the loss and accuracy of a batch."""

    @abstractmethod
    def show_epoch(self, record: dict[str, Any]) -> None:
        """Show the metrics of an epoch."""

    def step(self, trainer: Trainer, report: StepReport) -> None:
        """Update the display after a batch; soon after the start, estimate how long training will take."""
        self.seen += 1
        self.solver_steps += trainer.solver_steps
        at = trainer.at
        for change in trainer.changes:
            self.say(f"epoch {at.epoch + 1} batch {at.batch}: {change}")
        steps, seconds = _ESTIMATE_AFTER
        if not self.estimated and (self.seen >= steps or time.perf_counter() - self.started > seconds):
            self.estimated = True
            self.say(f"{self.speed_of(trainer)}; about {self.left(trainer)} of training to go")
        self.show_step(trainer, report)

    def speed(self, trainer: Trainer) -> float:
        """Images per second since the session began, including evaluations."""
        return trainer.options.batch_size * self.seen / (time.perf_counter() - self.started)

    def speed_of(self, trainer: Trainer) -> str:
        """The speed as text."""
        return pace(self.speed(trainer), trainer.splits.spec.things)

    def left(self, trainer: Trainer) -> str:
        """Estimated time to go, in proportion to the solver steps."""
        return duration(trainer.solver_steps_left * (time.perf_counter() - self.started) / self.solver_steps)


@final
class Lines(Display):
    """One line per epoch, and more lines at regular intervals during a long epoch."""

    def __init__(self, stream: TextIO, every: float = 60.0) -> None:
        super().__init__(stream)
        self.every, self.last = every, time.perf_counter()

    def say(self, text: str) -> None:
        self.stream.write(text + "\n")
        self.stream.flush()

    def show_step(self, trainer: Trainer, report: StepReport) -> None:
        if time.perf_counter() - self.last > self.every:
            self.last = time.perf_counter()
            at = trainer.at
            self.say(
                f"epoch {at.epoch + 1}/{trainer.options.epochs} batch {at.batch}/{trainer.batches}: "
                f"loss {report.loss:.4f}, {_score(trainer, report)}, {self.speed_of(trainer)}"
            )

    def show_epoch(self, record: dict[str, Any]) -> None:
        train, val = record["train"], record["val"]
        task = task_of(val)
        name, calibration = ("", "ece") if task.classifies else (" rmse", "coverage")
        test = f"  test{name} {task.score.of(record['test'])}" if "test" in record else ""
        self.say(
            f"epoch {record['epoch']:3d}  loss {train['loss']:.4f}  nll {train['nll']:.4f}  kl {val['kl']:9.1f}  "
            f"train{name} {task.score.of(train)}  val{name} {task.score.of(val)}{test}  "
            f"val {calibration} {task.calibration.of(val)}  {record['seconds']:.1f} s"
        )


@final
class Live(Display):
    """Two progress bars, a line of metrics, and a table of the last epochs, redrawn in place."""

    rows = 8

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        from rich.console import Console
        from rich.live import Live as RichLive
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self.console = Console(file=stream)
        columns = (TextColumn("{task.description:>7}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bars = Progress(*columns, console=self.console)
        self.epochs = self.bars.add_task("epochs", total=None)
        self.batches = self.bars.add_task("batches", total=None)
        self.numbers = ""
        self.records: list[dict[str, Any]] = []
        self.live = RichLive(console=self.console, get_renderable=self._render, refresh_per_second=8)
        self.live.start()

    def __exit__(self, *exception: object) -> None:
        self.live.stop()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)

    def show_step(self, trainer: Trainer, report: StepReport) -> None:
        at = trainer.at
        self.bars.update(self.epochs, total=trainer.options.epochs, completed=at.epoch)
        self.bars.update(self.batches, total=trainer.batches, completed=at.batch)
        self.numbers = (
            f"loss {report.loss:.4f}   nll {report.nll:.4f}   kl {report.kl:.1f}   {_score(trainer, report)}   "
            f"{self.speed_of(trainer)}   {self.left(trainer)} left"
        )

    def show_epoch(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        self.bars.update(self.epochs, completed=record["epoch"])

    def _render(self) -> Any:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="bold", padding=(0, 1))
        shown = self.records[-self.rows :]
        parts = [part for part in ("train", "val", "test") if any(part in r for r in shown)]
        held_out = parts[1:]
        task = task_of(shown[-1]["val"]) if shown else CLASSIFICATION
        score, calibration = ("acc", "ECE") if task.classifies else ("RMSE", "cover")
        names = [f"{part} {score}" for part in parts] + [f"{part} {calibration}" for part in held_out]
        for name in ("epoch", "loss", *names, f"{parts[-1]} NLL" if held_out else "NLL", "KL"):
            table.add_column(name, justify="right")
        for r in shown:
            cells = [task.score.of(r[part]) for part in parts] + [task.calibration.of(r[part]) for part in held_out]
            nll, kl = r[parts[-1]]["nll"], r["val"]["kl"]
            table.add_row(str(r["epoch"]), f"{r['train']['loss']:.4f}", *cells, f"{nll:.4f}", f"{kl:.1f}")
        return Group(self.bars, Text(self.numbers, style="dim"), table)


@final
class Bar(Display):
    """One line that is overwritten: the epoch, the last metrics and the time left. Other text gets its own lines."""

    def __init__(self, stream: TextIO, every: float = 0.5) -> None:
        super().__init__(stream)
        self.every, self.last, self.width = every, 0.0, 0
        self.scores = ""

    def __exit__(self, *exception: object) -> None:
        self.stream.write("\n" if self.width else "")
        self.stream.flush()

    def say(self, text: str) -> None:
        self._draw("")
        self.stream.write(f"\r{text}\n")
        self.width = 0

    def show_step(self, trainer: Trainer, report: StepReport) -> None:
        if time.perf_counter() - self.last < self.every:
            return
        self.last = time.perf_counter()
        at, total = trainer.at, trainer.options.epochs
        done = at.step / trainer.steps
        full = round(20 * done)
        bar = "#" * full + "." * (20 - full)
        self._draw(
            f"[{bar}] epoch {min(at.epoch + 1, total)}/{total}  loss {report.loss:.4f}{self.scores}  "
            f"{self.left(trainer)} left"
        )

    def show_epoch(self, record: dict[str, Any]) -> None:
        task = task_of(record["val"])
        self.scores = f"  val{'' if task.classifies else ' rmse'} {task.score.of(record['val'])}"

    def _draw(self, text: str) -> None:
        self.stream.write(f"\r{text:<{self.width}}")
        self.stream.flush()
        self.width = len(text)


@final
class Silent(Display):
    """Shows nothing."""

    def say(self, text: str) -> None:
        """Do nothing."""

    def show_step(self, trainer: Trainer, report: StepReport) -> None:
        """Do nothing."""

    def show_epoch(self, record: dict[str, Any]) -> None:
        """Do nothing."""


DISPLAYS: dict[str, type[Display]] = {"live": Live, "bar": Bar, "lines": Lines, "none": Silent}


def display_on(kind: str = "auto", stream: TextIO | None = None) -> Display:
    """The display of this kind; "auto" is live on a terminal, a bar in a notebook, and lines elsewhere."""
    stream = sys.stdout if stream is None else stream
    if kind == "auto":
        kind = "live" if stream.isatty() else "bar" if in_notebook() else "lines"
    require_display(kind)
    return DISPLAYS[kind](stream)


def require_display(kind: str) -> None:
    """Raise BadInput for an unknown kind of display."""
    if kind != "auto" and kind not in DISPLAYS:
        raise BadInput(f"expected progress to be auto, {', '.join(DISPLAYS)}, got {kind!r}")


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook, which shows carriage returns but no terminal codes."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def pace(speed: float, things: str = "images") -> str:
    """Images or rows per second as text: "1070 images/s", "0.23 images/s"."""
    return f"{speed:.0f} {things}/s" if speed >= 10 else f"{speed:.2g} {things}/s"


def _score(trainer: Trainer, report: StepReport) -> str:
    """The score of a batch as text: "accuracy 97.1%", "rmse 0.12"."""
    return f"accuracy {report.score:.1%}" if trainer.splits.spec.target is None else f"rmse {report.score:.3g}"


def duration(seconds: float) -> str:
    """A duration as text: "45 s", "3.5 min", "2.1 h", "4.0 days"."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
