"""Checkpoints: a directory `epoch-E-batch-B` with state.safetensors, state.json and checksums.json, written atomically.

A checkpoint is written under a temporary name, flushed and renamed; only then are older ones removed. The last two are
kept, and that of the best epoch. A checkpoint that is damaged is named and set aside as `damaged-NAME`, and the one
before it is used. Nothing is pickled.
"""

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from bnneval.strict_json import dumps
from psdenets.errors import BadInput
from psdenets.runs.checksums import Folder
from psdenets.runs.digests import Damaged
from psdenets.runs.files import flush
from psdenets.runs.weights import FORMAT, TensorFile, save_weights

_KEPT = 2
_TENSORS, _VALUES = "state.safetensors", "state.json"
_log = logging.getLogger("psdenets")

Check = Callable[[dict[str, Any], TensorFile], None]


@dataclass(frozen=True)
class Snapshot:
    """Tensors by name, and everything else as JSON."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Tensors called prefix.NAME, by NAME."""
        start = prefix + "."
        return {name.removeprefix(start): tensor for name, tensor in self.tensors.items() if name.startswith(start)}


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a run; the newest one that can be read is loaded.

    Attributes:
        folder: the directory of all checkpoints.
        run: the id of the run, see `psdenets.runs.checksums`; checkpoints of other runs are refused. None accepts any.
    """

    folder: Path
    run: str | None = None

    def save(self, place: str, snapshot: Snapshot, best: str | None = None) -> None:
        """Write a checkpoint named `place`, then remove older ones, except the one before it and that of `best`.

        Names of places must sort by time.
        """
        final = self.folder / place
        temporary = self.folder / f".{final.name}.{os.getpid()}.tmp"
        try:
            if temporary.exists():  # of a killed process that had the same number
                shutil.rmtree(temporary)
            temporary.mkdir(parents=True)
            save_weights(snapshot.tensors, temporary / _TENSORS)
            (temporary / _VALUES).write_text(dumps({"format": FORMAT, **snapshot.values}), encoding="utf-8")
            for name in (_TENSORS, _VALUES):
                flush(temporary / name)
            Folder(temporary, self.run).record((_TENSORS, _VALUES))
            flush(temporary)
            if final.exists():  # stopped again before completing a step, so the content is the same
                shutil.rmtree(temporary)
                return
            temporary.rename(final)
            flush(self.folder)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise BadInput(f"could not write {final}: {error}; the checkpoint before it is untouched") from None
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        self._remove_old(best)

    def load(self, check: Check = lambda _values, _tensors: None) -> Snapshot | None:
        """The newest checkpoint that can be read, or None if there are no checkpoints.

        Newer ones are set aside, with a line that says what is wrong with them.

        Args:
            check: raises `BadInput` if the values, or the shapes of the tensors, are not those of this run. Called
                before tensors are read.

        Raises:
            BadInput: if there are checkpoints, but none can be read.
        """
        damaged: list[tuple[Path, BadInput]] = []
        for path in reversed(self._all()):
            try:
                snapshot = self._read(path, check)
            except Damaged as error:
                damaged.append((path, error))
                continue
            for bad, why in damaged:
                self._set_aside(bad, why, path)
            return snapshot
        if damaged:
            others = f"; no other checkpoint of {len(damaged)} can be read either" if len(damaged) > 1 else ""
            raise BadInput(f"{damaged[0][1]}{others}")
        return None

    def _read(self, path: Path, check: Check) -> Snapshot:
        folder = Folder(path, self.run)
        values = folder.read_json(_VALUES, {"format": int, ...: object})
        if values.pop("format") != FORMAT:
            raise BadInput(f"expected a checkpoint of format {FORMAT} in {path}, got another; from another version?")
        tensors = TensorFile.open(folder, _TENSORS)
        try:
            check(values, tensors)
        except Damaged:
            raise
        except BadInput as error:
            raise Damaged(f"{path}: {error}") from None
        return Snapshot(tensors.read(), values)

    def _set_aside(self, path: Path, error: BadInput, used: Path) -> None:
        """Rename a damaged checkpoint, so that a good one can take its place."""
        aside = path.with_name(f"damaged-{path.name}")
        shutil.rmtree(aside, ignore_errors=True)
        try:
            path.rename(aside)
        except OSError as failure:
            raise BadInput(f"{error}; could not rename {path}: {failure.strerror}") from None
        _log.warning(f"checkpoint {path.name} cannot be used ({error}); continuing from {used.name} instead")

    def _all(self) -> list[Path]:
        return sorted(self.folder.glob("epoch-*")) if self.folder.is_dir() else []

    def _remove_old(self, best: str | None) -> None:
        for path in self._all()[:-_KEPT]:
            if path.name != best:
                shutil.rmtree(path, ignore_errors=True)
