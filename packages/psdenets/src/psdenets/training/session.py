"""One training session: start or resume a run, train, checkpoint when asked to stop, and write the results."""

import time
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch

from psdenets.config import Config
from psdenets.data import Splits
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput, printable
from psdenets.models.base import ImageClassifier
from psdenets.models.psde import Classifier
from psdenets.models.sizes import require_training_fits
from psdenets.nn.scales import block_shapes
from psdenets.references import sources
from psdenets.runs.directory import RunDir
from psdenets.runs.forms import DATA
from psdenets.runs.results import History, write_results
from psdenets.systems import SYSTEMS
from psdenets.training.allocator import keep_freed_memory
from psdenets.training.checkpoint import Checkpoints
from psdenets.training.loop import Build, Diverged, Trainer
from psdenets.training.objective import class_counts
from psdenets.training.start_from import start_of
from psdenets.training.stopping import Stop, Stopped, stoppable
from psdenets.training.tune_sigma import tuned
from psdenets.training.watch import CallbackFailed, Followed, Watch

_NUMBERS_WORTH_THREADS = 2**18
_UNEVEN = 2  # classes whose sizes differ by this factor are uneven


def train(config: Config, run: RunDir, watch: Watch) -> None:
    """Train until the run is finished; raises `Interrupted` or `Diverged` if it is not."""
    SYSTEMS[config.model].fit(config, run, watch)


def descend(
    config: Config,
    run: RunDir,
    watch: Watch,
    build: Build | None = None,
    finish: Callable[[ImageClassifier, Splits], ImageClassifier] = lambda model, _: model,
) -> None:
    """Train one network by Adam.

    Args:
        config: the config of the run.
        run: the run directory.
        watch: what follows the session: the display and callbacks.
        build: (config, spec) -> the network to train; by default the one that the system builds.
        finish: called after training: (trained network, images) -> the classifier to keep.
    """
    keep_freed_memory()
    device = device_of(config.device)
    splits = watch.splits(config)
    require_training_fits(config, splits.spec, len(splits.test))
    torch.set_num_threads(config.threads or threads_for(config, splits.spec))
    trainer = Trainer(config, splits, device, build)
    checkpoints = begin_or_restore(trainer, run)
    with stoppable() as stop:
        _train(trainer, run, checkpoints, watch, stop)
        try:
            stop.at_once()
            _write(trainer, run, watch, finish)
            stop.ignore_further()
        except Stopped:
            resume = watch.resume_with(run.path)
            raise stop.interrupted(f"stopped, all epochs are in the checkpoint; resume with: {resume}") from None


def _train(trainer: Trainer, run: RunDir, checkpoints: Checkpoints, watch: Watch, stop: Stop) -> None:
    """Train all remaining epochs; save a checkpoint if the session is asked to stop, or if a callback fails."""
    with watch.following(trainer) as followed:
        followed.say(_opening(trainer.config, trainer.splits, trainer, run))
        try:
            followed.begin(run)
            _fit(trainer, run, checkpoints, followed, stop)
        except Stopped:
            stop.ignore_further()
            _save(checkpoints, trainer)
            raise stop.interrupted(f"stopped, checkpoint saved; resume with: {watch.resume_with(run.path)}") from None
        except Diverged as error:
            raise Diverged(f"training diverged at {error}; try a smaller --lr, --sigma or --clip") from None
        except CallbackFailed as failure:
            _save(checkpoints, trainer)
            failure.error.add_note(f"checkpoint saved; resume with: {watch.resume_with(run.path)}")
            raise failure.error from None


def begin_or_restore(trainer: Trainer, run: RunDir) -> Checkpoints:
    """Restore the trainer from a checkpoint of the run, or give it its first weights, and write the run's config."""
    config, spec, resumed = trainer.config, trainer.splits.spec, run.holds_run
    if not resumed:
        trainer.start(start_of(config, spec))
    begin(run, config, trainer.splits)
    checkpoints = Checkpoints(run.file("checkpoints"), run.folder.id)
    snapshot = checkpoints.load(trainer.check) if resumed else None
    if snapshot is not None:
        trainer.restore(snapshot)
    elif resumed:
        trainer.start(start_of(config, spec))
    return checkpoints


def _save(checkpoints: Checkpoints, trainer: Trainer) -> None:
    checkpoints.save(trainer.at.place, trainer.snapshot(), trainer.at.best_place)


def _fit(trainer: Trainer, run: RunDir, checkpoints: Checkpoints, followed: Followed, stop: Stop) -> None:
    """Train all remaining epochs, with checkpoints."""
    options = trainer.options
    saved = time.perf_counter()

    while trainer.at.epoch < options.epochs:
        while trainer.at.batch < trainer.batches and not (_out_of_time(trainer) or followed.ended):
            followed.step(trainer.step())
            stop.check()
            if time.perf_counter() - saved >= options.checkpoint_seconds:
                _save(checkpoints, trainer)
                saved = time.perf_counter()
        if trainer.at.batch == 0:
            return
        record = trainer.finish_epoch(stop.check)
        run.folder.write_lines("metrics.jsonl", trainer.at.history)
        _save(checkpoints, trainer)
        saved = time.perf_counter()
        followed.epoch(record)
        if _out_of_time(trainer) or followed.ended:
            by = "by a callback" if followed.ended else f"after --max-seconds {options.max_seconds:g}"
            followed.say(f"stopped {by}, at step {trainer.at.step} of {trainer.steps}")
            return
        stop.check()


