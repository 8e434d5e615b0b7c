"""Checkpoints: a directory `epoch-E-batch-B` with state.safetensors and state.json, written atomically.

A checkpoint is written under a temporary name, flushed and renamed; only then is the previous one removed. Nothing is
pickled. Weights of finished models also record the format number.
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from bnneval.strict_json import dumps
from psdenets.errors import BadInput
from psdenets.runs.files import flush, read_json
from psdenets.runs.weights import FORMAT, plain


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
    """The checkpoints of a run; the newest one is loaded."""

    folder: Path

    def save(self, place: str, snapshot: Snapshot) -> None:
        """Write a checkpoint named `place`, then remove older ones; place names must sort by time."""
        final = self.folder / place
        temporary = self.folder / f".{final.name}.{os.getpid()}.tmp"
        try:
            temporary.mkdir(parents=True)
            save_file(plain(snapshot.tensors), temporary / "state.safetensors")
            (temporary / "state.json").write_text(dumps({"format": FORMAT, **snapshot.values}))
            for path in (temporary / "state.safetensors", temporary / "state.json", temporary):
                flush(path)
            if final.exists():  # stopped again before completing a step, so the content is the same
                shutil.rmtree(temporary)
                return
            temporary.rename(final)
            flush(self.folder)
        except Exception as error:
            shutil.rmtree(temporary, ignore_errors=True)
            if isinstance(error, OSError) or "I/O error" in str(error) or "IoError" in str(error):
                raise BadInput(f"could not write {final}: {error}; the checkpoint before it is untouched") from None
            raise
        self._remove_but(final)

    def load(self) -> Snapshot | None:
        """The newest checkpoint, or None."""
        found = sorted(self.folder.glob("epoch-*")) if self.folder.is_dir() else []
        if not found:
            return None
        values = read_json(found[-1] / "state.json")
        if values.pop("format") != FORMAT:
            raise BadInput(
                f"expected a checkpoint of format {FORMAT} in {found[-1]}, got another; from another version?"
            )
        return Snapshot(load_file(found[-1] / "state.safetensors"), values)

    def _remove_but(self, kept: Path) -> None:
        for path in self.folder.iterdir():
            if path.name.lstrip(".").startswith("epoch-") and path != kept:
                shutil.rmtree(path, ignore_errors=True)
