"""The form of a JSON value: types, ranges and keys.

str, bool, int, dict, None          values of this type; True is not a whole number
float                               numbers, infinities among them
Number(int, 0)                      numbers of at least 0
(float, None)                       one of several forms
[int], [float, float]               lists of any length of one form; lists of these entries
{"a": int, "b?": str}               objects with these keys; b may be missing, and others are refused
{"a": int, ...: object}             further keys are allowed
{str: float}                        objects with any keys
object                              anything
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from psdenets.errors import BadInput

_WORDS: dict[Any, str] = {
    str: "text", bool: "true or false", int: "a whole number", float: "a number", dict: "an object", None: "null",
}  # fmt: skip


class Number(NamedTuple):
    """A number of at least `least`."""

    kind: type
    least: float


COUNT = Number(int, 0)
SECONDS = Number(float, 0)


def require(value: Any, schema: Any, where: str = "") -> None:
    """Raise `BadInput` unless the value has this form; `where` is the place of the value in its file.

    Example:
        >>> require({"epoch": 1, "loss": [0.5]}, {"epoch": COUNT, "loss": [float]})
        >>> require({"epoch": -1}, {"epoch": COUNT})
        Traceback (most recent call last):
        psdenets.errors.BadInput: expected a whole number of at least 0 for epoch, got -1
    """
    if isinstance(schema, Mapping):
        _require_object(value, schema, where)
    elif isinstance(schema, list):
        _require_list(value, schema, where)
    elif isinstance(schema, tuple) and not isinstance(schema, Number):
        _require_one(value, schema, where)
    elif not _is(value, schema):
        raise BadInput(f"expected {_words(schema)}{_at(where)}, got {_shown(value)}")


def _require_object(value: Any, schema: Mapping[Any, Any], where: str) -> None:
    if not isinstance(value, dict):
        raise BadInput(f"expected an object{_at(where)}, got {_shown(value)}")
    if str in schema:
        for key, inner in value.items():
            require(inner, schema[str], f"{where}.{key}" if where else key)
        return
    named = {key.removesuffix("?"): (key, form) for key, form in schema.items() if key is not ...}
    for key, (spelled, form) in named.items():
        if key in value:
            require(value[key], form, f"{where}.{key}" if where else key)
        elif not spelled.endswith("?"):
            raise BadInput(f"expected {key}{_at(where)}, got an object without it")
    for key in value.keys() - named.keys():
        if ... not in schema:
            raise BadInput(f"unknown key {_shown(key)}{_at(where)}")
        require(value[key], schema[...], f"{where}.{key}" if where else key)


def _require_list(value: Any, schema: list[Any], where: str) -> None:
    if not isinstance(value, list) or (len(schema) > 1 and len(value) != len(schema)):
        raise BadInput(f"expected a list{f' of {len(schema)}' * (len(schema) > 1)}{_at(where)}, got {_shown(value)}")
    for k, inner in enumerate(value):
        require(inner, schema[k % len(schema)], f"{where}[{k}]")


def _require_one(value: Any, schema: tuple[Any, ...], where: str) -> None:
    errors = []
    for form in schema:
        try:
            return require(value, form, where)
        except BadInput as error:
            errors.append(error)
    raise errors[0]


def _is(value: Any, schema: Any) -> bool:
    if isinstance(schema, Number):
        return _is(value, schema.kind) and value >= schema.least
    if schema is None or schema is bool or schema is object:
        return schema is object or (value is None if schema is None else isinstance(value, bool))
    if schema in (int, float):
        kinds = int if schema is int else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool) and value == value  # not NaN
    return isinstance(value, schema)


def _words(schema: Any) -> str:
    return f"{_WORDS[schema.kind]} of at least {schema.least:g}" if isinstance(schema, Number) else _WORDS[schema]


def _at(where: str) -> str:
    return f" for {where}" if where else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
