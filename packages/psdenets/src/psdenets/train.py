"""`python -m psdenets.train`: train a classifier and write a run directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from psdenets import cli
from psdenets.config import Config
from psdenets.errors import Interrupted
from psdenets.option_help import all_groups, group_help, most_used
from psdenets.presets import PRESETS, preset


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0 done, 1 diverged, 2 bad input, 128 + n ended by signal n."""
    return cli.run("psdenets.train", _main, argv)


def _main(argv: Sequence[str]) -> int:
    given = cli.parse(argv)
    printed = _printed(given)
    if printed is not None:
        sys.stdout.write(printed)
        return 0
    return _fitted(given)


def _fitted(given: cli.Given) -> int:
    from psdenets.runs.directory import RunDir
    from psdenets.training.fit import fit
    from psdenets.training.loop import Diverged

    out, resume = given.options.get("out"), "resume" in given.commands
    continues = resume and out is not None and RunDir(Path(out)).holds_run
    try:
        if continues:
            fit(given.file, resume=True, allow_code="allow_code" in given.commands, **{**given.flags, "out": out})
        else:
            fit(cli.configure(given), resume=resume)
    except (Interrupted, Diverged) as error:
        sys.stdout.write(f"{error}\n")
        return 1 if isinstance(error, Diverged) else error.status
    return 0


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
