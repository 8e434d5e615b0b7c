"""The options of a system are composed of groups, some of whose fields are open and the others fixed.

    process: ProcessOptions = part(ProcessOptions, only=("theta", "drift"))
    cut: CutOptions = part(CutOptions, only=(), cut="full")

In Python options are nested (`options.cut.ratio`); in files and on the command line they are flat (`ratio`). A name
belongs to at most one group of a system.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any


def part(kind: type, *, only: Sequence[str] | None = None, without: Sequence[str] = (), **fixed: Any) -> Any:
    """A field that holds a group of options.

    Args:
        kind: the dataclass of the group.
        only: the open fields; by default all of them.
        without: fields that are not open.
        **fixed: values of fields that are not open, if they are not the defaults.
    """
    names = [item.name for item in dataclasses.fields(kind)] if only is None else list(only)
    opened = tuple(name for name in names if name not in without and name not in fixed)
    return dataclasses.field(
        default_factory=lambda: kind(**fixed), metadata={"kind": kind, "open": opened, "fixed": fixed}
    )


def names_in(kind: type) -> list[str]:
    """The flat names of all open options."""
    return [name for item in _parts(kind) for name in item.metadata["open"]]


def groups_in(kind: type) -> list[tuple[Any, tuple[str, ...]]]:
    """The dataclass of each group, and its open fields."""
    return [(item.metadata["kind"], item.metadata["open"]) for item in _parts(kind)]


def nested(kind: type, flat: Mapping[str, Any]) -> dict[str, Any]:
    """The groups of a system's options, by field name, with values from flat ones."""
    return {item.name: _group(item.metadata, flat) for item in _parts(kind)}


def flattened(options: Any) -> dict[str, Any]:
    """The flat values of all open options."""
    return {
        name: getattr(getattr(options, item.name), name)
        for item in _parts(type(options))
        for name in item.metadata["open"]
    }


def groups_of(options: Any) -> list[Any]:
    """The groups themselves."""
    return [getattr(options, item.name) for item in _parts(type(options))]


def _parts(kind: type) -> list[dataclasses.Field[Any]]:
    return [item for item in dataclasses.fields(kind) if "kind" in item.metadata]


def _group(metadata: Mapping[str, Any], flat: Mapping[str, Any]) -> Any:
    given = {name: flat[name] for name in metadata["open"] if name in flat}
    return metadata["kind"](**metadata["fixed"], **given)
