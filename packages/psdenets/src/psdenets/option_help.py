"""The help text of `python -m psdenets.train`: the most used flags, and all flags in groups that fit on a screen."""

import textwrap
import typing
from typing import Literal

from psdenets.config import GROUPS, Known, known_options
from psdenets.errors import BadInput
from psdenets.options.fields import flag
from psdenets.systems import SYSTEMS

_USAGE = """usage: python -m psdenets.train [--FLAG VALUE ...]

Train an image classifier whose weights are noisy on part of depth or on part of their coordinates.
Without flags: the handwritten digits of scikit-learn, noise on the last tenth of depth.
"""
COMMANDS = {
    "--resume": "resume the run in --out if one exists",
    "--allow-code": "with --resume: allow the run's custom code to be executed",
    "--config": "take values from this YAML or JSON file; flags override it",
    "--print_config": "print all values and exit",
    "--list-presets": "print the presets and exit",
    "--help": "print this text, or the flags of a group if one is named",
    "--help-all": "print all groups",
}
_MOST_USED = """
cut order ratio share t1 t2 at_t2 scope model head preset dataset data_root limit_train limit_test epochs steps
batch_size samples test_samples kappa seed out device max_seconds
"""
_TOPICS = [*(group.replace(" ", "-") for group in GROUPS), "systems"]
_COLUMN, _WIDTH = 21, 110


def most_used() -> str:
    """Usage, the most used flags, and the names of the groups."""
    known = known_options()
    lines = [_USAGE, "Most used flags:"]
    lines += [*(_line(flag(name), _described(known[name])) for name in _MOST_USED.split()), ""]
    lines += [*(_line(name, text) for name, text in COMMANDS.items()), ""]
    lines += ["All flags: --help-all, or --help GROUP with GROUP one of", f"  {', '.join(_TOPICS)}", ""]
    return "\n".join(lines)


def group_help(name: str) -> str:
    """The flags of one group, or the table of systems."""
    if name == "systems":
        return "\n".join(["systems (--model):", *(_line(s.name, s.summary) for s in SYSTEMS.values()), ""])
    title = name.replace("-", " ")
    if title not in GROUPS:
        raise BadInput(f"expected --help with one of {', '.join(_TOPICS)}, got {name}")
    chosen = {key: option for key, option in known_options().items() if option.group == title}
    return "\n".join([f"{title}:", *(_line(flag(key), _described(option)) for key, option in chosen.items()), ""])


def all_groups() -> str:
    """All flags, by group."""
    return "\n".join(map(group_help, _TOPICS))


def _described(option: Known) -> str:
    choices = typing.get_args(option.kind) if typing.get_origin(option.kind) is Literal else option.registry or ()
    listed = f" {{{', '.join(choices)}}}" if choices else ""
    default = f" (default {option.default})" if option.default is not None and option.default is not False else ""
    if option.default is True:
        default = " (the default; its --no- form turns it off)"
    return f"{option.text}{listed}{default}"


def _line(name: str, text: str) -> str:
    """A name and its text in two columns; a name too long for the first column gets its own line."""
    indent = " " * _COLUMN
    lead = f"  {name}".ljust(_COLUMN) if len(name) + 3 < _COLUMN else f"  {name}\n{indent}"
    body = textwrap.wrap(text, _WIDTH - _COLUMN) or [""]
    return lead + f"\n{indent}".join(body)
