"""Atomic writes, and JSON for results.

Files are written under a temporary name, flushed to disk and renamed, so readers see either the old or the new content,
never half a file. JSON is strict: an infinite metric is the string "Infinity" and NaN is null; see
`bnneval.strict_json`. Files of a run directory also have checksums, see `psdenets.runs.checksums`.
"""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from bnneval.strict_json import dumps, loads
from psdenets.errors import BadInput


def atomically(
    path: Path, write: Callable[[Path], object], before_rename: Callable[[Path], object] = lambda _: None
) -> None:
    """Call `write` with a temporary path, then rename that file to `path`; creates missing folders.

    `before_rename` is called with the temporary path once its content is on disk.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        flush(temporary)
        before_rename(temporary)
        temporary.replace(path)
        flush(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise BadInput(f"could not write {path}: {error.strerror or error}; its earlier content is unchanged") from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def flush(path: Path) -> None:
    """Force a file, or the entries of a directory, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Write text atomically, in UTF-8."""
    atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write strict JSON atomically."""
    write_text(path, json_text(value))


def json_text(value: Any) -> str:
    """Strict JSON on several lines."""
    return dumps(value, indent=2) + "\n"


def lines_text(records: Iterable[dict[str, Any]]) -> str:
    """One strict JSON object per line."""
    return "".join(dumps(record) + "\n" for record in records)


def read_json(path: Path) -> Any:
    """Read a file written by `write_json`; infinities become floats again."""
    return loads(path.read_text(encoding="utf-8"))


def path_of(value: object) -> Path:
    """A path given as text or path; raises `BadInput` for anything else."""
    if not isinstance(value, str | os.PathLike):
        raise BadInput(f"expected a path, got {value!r}")
    return Path(value)
