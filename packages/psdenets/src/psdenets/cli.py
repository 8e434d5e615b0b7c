"""Command lines from the config dataclass: every field a flag, mistakes one line long."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
import typing
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from psdenets.config import ADAPTIVE, Config, flag
from psdenets.errors import BadInput
from psdenets.presets import values_of
from psdenets.systems import LOOKED_AT_BY, PROCESSES, looks_at, values_of_model

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

SWITCHES = ("download", "compile")  # flags without a value
_CHOOSE_DEFAULTS = ("model", "dataset", "member")

# Flags that would do nothing with some cuts, and the cuts with which they do something.
_ONLY_WITH = {
    "ratio": ("vertical", "both"),
    "order": ("vertical", "both"),
    "at_t2": ("vertical", "both"),
    "scope": ("vertical", "both"),
    "sde_steps": ("vertical", "both"),
    "share": ("horizontal", "both"),
    "drift_deterministic": ("horizontal", "both"),
}


class OneLineParser(argparse.ArgumentParser):
    """argparse that reports a mistake as `BadInput`, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(message)


def run(name: str, main: Callable[[Sequence[str]], int], argv: Sequence[str] | None) -> int:
    """Call a command; a mistake of the user's becomes one line on standard error and exit status 2."""
    try:
        return main(sys.argv[1:] if argv is None else argv)
    except BadInput as error:
        sys.stderr.write(f"{name}: error: {' '.join(str(error).split())}\n")
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 1


def train_parser() -> ArgumentParser:
    """Flags of `python -m psdenets.train`, generated from `Config`."""
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        prog="python -m psdenets.train",
        description="Train an image classifier whose weights are noisy on part of depth or part of their coordinates.",
        exit_on_error=False,
        print_config=None,
        allow_abbrev=False,
    )
    parser.add_argument("--config", action="config", help="take values from this YAML or JSON file")
    parser.add_argument("--print_config", action="store_true", help="print all values and exit")
    parser.add_argument("--list-presets", action="store_true", help="print the presets and exit")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --out, where there is one")
    types = typing.get_type_hints(Config)
    for item in dataclasses.fields(Config):
        if item.name in SWITCHES:
            parser.add_argument(flag(item.name), action="store_true", help=item.metadata["help"])
        else:
            parser.add_argument(
                flag(item.name), type=types[item.name], default=item.default, help=item.metadata["help"]
            )
    return parser


def parse(parser: ArgumentParser, argv: Sequence[str]) -> dict[str, Any]:
    """The values that the command line and its `--config` file give, without defaults."""
    known = [option for action in parser._actions for option in action.option_strings]
    for arg in argv:
        name = arg.partition("=")[0]
        if name.startswith("--") and len(name) > 2 and name not in known:
            near = get_close_matches(name.replace("_", "-"), known, n=1, cutoff=0.5)
            raise BadInput(f"unknown flag {name}{f'; did you mean {near[0]}?' if near else ''}")
    try:
        namespace = parser.parse_args(list(argv), defaults=False)
    except argparse.ArgumentError as error:
        raise BadInput(_readable(str(error))) from None
    values = {key: value for key, value in vars(namespace).items() if key not in ("config", "__default_config__")}
    return {key: value for key, value in values.items() if not (key in SWITCHES and value is False)}


def _readable(message: str) -> str:
    """jsonargparse's message in the words of the command line: "expected --lr to be a number, got x"."""
    found = re.match(r'Parser key "(\w+)":\s*Expected an? (.*)\. Got value: (.*)', message, re.DOTALL)
    if found is None:
        return message
    name, kind, value = found.groups()
    kinds = {"<class 'float'>": "a number", "<class 'int'>": "a whole number", "<class 'str'>": "text"}
    choices = re.match(r"typing\.Literal\[(.*)\]", kind)
    expected = f"one of {choices[1]}" if choices else kinds.get(kind, kind)
    return f"expected {flag(name)} to be {expected}, got {value}"


def configure(given: dict[str, Any], argv: Sequence[str]) -> Config:
    """Defaults, then the model's own, then the preset, then the config file and the flags."""
    preset = given.get("preset")
    told = {**(values_of(preset) if preset else {}), **given}
    typed = {a.partition("=")[0][2:].replace("-", "_") for a in argv if a.startswith("--")}
    defaults = {name: told.get(name, Config.__dataclass_fields__[name].default) for name in _CHOOSE_DEFAULTS}
    if "cut" in typed and defaults["model"] != "psde":
        raise BadInput(f"expected no --cut with the baseline --model {defaults['model']}, got --cut {told['cut']}")
    config = Config(**{**values_of_model(**defaults), **told})
    _refuse_idle(config, typed)
    return _with_budget(config)


def _refuse_idle(config: Config, typed: set[str]) -> None:
    """Flags that would do nothing beside the others are mistakes."""
    for name in sorted(typed & LOOKED_AT_BY.keys()):
        if not looks_at(name, config.model, config.member):
            systems = " or ".join(LOOKED_AT_BY[name])
            raise BadInput(f"expected {flag(name)} with --model {systems} only, got it with --model {config.model}")
    for name, cuts in _ONLY_WITH.items():
        if name in typed and config.cut not in cuts:
            raise BadInput(f"expected {flag(name)} with --cut {' or '.join(cuts)} only, got it with --cut {config.cut}")
    if "t1" in typed and typed & {"ratio", "order"}:
        raise BadInput("expected either --t1 and --t2 or --ratio and --order, got both")
    if typed & {"rtol", "atol"} and config.hidden_method not in ADAPTIVE:
        raise BadInput(
            f"expected --rtol and --atol with an adaptive scheme, got --hidden-method {config.hidden_method}"
        )
    if {"max_seconds", "max_seconds_of"} <= typed:
        raise BadInput("expected either --max-seconds or --max-seconds-of, got both")
    if typed & {"prior_std", "log_std"} and config.model in PROCESSES and config.head != "meanfield":
        raise BadInput("expected --prior-std and --log-std with --head meanfield, got a deterministic head")


def _with_budget(config: Config) -> Config:
    """--max-seconds from the run that --max-seconds-of names."""
    if config.max_seconds_of is None:
        return config
    try:
        seconds = json.loads((Path(config.max_seconds_of) / "metrics.json").read_text())["seconds"]
    except OSError:
        raise BadInput(
            f"expected a finished run with metrics.json in --max-seconds-of, got {config.max_seconds_of}"
        ) from None
    return config.replace(max_seconds=seconds)
