"""Length and SHA-256 of files, and how files are read: regular ones only, and no more of them than expected."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

from psdenets.errors import BadInput

_MOST = 2**28  # bytes that are read of a file without a recorded length


class Damaged(BadInput):
    """A file is not what was written: missing, of another length or content, or not in the expected form."""


class Digest(NamedTuple):
    """Length and SHA-256 of a file."""

    bytes: int
    sha256: str

    def __str__(self) -> str:
        return f"{self.bytes:,} bytes with SHA-256 {self.sha256[:12]}..."


def digest_of(path: Path) -> Digest:
    """Length and SHA-256 of a regular file, read in pieces."""
    digest, length = hashlib.sha256(), 0
    with opened(path) as file:
        while piece := file.read(2**20):
            digest.update(piece)
            length += len(piece)
    return Digest(length, digest.hexdigest())


def read(path: Path, length: int | None) -> tuple[Digest, bytes]:
    """A file's digest and content, of which no more than `length` bytes and one are read."""
    with opened(path) as file:
        content: bytes = file.read((_MOST if length is None else length) + 1)
    if length is None and len(content) > _MOST:
        raise Damaged(f"expected at most {_MOST:,} bytes in {path}, got more")
    return Digest(len(content), hashlib.sha256(content).hexdigest()), content


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A regular file, opened for reading; named pipes and devices, which may never end, raise `Damaged`."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Damaged(f"expected a regular file, got {path}")
            yield file
    except OSError as error:
        gone = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO, errno.ELOOP, errno.ENXIO)
        raise (Damaged if gone else BadInput)(f"could not read {path}: {error.strerror}") from None
