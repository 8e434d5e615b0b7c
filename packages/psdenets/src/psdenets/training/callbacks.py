"""Watch a training session from your own code, and stop it: `fit(..., callbacks=[MyCallback()])`.

    class StopWhenGood(Callback):
        def on_epoch(self, record):
            return record["val"]["accuracy"] > 0.99     # True ends training

Methods are called in the order of the callbacks. If one returns True, training ends and the run is finished with the
weights it has, as with `--max-seconds`. If one raises, the session ends with a checkpoint, and the exception is raised
from `fit`; the run can be resumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

from psdenets.errors import BadInput
from psdenets.runs.files import path_of, write_text

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.runs.run import Run

Record = Mapping[str, Any]


class Training(NamedTuple):
    """A session that begins: its config, its run directory, and the epochs done before it was resumed."""

    config: Config
    path: Path
    history: Sequence[Record]


class Step(NamedTuple):
    """A finished training step; epochs and steps count from 1.

    Loss, NLL, KL and score are those of its batch; the score is the accuracy, or the RMSE if numbers are predicted.
    """

    epoch: int
    step: int
    loss: float
    nll: float
    kl: float
    score: float
    lr: float
    seconds: float  # of training so far

    @property
    def accuracy(self) -> float:
        """The score of a classifier."""
        return self.score


class Callback:
    """Does nothing; override the methods you need."""

    def on_begin(self, training: Training) -> None:
        """Called before the first step of a session."""

    def on_step(self, step: Step) -> bool | None:
        """Called after a step; True ends training."""

    def on_epoch(self, record: Record) -> bool | None:
        """Called after an epoch with its line of metrics.jsonl; True ends training."""

    def on_end(self, run: Run) -> None:
        """Called once the run is finished and all its files are written."""


@final
class CsvLog(Callback):
    """One line per epoch in a CSV file, by default log.csv in the run directory.

    The columns are those of metrics.jsonl: epoch, step, seconds, train_loss, val_accuracy, ...
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = None if path is None else path_of(path)
        self._records: list[Record] = []

    def on_begin(self, training: Training) -> None:
        self.path = self.path or training.path / "log.csv"
        self._records = list(training.history)

    def on_epoch(self, record: Record) -> None:
        import csv
        import io

        self._records.append(record)
        rows = [flat(one) for one in self._records]
        text = io.StringIO()
        writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        assert self.path is not None
        write_text(self.path, text.getvalue())


@final
class TensorBoardLog(Callback):
    """Scalars for TensorBoard, by default in tensorboard/ of the run directory: each epoch, and every few steps.

    Needs the package tensorboard: `pip install "psdenets[tensorboard]"`.
    """

    def __init__(self, path: str | Path | None = None, every: int = 10) -> None:
        if every < 1:
            raise BadInput(f"expected every to be at least 1 step, got {every}")
        self.path, self.every = None if path is None else path_of(path), every
        self._writer: Any = None
        _summary_writer()  # raises now, not when training starts

    def on_begin(self, training: Training) -> None:
        last = training.history[-1]["step"] if training.history else 0
        self.path = self.path or training.path / "tensorboard"
        self._writer = _summary_writer()(str(self.path), purge_step=last + 1)

    def on_step(self, step: Step) -> None:
        if step.step % self.every == 0:
            for name in ("loss", "nll", "kl", "score", "lr"):
                self._writer.add_scalar(f"step/{name}", getattr(step, name), step.step)

    def on_epoch(self, record: Record) -> None:
        for name, value in flat(record).items():
            if name not in ("epoch", "step"):
                self._writer.add_scalar(name.replace("_", "/", 1), value, record["step"])
        self._writer.flush()

    def on_end(self, run: Run) -> None:  # noqa: ARG002 - called like every callback
        self._writer.close()


def require_callbacks(callbacks: object) -> None:
    """Raise BadInput unless these are objects with the methods of `Callback`."""
    if not isinstance(callbacks, Sequence):
        raise BadInput(f"expected callbacks to be a list of Callback objects, got {type(callbacks).__name__}")
    for callback in callbacks:
        methods = (getattr(callback, name, None) for name in ("on_begin", "on_step", "on_epoch", "on_end"))
        if isinstance(callback, type) or not all(map(callable, methods)):
            raise BadInput(f"expected callbacks to be objects of psdenets.Callback, got {callback!r}")


def logs_of(config: Config) -> tuple[Callback, ...]:
    """The callbacks of `--log`."""
    name = "none" if config.system.training is None else config.training.log
    return () if name == "none" else ({"csv": CsvLog, "tensorboard": TensorBoardLog}[name](),)


def flat(record: Record) -> dict[str, float]:
    """An epoch's metrics by name: train_loss, val_accuracy, ..."""
    found: dict[str, float] = {}
    for name, value in record.items():
        found |= {f"{name}_{key}": v for key, v in value.items()} if isinstance(value, Mapping) else {name: value}
    return found


def _summary_writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise BadInput(
            'expected the package tensorboard for its log, but it is not installed: pip install "psdenets[tensorboard]"'
        ) from None
    return SummaryWriter
