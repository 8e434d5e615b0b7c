"""`python -m psdenets.train`: train a classifier and write a run directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from psdenets import cli
from psdenets.config import Config
from psdenets.errors import BadInput
from psdenets.option_help import all_groups, group_help, most_used
from psdenets.options.fields import flag
from psdenets.presets import PRESETS, preset

if TYPE_CHECKING:
    from psdenets.runs.directory import RunDir

# Options that may change when a run is resumed: where and for how long it runs, not what it computes.
_MAY_CHANGE = frozenset({"out", "device", "threads", "max_seconds", "checkpoint_seconds", "data_root", "download"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0 done, 1 diverged, 2 bad input, 130 interrupted."""
    return cli.run("psdenets.train", _main, argv)


def _main(argv: Sequence[str]) -> int:
    given = cli.parse(argv)
    printed = _printed(given)
    if printed is not None:
        sys.stdout.write(printed)
        return 0
    config, run = _resumed(given) if "resume" in given.commands else _fresh(given)
    if run.finished:
        sys.stdout.write(f"{run.path} holds a finished run: nothing to do\n")
        return 0
    from psdenets.training.session import train

    return train(config, run)


def _printed(given: cli.Given) -> str | None:
    """The text to print if the command line only asks for information, else None."""
    if "help" in given.commands:
        return group_help(given.commands["help"]) if given.commands["help"] else most_used()
    if "help_all" in given.commands:
        return all_groups()
    if "list_presets" in given.commands:
        return preset_table()
    if "print_config" in given.commands:
        import yaml  # type: ignore[import-untyped]

        return str(yaml.safe_dump(cli.configure(given).as_dict(), sort_keys=False))
    return None


def _fresh(given: cli.Given) -> tuple[Config, RunDir]:
    from psdenets.runs.directory import RunDir

    config = cli.configure(given)
    run = RunDir.choose(config)
    if run.holds_run:
        raise BadInput(f"expected a new --out, got {run.path}, which holds a run; --resume continues it")
    return config.replace(out=str(run.path)), run


def _resumed(given: cli.Given) -> tuple[Config, RunDir]:
    """The existing run in --out and its config; raises BadInput for a flag that would change what it computes."""
    from pathlib import Path

    from psdenets.runs.directory import RunDir
    from psdenets.runs.loading import read_config

    if given.options.get("out") is None:
        raise BadInput("expected --out RUN_DIR with --resume, got no --out")
    run = RunDir(Path(given.options["out"]))
    if not run.holds_run:
        return _fresh(given)
    config, _ = read_config(run.path, allow_code="allow_code" in given.commands)
    found = config.as_dict()
    wanted = Config.read({**found, **given.file}, **given.flags).as_dict()
    for name, value in wanted.items():
        if name not in _MAY_CHANGE and value != found.get(name):
            raise BadInput(f"expected {flag(name)} {found.get(name)} as in {run.path}, got {value}")
    return config.replace(**{name: value for name, value in wanted.items() if name in _MAY_CHANGE}), run


def preset_table() -> str:
    """A table of all presets, one per line, with the values in which they differ."""
    return "".join(f"{name:<30} {_told_apart(preset(name))}\n" for name in PRESETS)


def _told_apart(config: Config) -> str:
    values, cut = config.as_dict(), config.system.cut
    window = f" ({cut.window[0]:g}, {cut.window[1]:g})" if cut is not None and cut.cut != "none" else ""
    what = f"{values.get('cut', config.model)}{window}"
    shown = {"blocks": 6, "width": 3, "steps": 7, "epochs": 4, "lr": 7, "sigma": 5}
    cells = [f"{name} {values[name]:<{width}}" for name, width in shown.items() if name in values]
    if config.system.kl_weight is not None:
        cells.append(f"kappa {config.system.kl_weight:g}")
    return f"{what:<24} {' '.join(cells)}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
