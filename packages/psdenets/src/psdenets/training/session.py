"""One training session of a run: set up or take up again, train, save when told to stop, and write the results."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import torch

from psdenets.config import Config
from psdenets.data import Splits, load_splits
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput
from psdenets.models.base import ImageClassifier
from psdenets.models.registry import trainable_of
from psdenets.nn.scales import block_shapes
from psdenets.runs.directory import RunDir
from psdenets.runs.files import write_lines
from psdenets.runs.results import History, write_results
from psdenets.systems import FLOWS, MEAN_FIELD
from psdenets.training.allocator import keep_freed_memory
from psdenets.training.checkpoint import Checkpoints
from psdenets.training.display import Display, display_on
from psdenets.training.loop import Diverged, Trainer

_NUMBERS_WORTH_THREADS = 2**18
INTERRUPTED = 130  # what shells call a command ended by Ctrl-C


class Stopped(Exception):
    """Somebody asked the session to stop."""


def train(config: Config, run: RunDir) -> int:
    """Train until done, out of time, stopped or diverged; returns the exit status."""
    if config.model == "ensemble":
        from psdenets.training.ensemble import train_members

        return train_members(config, run)
    if config.model == "hmc":
        from psdenets.training.hmc import sample

        return sample(config, run)
    if config.laplace_of is not None:
        from psdenets.training.laplace import approximate

        return approximate(config, run)
    return descend(config, run, resume_command(run.path))


def descend(config: Config, run: RunDir, resume_with: str) -> int:
    """Train one network by Adam; ``resume_with`` is what a person types to go on."""
    if config.model == "resnet32-laplace":
        from psdenets.models.laplace import laplace_torch

        laplace_torch()  # an hour of training before it turns out to be missing would be lost
    keep_freed_memory()
    device = device_of(config.device)
    splits = load_splits(config)
    torch.set_num_threads(config.threads or threads_for(config, splits.spec))
    trainer = Trainer(config, splits, device)
    begin(run, config, splits)
    checkpoints = Checkpoints(run.file("checkpoints"))
    snapshot = checkpoints.load()
    if snapshot is not None:
        trainer.restore(snapshot)
    with display_on() as display, stoppable() as asked:
        display.say(_opening(config, splits, trainer, run))
        try:
            _fit(trainer, run, checkpoints, display, asked)
        except Stopped:
            checkpoints.save(trainer.at.place, trainer.snapshot())
            display.say(f"stopped and saved; go on with: {resume_with}")
            return INTERRUPTED
        except Diverged as error:
            display.say(f"training diverged at {error}; try a smaller --lr, --sigma or --clip")
            return 1
    return _finish(trainer, run)


def _fit(trainer: Trainer, run: RunDir, checkpoints: Checkpoints, display: Display, asked: list[int]) -> None:
    """Epoch after epoch, with checkpoints between."""
    config = trainer.config
    saved = time.perf_counter()

    def stop_if_asked() -> None:
        if asked:
            raise Stopped

    while trainer.at.epoch < config.epochs:
        while trainer.at.batch < trainer.batches and not _out_of_time(trainer):
            display.step(trainer, trainer.step())
            stop_if_asked()
            if time.perf_counter() - saved >= config.checkpoint_seconds:
                checkpoints.save(trainer.at.place, trainer.snapshot())
                saved = time.perf_counter()
        if trainer.at.batch == 0:
            return
        record = trainer.finish_epoch(stop_if_asked)
        display.show_epoch(record)
        write_lines(run.file("metrics.jsonl"), trainer.at.history)
        checkpoints.save(trainer.at.place, trainer.snapshot())
        saved = time.perf_counter()
        if _out_of_time(trainer):
            display.say(
                f"--max-seconds {config.max_seconds:g} are over after {trainer.at.step} of {trainer.steps} steps"
            )
            return
        stop_if_asked()


def _out_of_time(trainer: Trainer) -> bool:
    limit = trainer.config.max_seconds
    return limit is not None and trainer.at.seconds >= limit


def begin(run: RunDir, config: Config, splits: Splits) -> None:
    """Write what the run was told, where it was not begun before."""
    if not run.holds_run:
        run.begin(config, splits.spec, {name: len(getattr(splits, name)) for name in ("train", "val", "test")})


def _finish(trainer: Trainer, run: RunDir) -> int:
    config, at = trainer.config, trainer.at
    started = time.perf_counter()
    model = _finished(trainer)
    facts = {
        "epochs": at.epoch,
        "steps": at.step,
        "selected_epoch": at.best_epoch if config.select == "best" else at.epoch,
    }
    history = History(at.history, at.seconds + time.perf_counter() - started, facts)
    sys.stdout.write(write_results(run, config, model, trainer.splits.test, history))
    return 0


def _finished(trainer: Trainer) -> ImageClassifier:
    """The system with the weights to keep, after what follows training: the Laplace approximation, where asked for."""
    config, splits = trainer.config, trainer.splits
    model = trainable_of(config, splits.spec)
    model.load_state_dict({name: tensor.cpu() for name, tensor in trainer.chosen().items()})
    model = model.to(trainer.device).eval().requires_grad_(False)
    if config.model == "resnet32-laplace":
        from psdenets.models.laplace import fitted, resnet_in

        return fitted(config, splits.spec, resnet_in(model), splits.train).to(trainer.device)
    return model


def _opening(config: Config, splits: Splits, trainer: Trainer, run: RunDir) -> str:
    numbers = sum(trainer.model.parameter_counts().values())
    noisy = config.cut != "none" or config.model in MEAN_FIELD
    noise = f"kappa {config.kl_weight:g} (temperature {2 * config.kl_weight:g})" if noisy else "no noise"
    name = f"psde with cut {config.cut}" if config.model == "psde" else config.model
    begun = f", from epoch {trainer.at.epoch + 1} batch {trainer.at.batch + 1}" if trainer.at.step else ""
    sizes = f"{len(splits.train)} training, {len(splits.val)} validation, {len(splits.test)} test images"
    return (
        f"{config.dataset}: {sizes} of {splits.spec.size}\n"
        f"{name}, {numbers:,} trained numbers, {noise}; run directory {run.path}{begun}"
    )


def resume_command(path: Path) -> str:
    """The command that goes on with a run."""
    return f"python -m psdenets.train --out {shlex.quote(str(path))} --resume"


def threads_for(config: Config, spec: ImageSpec) -> int:
    """One where a layer's result is so small that threads would only wait for each other, else torch's choice.

    A step on the digits took 94 ms on one thread and 531 ms on two, on two cores that other programs used as well.
    """
    flows = config.model in FLOWS
    largest = max(height * width for _, height, width in (block_shapes(config, spec) if flows else [_shape(spec)]))
    small = config.batch_size * config.width * largest < _NUMBERS_WORTH_THREADS
    return 1 if small else torch.get_num_threads()


def _shape(spec: ImageSpec) -> tuple[int, int, int]:
    return (spec.channels, spec.height, spec.width)


def device_of(name: str) -> torch.device:
    """The device of a --device flag; auto prefers an accelerator."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise BadInput(f"expected a --device that this machine has, got {name}") from None
    return device


@contextmanager
def stoppable() -> Iterator[list[int]]:
    """A list that is filled when Ctrl-C or a termination signal comes; a second one ends the process at once."""
    asked: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        if asked:
            signal.default_int_handler(number, frame)
        asked.append(number)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, old in before.items():
            signal.signal(number, old)
