"""Parse command lines: every option of `Config` is a flag, and errors are reported in one line."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from psdenets.config import ALIASES, Config, Known, known_options
from psdenets.errors import BadInput, did_you_mean, printable
from psdenets.option_help import COMMANDS
from psdenets.options.fields import flag, from_text
from psdenets.presets import values_of

INTERRUPTED = 130  # exit status of a command ended by Ctrl-C


class OneLineParser(argparse.ArgumentParser):
    """An argparse parser that raises `BadInput` instead of printing the usage."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message)


def run(name: str, main: Callable[[Sequence[str]], int], argv: Sequence[str] | None) -> int:
    """Call a command; for `BadInput` and Ctrl-C, print one line on standard error and return exit status 2 or 130."""
    try:
        return main(sys.argv[1:] if argv is None else argv)
    except BadInput as error:
        sys.stderr.write(f"{name}: error: {printable(' '.join(str(error).split()))}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(f"{name}: interrupted\n")
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 1


class Given(NamedTuple):
    """A parsed command line: options from the `--config` file, options given as flags, and the other flags."""

    file: dict[str, Any]
    flags: dict[str, Any]
    commands: dict[str, Any]

    @property
    def options(self) -> dict[str, Any]:
        """All options; flags override the file."""
        return {**self.file, **self.flags}


def parse(argv: Sequence[str]) -> Given:
    """Parse the command line of `python -m psdenets.train`."""
    known = {**known_options(), **{alias: known_options()[name] for alias, name in ALIASES.items()}}
    parser = OneLineParser(add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("-h", "--help", nargs="?", const="")
    parser.add_argument("--config")
    for name in COMMANDS.keys() - {"--help", "--config"}:
        parser.add_argument(name, action="store_true")
    for name, option in known.items():
        parser.add_argument(flag(name), action=argparse.BooleanOptionalAction if option.kind is bool else "store")
    _refuse_unknown(parser, argv)
    values = vars(parser.parse_args(list(argv)))
    commands = {name: values.pop(name) for name in values.keys() - known.keys()}
    flags = {name: _read(known[name], value) for name, value in values.items()}
    file = commands.pop("config", None)
    return Given({} if file is None else _file(Path(file), known), flags, commands)


def _refuse_unknown(parser: argparse.ArgumentParser, argv: Sequence[str]) -> None:
    spelled = [option for action in parser._actions for option in action.option_strings]
    for arg in argv:
        name = arg.partition("=")[0]
        if name.startswith("--") and len(name) > 2 and name not in spelled:
            raise BadInput(f"unknown flag {name}{did_you_mean(name.replace('_', '-'), spelled, cutoff=0.5)}")


def _file(path: Path, known: dict[str, Known]) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"expected a readable YAML or JSON file for --config, got {path}: {error}") from None
    if not isinstance(values, dict):
        raise BadInput(f"expected options by name in {path}, got {type(values).__name__}")
    return {name: _read(known[name], value) if name in known else value for name, value in values.items()}


def _read(option: Known, value: Any) -> Any:
    """Convert a value from a file to the type of its option: in YAML 1e-3 is text, and `blocks: 2` is a number."""
    if isinstance(value, str):
        return from_text(option.kind, value)
    return str(value) if option.kind is str and isinstance(value, int) and not isinstance(value, bool) else value


def configure(given: Given) -> Config:
    """Build the config; later values win: defaults, defaults of the system, preset, config file, flags."""
    preset = given.options.get("preset")
    config = Config.read({**(values_of(preset) if preset else {}), **given.file}, **given.flags)
    for name, message in config.idle().items():
        if name in given.flags:
            raise BadInput(message)
    return _with_budget(config)


def _with_budget(config: Config) -> Config:
    """Set --max-seconds to the training time of the run given by --max-seconds-of."""
    source = None if config.system.training is None else config.training.max_seconds_of
    if source is None:
        return config
    from psdenets.runs.forms import read_metrics

    if not (Path(source) / "metrics.json").is_file():
        raise BadInput(f"expected a finished run with metrics.json in --max-seconds-of, got {source}")
    return config.replace(max_seconds=read_metrics(Path(source))["seconds"])
