"""Images in a file: a folder of pictures is decoded once, and training reads batches of 8-bit pixels from the cache.

    CACHE/NAME-KEY/pixels     uint8, N x C x H x W, in the order of the files
    CACHE/NAME-KEY/about.json shape, labels, sums for mean and std, broken pictures, SHA-256 of pixels and labels

KEY is a hash of the path, size and modification time of every file, of the image size and of how pictures are fitted,
so a changed folder is decoded again. The order of the images does not depend on the number of workers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import torch

from psdenets.data.pictures import read_picture
from psdenets.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

VERSION = 1  # changes whenever a picture would be decoded to other pixels
_CHUNK = 256  # pictures that are decoded before they are written

Progress = Callable[[int, int], None]


def unseen(done: int, total: int) -> None:
    """Show no progress."""


@final
@dataclass(frozen=True, eq=False)
class StoredPixels:
    """Images in a file, uint8 (N, C, H, W). Indexing reads some of them as a tensor; only those are in memory."""

    path: Path
    total: int  # images in the file
    size: tuple[int, int, int]  # C, H, W
    rows: Tensor  # which of them, int64 (N,)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def shape(self) -> torch.Size:
        """(N, C, H, W)."""
        return torch.Size((len(self), *self.size))

    def is_floating_point(self) -> bool:
        """False: pixels have 8 bits."""
        return False

    def at(self, indices: Tensor | slice) -> StoredPixels:
        """Some of these images, without reading them."""
        return StoredPixels(self.path, self.total, self.size, self.rows[indices])

    def __getitem__(self, index: Any) -> Tensor:
        rows = self.rows[index].numpy()
        try:  # mapped for one access only, so pages that were read do not count as memory of this process
            pixels = np.memmap(self.path, np.uint8, "r", shape=(self.total, *self.size))
            return torch.from_numpy(np.array(pixels[rows]))
        except (OSError, ValueError) as error:
            raise BadInput(
                f"expected decoded pictures in {self.path}, got {error}; --resume decodes them again"
            ) from None


class PictureFile(NamedTuple):
    """An image file of a folder, and the index of its class."""

    path: Path
    label: int


@dataclass(frozen=True)
class Decoding:
    """How pictures are decoded, and where the result is kept."""

    size: int  # height and width
    aspect: str = "pad"
    cache: Path = field(default_factory=lambda: cache_folder(None))
    workers: int = 1
    progress: Progress = unseen


class Stored(NamedTuple):
    """The decoded pictures of a folder."""

    pixels: StoredPixels
    labels: Tensor
    sums: list[list[int]]  # of the values and of their squares, per channel
    broken: list[list[str]]  # path and reason
    checksum: str  # SHA-256 of pixels and labels

    def moments(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and std of every channel, in [0, 1]."""
        n = len(self.pixels) * self.pixels.size[1] * self.pixels.size[2]
        mean, square = (np.array(s, np.float64) / n for s in self.sums)
        std = np.sqrt(np.maximum(square - mean**2, 0))
        return tuple((mean / 255).tolist()), tuple((std / 255).clip(1e-3).tolist())


def cache_folder(given: str | None) -> Path:
    """Where decoded pictures are kept: --cache-dir, else $XDG_CACHE_HOME/psdenets, else ~/.cache/psdenets."""
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "psdenets"


def stored(files: Sequence[PictureFile], root: Path, how: Decoding) -> Stored:
    """The decoded pictures of a folder, from the cache if it has them; pictures that cannot be read are left out."""
    name = re.sub(r"[^\w.-]+", "-", root.absolute().name)[:40] or "pictures"
    folder = how.cache / f"{name}-{_key(files, root, how)[:24]}"
    found = _read(folder)
    if found is None:
        _build(files, root, how, folder)
        found = _read(folder)
    if found is None:
        raise BadInput(f"expected decoded pictures in {folder}, got others; delete it, or choose another --cache-dir")
    return found


def _key(files: Sequence[PictureFile], root: Path, how: Decoding) -> str:
    found = hashlib.sha256(f"{VERSION} {how.size} {how.aspect} {root.absolute()}".encode(errors="surrogateescape"))
    for path, label in files:
        about = path.stat()
        line = f"\0{path.relative_to(root)}\0{label} {about.st_size} {about.st_mtime_ns}"
        found.update(line.encode(errors="surrogateescape"))
    return found.hexdigest()


def _read(folder: Path) -> Stored | None:
    """The content of a folder of the cache; None if it is missing or damaged."""
    try:
        about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
        total, *size = about["shape"]
        if (folder / "pixels").stat().st_size != int(np.prod(about["shape"])) or len(about["labels"]) != total:
            return None
    except (OSError, ValueError, KeyError):
        return None
    pixels = StoredPixels(folder / "pixels", total, (size[0], size[1], size[2]), torch.arange(total))
    return Stored(pixels, torch.tensor(about["labels"]), about["sums"], about["broken"], about["checksum"])


def _build(files: Sequence[PictureFile], root: Path, how: Decoding, folder: Path) -> None:
    """Decode all pictures into a temporary folder, then rename it."""
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    try:
        temporary.mkdir(parents=True)
        with (temporary / "pixels").open("wb") as file:
            about = _decoded(files, root, how, file)
        (temporary / "about.json").write_text(json.dumps(about), encoding="utf-8")
        if _read(folder) is None:  # unless another process was faster
            shutil.rmtree(folder, ignore_errors=True)
            temporary.rename(folder)
    except OSError as error:
        raise BadInput(f"could not write {folder}: {error.strerror or error}; choose another --cache-dir") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _decoded(files: Sequence[PictureFile], root: Path, how: Decoding, file: Any) -> dict[str, Any]:
    """Write the pixels of all pictures, and return what else is kept of them."""
    checksum, sums = hashlib.sha256(), np.zeros((2, 3), np.int64)
    labels: list[int] = []
    broken: list[list[str]] = []
    for picture, pixels in _read_all(files, how):
        if isinstance(pixels, BadInput):
            broken.append([str(picture.path.relative_to(root)), str(pixels)])
            continue
        file.write(pixels.tobytes())
        checksum.update(pixels.tobytes())
        values = pixels.astype(np.int64)
        sums += np.stack([values.sum((1, 2)), (values**2).sum((1, 2))])
        labels.append(picture.label)
    checksum.update(np.array(labels, np.int64).tobytes())
    shape = [len(labels), 3, how.size, how.size]
    return {"shape": shape, "labels": labels, "sums": sums.tolist(), "broken": broken, "checksum": checksum.hexdigest()}


def _read_all(files: Sequence[PictureFile], how: Decoding) -> Iterator[tuple[PictureFile, np.ndarray | BadInput]]:
    """Each file with its pixels (3, H, W), or why it cannot be read; decoders release Python's lock."""

    def read(picture: PictureFile) -> np.ndarray | BadInput:
        try:
            pixels = read_picture(picture.path, 3, (how.size, how.size), how.aspect)
        except BadInput as error:
            return error
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))

    said = time.monotonic()
    with ThreadPoolExecutor(how.workers) as pool:
        for first in range(0, len(files), _CHUNK):
            chunk = files[first : first + _CHUNK]
            yield from zip(chunk, pool.map(read, chunk), strict=True)
            if time.monotonic() - said > 2:
                said = time.monotonic()
                how.progress(first + len(chunk), len(files))
