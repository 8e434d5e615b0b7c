"""`python -m psdenets.train`: from flags to a run directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from psdenets import cli
from psdenets.config import Config, flag
from psdenets.errors import BadInput
from psdenets.presets import PRESETS, preset
from psdenets.systems import looks_at

if TYPE_CHECKING:
    from psdenets.runs.directory import RunDir

# What may differ when a run is taken up again: where and how long it runs, not what it computes.
_MAY_CHANGE = frozenset({"out", "device", "threads", "max_seconds", "checkpoint_seconds", "data_root", "download"})


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 1 diverged, 2 bad input, 130 interrupted."""
    return cli.run("psdenets.train", _main, argv)


def _main(argv: Sequence[str]) -> int:
    given = cli.parse(cli.train_parser(), argv)
    resume, show, listing = (bool(given.pop(name, False)) for name in ("resume", "print_config", "list_presets"))
    if listing:
        sys.stdout.write(preset_table())
        return 0
    if show:
        import yaml  # type: ignore[import-untyped]

        sys.stdout.write(yaml.safe_dump(cli.configure(given, argv).as_dict(), sort_keys=False))
        return 0
    config, run = _resumed(given, argv) if resume else _fresh(given, argv)
    if run.finished:
        sys.stdout.write(f"{run.path} holds a finished run: nothing to do\n")
        return 0
    from psdenets.training.session import train

    return train(config, run)


def _fresh(given: dict[str, Any], argv: Sequence[str]) -> tuple[Config, RunDir]:
    from psdenets.runs.directory import RunDir

    config = cli.configure(given, argv)
    run = RunDir.choose(config)
    if run.holds_run:
        raise BadInput(f"expected a new --out, got {run.path}, which holds a run; --resume goes on with it")
    return config.replace(out=str(run.path)), run


def _resumed(given: dict[str, Any], argv: Sequence[str]) -> tuple[Config, RunDir]:
    """The run in --out with its own config; a flag that would change what it computes is refused."""
    from pathlib import Path

    from psdenets.runs.directory import RunDir
    from psdenets.runs.loading import read_config

    if given.get("out") is None:
        raise BadInput("expected --out RUN_DIR with --resume, got none")
    run = RunDir(Path(given["out"]))
    if not run.holds_run:
        return _fresh(given, argv)
    config, _ = read_config(run.path)
    for name, value in given.items():
        if name not in _MAY_CHANGE and value != getattr(config, name):
            raise BadInput(f"expected {flag(name)} {getattr(config, name)} as in {run.path}, got {value}")
    return config.replace(**{name: value for name, value in given.items() if name in _MAY_CHANGE}), run


def preset_table() -> str:
    """Names and the values that tell presets apart, one a line."""
    return "".join(f"{name:<30} {_told_apart(preset(name))}\n" for name in PRESETS)


def _told_apart(c: Config) -> str:
    window = f" ({c.window[0]:g}, {c.window[1]:g})" if c.cut != "none" else ""
    what = f"{c.cut}{window}" if c.model == "psde" else c.model
    shown = {"blocks": 6, "width": 3, "steps": 3, "epochs": 4, "lr": 7, "sigma": 5}
    cells = [
        f"{name} {getattr(c, name):<{width}}" for name, width in shown.items() if looks_at(name, c.model, c.member)
    ]
    if looks_at("kappa", c.model, c.member):
        cells.append(f"kappa {c.kl_weight:g}")
    return f"{what:<24} {' '.join(cells)}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
