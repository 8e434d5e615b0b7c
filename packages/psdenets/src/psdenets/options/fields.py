"""Options are fields with a help text, a type and a rule. They form groups, of which each system has some.

    class NetOptions(Group, group="network"):
        width: int = option(32, "channels inside f_h", at_least(1))

    class OdenetOptions(SystemOptions):                                     the options of a system
        process: ProcessOptions = part(ProcessOptions, only=("theta",))     open some fields of a group
        cut: CutOptions = part(CutOptions, only=(), cut="full")             and fix others

In Python, options are nested (`options.cut.ratio`); in files and on the command line they are flat (`ratio`). Each name
belongs to at most one group of a system.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple

from psdenets.errors import BadInput
from psdenets.references import is_reference


class Rule(NamedTuple):
    """A condition on a value and its description, for messages like "expected --epochs at least 1, got 0"."""

    words: str
    holds: Callable[[Any], bool]


def at_least(n: float) -> Rule:
    """value >= n."""
    return Rule(f"at least {n}", lambda value: value >= n)


def above(n: float) -> Rule:
    """value > n."""
    return Rule(f"above {n}", lambda value: value > n)


THREADS = Rule("from 1 to 1024", lambda value: 1 <= value <= 1024)  # far more end torch with a segmentation fault
OPEN_UNIT = Rule("in (0, 1)", lambda value: 0 < value < 1)
ABOVE_0_TO_1 = Rule("in (0, 1]", lambda value: 0 < value <= 1)
FROM_0_BELOW_1 = Rule("in [0, 1)", lambda value: 0 <= value < 1)
SIZES = Rule(
    'like "2-2-2", every number at least 1',
    lambda value: all(part.isdecimal() and int(part) >= 1 for part in value.split("-")),
)


def numbers(kind: type, value: float | str) -> tuple[Any, ...]:
    """The numbers of a list as text, or a single number; empty if they are not increasing numbers of this kind.

    Example:
        >>> numbers(int, "2,4,8"), numbers(float, 0.5), numbers(int, "4,2")
        ((2, 4, 8), (0.5,), ())
    """
    with suppress(ValueError):
        found = tuple(kind(part) for part in str(value).split(","))
        return found if all(a < b for a, b in pairwise(found)) else ()
    return ()


COUNTS = Rule("like 6 or 2,4,8, increasing and at least 1", lambda value: min(numbers(int, value), default=0) >= 1)
FRACTIONS = Rule(
    "like 0.5 or 0.5,0.8, increasing and in (0, 1)",
    lambda value: bool(numbers(float, value)) and all(0 < part < 1 for part in numbers(float, value)),
)


def option(default: Any, text: str, rule: Rule | None = None, registry: Mapping[str, str] | None = None) -> Any:
    """A field with a help text and a rule; with a registry, a value is one of its names or `module:attribute`."""
    if registry is not None:
        words = f"to be one of {', '.join(registry)} or module:attribute"
        rule = Rule(words, lambda value: value in registry or is_reference(value))
    return dataclasses.field(default=default, metadata={"help": text, "rule": rule, "registry": registry})


def flag(name: str) -> str:
    """The command-line spelling of a field: at_t2 is --at-t2."""
    return "--" + name.replace("_", "-")


def check(group: Any) -> None:
    """Raise `BadInput` for the first field whose value has the wrong type or violates its rule."""
    hints = typing.get_type_hints(type(group))
    for item in dataclasses.fields(group):
        if "help" not in item.metadata:
            continue
        value, rule = getattr(group, item.name), item.metadata["rule"]
        if _is(value, float | None) and hints[item.name] in (float, float | None):
            value = value if value is None else float(value)
            object.__setattr__(group, item.name, value)
        if not _is(value, hints[item.name]):
            raise BadInput(f"expected {flag(item.name)} to be {kind_words(hints[item.name])}, got {value}")
        if value is not None and rule is not None and not rule.holds(value):
            shown = repr(value) if isinstance(value, str) else value
            raise BadInput(f"expected {flag(item.name)} {rule.words}, got {shown}")


@typing.dataclass_transform(frozen_default=True)
class Group:
    """A group of options: a frozen dataclass, validated on construction; `group` is its title in `--help`."""

    group: ClassVar[str]

    def __init_subclass__(cls, group: str) -> None:
        cls.group = group
        dataclasses.dataclass(frozen=True)(cls)

    def __post_init__(self) -> None:
        check(self)
        self.check_together()

    def check_together(self) -> None:
        """Raise `BadInput` if the values are inconsistent with each other."""

    def idle(self) -> dict[str, str]:
        """Options that have no effect given the others, with the error message for setting them."""
        return {}


class Part(NamedTuple):
    """A group within the options of a system: which fields can be set, and the fixed values of others."""

    kind: type[Group]
    open: tuple[str, ...]
    fixed: Mapping[str, Any]


def filled(parts: Mapping[str, Part], flat: Mapping[str, Any]) -> dict[str, Any]:
    """The groups with their values among the flat ones."""
    return {
        name: part.kind(**part.fixed, **{key: flat[key] for key in part.open if key in flat})
        for name, part in parts.items()
    }


def part(kind: type[Group], *, only: Sequence[str] | None = None, without: Sequence[str] = (), **fixed: Any) -> Any:
    """A field: a group of which only some fields (by default all) can be set, and others have fixed values."""
    names = kind.__annotations__ if only is None else only
    found = Part(kind, tuple(name for name in names if name not in without and name not in fixed), fixed)
    return dataclasses.field(metadata={"part": found})


def _is(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return any(_is(value, inner) for inner in typing.get_args(kind))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))


def kind_words(kind: Any) -> str:
    """A type in words: "a whole number", "one of 'none', 'full'"."""
    if typing.get_origin(kind) is Literal:
        return f"one of {', '.join(map(repr, typing.get_args(kind)))}"
    if isinstance(kind, types.UnionType):
        return kind_words(typing.get_args(kind)[0])
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, "text")


def from_text(kind: Any, text: str) -> Any:
    """Convert text from a command line or a file to a value; returns the text itself if it cannot be converted.

    Example:
        >>> from_text(float | None, "1e-3"), from_text(float | None, "null"), from_text(int, "many")
        (0.001, None, 'many')
    """
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in kinds and text == "null":
        return None
    for number in (int, float):
        if number in kinds:
            with suppress(ValueError):
                return number(text)
    return {"true": True, "false": False}.get(text, text) if bool in kinds else text
