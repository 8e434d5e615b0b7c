"""The files of a run. Everything is written beside its place, flushed, and moved there: half a file is never seen."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psdenets.config import Config
from psdenets.errors import BadInput
from psdenets.spec import ImageSpec


@dataclass(frozen=True)
class RunDir:
    """A run directory: config.json, data.json, metrics.jsonl, checkpoints/, and at the end the results."""

    path: Path

    @classmethod
    def choose(cls, config: Config) -> RunDir:
        """--out, or a new name under ./runs."""
        if config.out is not None:
            return cls(Path(config.out))
        cut = f"{config.cut}-{config.order}" if config.cut in ("vertical", "both") else config.cut
        stem = config.preset or f"{config.dataset}-{cut if config.model == 'psde' else config.model}"
        names = (f"{stem}-seed{config.seed}{'' if n == 1 else f'-{n}'}" for n in range(1, 10_000))
        return cls(next(Path("runs") / name for name in names if not (Path("runs") / name).exists()))

    @property
    def holds_run(self) -> bool:
        """Whether a run was begun here."""
        return self.file("config.json").exists()

    @property
    def finished(self) -> bool:
        """Whether a run was finished here: metrics.json is written last."""
        return self.file("metrics.json").exists()

    def file(self, name: str) -> Path:
        """Path of a file of the run."""
        return self.path / name

    def begin(self, config: Config, spec: ImageSpec, sizes: dict[str, int]) -> None:
        """Create the directory; one that holds a run or anything else is left alone."""
        if self.holds_run:
            raise BadInput(f"expected a new --out, got {self.path}, which holds a run; --resume goes on with it")
        if self.path.exists() and (not self.path.is_dir() or any(map(_foreign, self.path.iterdir()))):
            raise BadInput(f"expected a new or empty --out, got {self.path}, which is neither")
        write_json(self.file("data.json"), {"images": spec.as_dict(), "sizes": sizes, "versions": versions()})
        write_json(self.file("config.json"), {**config.as_dict(), "out": str(self.path)})


def _foreign(path: Path) -> bool:
    """Whether a file was not left by a run that was killed before it had begun."""
    return not (path.name == "data.json" or (path.name.startswith(".") and path.name.endswith(".tmp")))


def atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Write a file through ``write``, so that ``path`` holds the old content or the new one, whatever happens."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(beside)
        flush(beside)
        beside.replace(path)
        flush(path.parent)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise BadInput(
            f"could not write {path}: {error.strerror or error}; what was there before is untouched"
        ) from None
    except BaseException:
        beside.unlink(missing_ok=True)
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
    atomically(path, lambda beside: _write_text(beside, text))


def write_lines(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """Atomically, one JSON object a line."""
    text = "".join(json.dumps(record, allow_nan=False) + "\n" for record in records)
    atomically(path, lambda beside: _write_text(beside, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text)


def versions() -> dict[str, str]:
    """What a result depends on besides config and seed."""
    import torch

    import psdenets
    import sdeweights

    return {
        "psdenets": psdenets.__version__,
        "sdeweights": sdeweights.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": str(torch.get_num_threads()),
    }
