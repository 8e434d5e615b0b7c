"""Atomic writes: a file is written under another name, flushed to disk, and renamed, so half a file is never seen."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from psdenets.errors import BadInput


def atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file through ``write``, so that ``path`` holds the old content or the new one, whatever happens."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        flush(temporary)
        temporary.replace(path)
        flush(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise BadInput(
            f"could not write {path}: {error.strerror or error}; what was there before is untouched"
        ) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def flush(path: Path) -> None:
    """Have the system put a file, or a directory's entries, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """Atomically, as text that any JSON reader takes: NaN and infinity are refused."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    atomically(path, lambda temporary: _write_text(temporary, text))


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Atomically, one JSON object a line."""
    text = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
    atomically(path, lambda temporary: _write_text(temporary, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text)
