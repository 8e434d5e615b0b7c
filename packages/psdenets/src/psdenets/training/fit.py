"""Train from Python: `run = psdenets.fit("digits-cpu-ode-first", sigma=0.3, out="runs/a")`.

The command `python -m psdenets.train` calls the same function. Errors are exceptions: `BadInput` for options and data
that cannot be used, `Diverged` if training produced a NaN or infinity, `Interrupted` after Ctrl-C. A run that did not
finish keeps its checkpoint, and `fit(..., resume=True)` continues it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psdenets.config import Config
from psdenets.errors import BadInput
from psdenets.options.fields import flag
from psdenets.presets import preset
from psdenets.registries import FROM_PYTHON, TABLES
from psdenets.runs.directory import RunDir
from psdenets.runs.files import path_of
from psdenets.runs.forms import DATA
from psdenets.runs.lock import only_writer
from psdenets.runs.run import Run

if TYPE_CHECKING:
    from psdenets.data import Pool
    from psdenets.training.callbacks import Callback

# Options that may change when a run is resumed: where and for how long it runs, not what it computes.
_MAY_CHANGE = frozenset(
    {
        "out",
        "device",
        "threads",
        "max_seconds",
        "checkpoint_seconds",
        "data_root",
        "download",
        "log",
        "epochs",
        "cache_dir",
        "workers",
    }
)


def fit(
    config: str | Config | Mapping[str, Any] | None = None,
    *,
    data: Any = None,
    callbacks: Sequence[Callback] = (),
    resume: bool = False,
    progress: str = "auto",
    allow_code: bool = False,
    **options: Any,
) -> Run:
    """Train a network and write a run directory.

    Args:
        config: the name of a preset, a `Config`, options by name as in a config file (those of other systems are
            ignored), or None for the defaults. With `resume`, None takes the options of the run.
        data: images to use instead of those of the option `dataset`: (x, y), (x, y, x_test, y_test), a
            `torch.utils.data.Dataset` of (image, label), or a pair of them, for training and test. Images are 8-bit,
            or floating-point in [0, 1]; labels are whole numbers or text. An x of two axes is a table, with a row of
            any numbers for each label; if the labels are floating-point, they are numbers to predict. Without a test
            set, one is split off.
        callbacks: see `psdenets.Callback`.
        resume: continue the run in `out` if there is one; a finished run with more `epochs` is extended.
        progress: "auto", "live", "bar", "lines" or "none".
        allow_code: with `resume`, allow the run's custom code to be executed.
        options: options of the config to change, by name, e.g. out="runs/a", seed=1.

    Returns:
        The finished run.

    Raises:
        BadInput: if an option or the data cannot be used, or `out` already holds a run and `resume` is False.
        Diverged: if training produced a NaN or infinity.
        Interrupted: after Ctrl-C, with a checkpoint.
    """
    from psdenets.data.arrays import pool_from
    from psdenets.training.callbacks import require_callbacks

    require_callbacks(callbacks)
    pool = None if data is None else pool_from(data)
    out = options.get("out", config.out if isinstance(config, Config) else None)
    if resume and out is None:
        raise BadInput("expected --out RUN_DIR with --resume, got no --out")
    before = RunDir(path_of(out)) if resume and out is not None else None
    if before is not None and before.holds_run:
        found, run = _resumed(before, config, options, allow_code)
    else:
        found, run = _fresh(_config(config, options, None if pool is None else pool.name))
    if not run.finished or run.extended_by(found):
        with only_writer(run.path, new=run.new):
            _train(found, run, pool, callbacks, progress)
    else:
        run.verify()
        if progress != "none":
            sys.stdout.write(f"{run.path} holds a finished run: nothing to do\n")
    return Run(run.path, allow_code=allow_code or bool(found.references))


def _train(config: Config, run: RunDir, pool: Pool | None, callbacks: Sequence[Callback], progress: str) -> None:
    """Train a run that is not finished, as its only writer."""
    import torch

    from psdenets.training.callbacks import logs_of
    from psdenets.training.display import require_display
    from psdenets.training.session import train
    from psdenets.training.watch import Watch

    require_display(progress)
    if config.dataset in FROM_PYTHON and run.holds_run:
        _require_same(pool, run)
    watch = Watch(progress, (*logs_of(config), *callbacks), pool)
    threads = torch.get_num_threads()
    try:
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller has switched off
            train(config, run, watch)
    finally:
        torch.set_num_threads(threads)
    for callback in watch.callbacks:
        callback.on_end(Run(run.path, allow_code=bool(config.references)))


def _require_same(pool: Pool | None, run: RunDir) -> None:
    """Raise BadInput unless these are the arrays that the run was started with."""
    if pool is None:
        raise BadInput(f"expected data=, the arrays that {run.path} was trained on, got no data")
    if pool.checksum != run.folder.read_json("data.json", DATA, infinities=False).get("checksum"):
        raise BadInput(f"expected the arrays that {run.path} was trained on, got others: their checksum differs")


def _config(config: str | Config | Mapping[str, Any] | None, options: dict[str, Any], dataset: str | None) -> Config:
    given = options if dataset is None else {**options, "dataset": dataset}
    if dataset in TABLES and isinstance(config, str | Config):
        found = preset(config).dataset if isinstance(config, str) else config.dataset
        if found not in TABLES:
            raise BadInput(f"expected options with dataset={dataset!r} for rows of numbers, got those of {found!r}")
    if isinstance(config, Config):
        return config.replace(**given)
    return (
        preset(config, **given) if isinstance(config, str) else Config.read({} if config is None else config, **given)
    )


def _fresh(config: Config) -> tuple[Config, RunDir]:
    if config.dataset == "imagefolder":
        config = _of_folder(config)
    run = RunDir.choose(config)
    if run.holds_run:
        raise BadInput(f"expected a new --out, got {run.path}, which holds a run; resume it with --resume")
    return config.replace(out=str(run.path)), run


def _of_folder(config: Config) -> Config:
    """The config with the folder of its pictures and the image size chosen from it, so that resuming finds both."""
    from psdenets.data.folder import with_size
    from psdenets.data.sets import root_of

    return with_size(config, root_of(config.data_root))


def _resumed(
    run: RunDir, config: str | Config | Mapping[str, Any] | None, options: dict[str, Any], allow_code: bool
) -> tuple[Config, RunDir]:
    """The config of an existing run, with the options that may change, and the run.

    Raises:
        BadInput: for an option that would change what the run computes.
    """
    from psdenets.runs.loading import read_config

    found, _ = read_config(run.path, allow_code=allow_code)
    before = found.as_dict()
    if isinstance(config, str | Config):
        dataset = before["dataset"] if before["dataset"] in FROM_PYTHON else None
        options = {**_config(config, options, dataset).as_dict(), "out": str(run.path)}
        config = None
    wanted = Config.read({**before, **(config or {})}, **options).as_dict()
    if wanted["image_size"] is None:  # the size was chosen from the folder
        wanted["image_size"] = before["image_size"]
    for name, value in wanted.items():
        if name not in _MAY_CHANGE and value != before.get(name) and name != "sources":
            raise BadInput(f"expected {flag(name)} {before.get(name)} as in {run.path}, got {value}")
    changed = found.replace(**{name: value for name, value in wanted.items() if name in _MAY_CHANGE})
    if run.extended_by(changed):
        _require_extensible(found, changed, run)
    return changed, run


def _require_extensible(before: Config, after: Config, run: RunDir) -> None:
    """Raise BadInput unless the run can get more epochs.

    The learning rate, if it is not constant, continues on the schedule of the new number of epochs.
    """
    old, new = before.training.epochs, after.training.epochs
    if new < old:
        raise BadInput(f"expected at least the {old} --epochs of {run.path}, got {new}")
    if before.system.ensemble is not None:
        raise BadInput(f"expected --epochs {old} as in {run.path}, got {new}: an ensemble cannot be extended")
    if before.system.flow is not None and len(before.system.flow.counts) > 1:
        raise BadInput(
            f"expected --epochs {old} as in {run.path}, got {new}: its grid was already refined, see --steps "
            f"{before.system.flow.steps}"
        )