def _out_of_time(trainer: Trainer) -> bool:
    limit = trainer.options.max_seconds
    return limit is not None and trainer.at.seconds >= limit


def begin(run: RunDir, config: Config, splits: Splits) -> None:
    """Write the config of a new run, with the files of custom code, or that of a run that gets more epochs.

    Other existing runs get checksums if an earlier version wrote them. Everything else that could be refused has been
    loaded by now.

    Raises:
        BadInput: if the run exists and was started with other images.
    """
    run.sweep()
    if run.holds_run:
        before = run.folder.read_json("data.json", DATA, infinities=False).get("checksum")
        if before is not None and splits.checksum != before:
            raise BadInput(f"expected the images that {run.path} was started with, got others: they have changed")
    if run.extended_by(config):
        run.reopen(config)
    elif run.holds_run:
        run.adopt()
    else:
        config = config.replace(sources=sources(config.references))
        sizes = {name: len(getattr(splits, name)) for name in ("train", "val", "test")}
        run.begin(config, splits.spec, sizes, splits.checksum)


def _write(
    trainer: Trainer, run: RunDir, watch: Watch, finish: Callable[[ImageClassifier, Splits], ImageClassifier]
) -> None:
    at, splits = trainer.at, trainer.splits
    started = time.perf_counter()
    model = trainer.finished()
    found = tuned(trainer.config, model, trainer.splits.val)
    if found is not None:
        watch.say(f"{found}\n")
    model = finish(model, trainer.splits).to(trainer.device)
    facts: dict[str, Any] = ({} if found is None else {"sigma_factor": found.factor}) | {
        "epochs": at.epoch,
        "steps": at.step,
        "selected_epoch": at.best_epoch if trainer.options.select == "best" else at.epoch,
    }
    if at.start_seconds:
        facts["start_seconds"] = at.start_seconds
    seconds = at.start_seconds + at.seconds + time.perf_counter() - started
    history = History(at.history, seconds, facts)
    watch.say(write_results(run, trainer.config, model, splits.test, history, splits.train, splits.val))


def _opening(config: Config, splits: Splits, trainer: Trainer, run: RunDir) -> str:
    parameters = sum(trainer.model.parameter_counts().values())
    kappa = config.system.kl_weight
    noise = "no noise" if kappa is None else f"kappa {kappa:g} (temperature {2 * kappa:g})"
    begun = f", from epoch {trainer.at.epoch + 1} batch {trainer.at.batch + 1}" if trainer.at.step else ""
    if trainer.started is not None:
        begun = f", {trainer.started:,} weights from {trainer.options.start_from}"
    shared = (
        f", {trainer.model.stochastic_share():.0%} of the weights stochastic"
        if isinstance(trainer.model, Classifier)
        else ""
    )
    sizes = f"{len(splits.train)} training, {len(splits.val)} validation, {len(splits.test)} test {splits.spec.things}"
    notes = "".join(f"{printable(note)}\n" for note in (*splits.notes, *_balance(config, splits)))
    return (
        f"{printable(config.data_name)}: {sizes} of {splits.spec.size}\n{notes}"
        f"{config.title}, {parameters:,} parameters{shared}, {noise}; run directory {run.path}{begun}"
    )


def _balance(config: Config, splits: Splits) -> list[str]:
    """A line about how many training pictures the classes of a folder have."""
    if config.dataset != "imagefolder":
        return []
    classes, counts = splits.spec.classes, class_counts(splits.train, splits.spec)
    (low, fewest), (high, most) = (end(enumerate(counts), key=itemgetter(1)) for end in (min, max))
    line = f"{len(classes)} classes with {fewest} ({classes[low]}) to {most} ({classes[high]}) training images"
    if config.training.balance:
        return [f"{line}; --balance gives all classes the same weight in the loss"]
    uneven = most >= _UNEVEN * fewest
    return [f"{line}: {most / fewest:.1f} times as many; --balance would weight the loss" if uneven else line]


def threads_for(config: Config, spec: ImageSpec) -> int:
    """Number of CPU threads: one if the layers are too small for threads to help, else torch's choice.

    A step on the digits took 94 ms on one thread and 531 ms on two, on two cores shared with other programs.
    """
    shapes = [(spec.channels, spec.height, spec.width)] if config.system.flow is None else block_shapes(config, spec)
    largest = max(height * width for _, height, width in shapes)
    small = config.training.batch_size * config.system.net.width * largest < _NUMBERS_WORTH_THREADS
    return 1 if small else torch.get_num_threads()


def device_of(name: str) -> torch.device:
    """The device for --device; auto means CUDA if it is available, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise BadInput(f"--device {name}: not available on this machine") from None
    return device
