"""One writer per directory.

A process that writes to a directory holds an exclusive lock (`flock`) on `.lock` in it, which also says who that is:
host, process id, start of the process, time. The operating system releases the lock when the process ends, whatever the
reason, so a lock that can be acquired belongs to nobody. If the file still names an owner, that process was killed, and
its place is taken with a line that says so. Process ids repeat, in containers on every start, so a process is the owner
only if it also started when the owner did.

On file systems without `flock`, only the recorded owner counts: two processes that start at the same moment are then
not kept apart.
"""

import json
import logging
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from psdenets.errors import BadInput

NAME = ".lock"
_log = logging.getLogger("psdenets")


class Owner(NamedTuple):
    """Who holds a lock."""

    host: str
    pid: int
    started: str  # of the process, in clock ticks since the start of a boot with this id; empty if unknown
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"

    @property
    def alive(self) -> bool:
        """Whether it is another process of this machine that still runs."""
        here = self.host == platform.node() and self.pid != os.getpid()
        return here and bool(self.started) and self.started == started(self.pid)


@contextmanager
def only_writer(folder: Path, *, new: bool = False) -> Iterator[None]:
    """Context in which no other process writes to a directory; creates it if it is missing.

    If the directory is empty in the end, and was created here or is `new`, it is removed again, and so are the
    directories around it that were created for it.

    Raises:
        BadInput: if another process writes to it.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = _acquired(folder)
    except OSError as error:
        raise BadInput(f"could not write to {folder}: {error.strerror}") from None
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / NAME).unlink()
        os.close(handle)
        with suppress(OSError):  # it is not empty
            for path in missing or [folder, folder.parent] * new:
                path.rmdir()


def _acquired(folder: Path) -> int:
    """A locked file handle whose file names this process as the owner."""
    path = folder / NAME
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            free = _flock(handle)
            owner = _read(handle)
            if not free or (owner is not None and owner.alive):
                raise BadInput(f"{folder} is in use by {owner or 'another process'}: wait for it to end, or stop it")
            if _is_file(handle, path):
                break
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # its owner removed it before it could be locked
    if owner is not None:
        _log.warning(f"{folder} was in use by {owner}, which has ended without finishing; taking over")
    _write(handle)
    return handle


def _flock(handle: int) -> bool:
    """Lock a file; False if another process has locked it. True if the file system has no locks."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _read(handle: int) -> Owner | None:
    """The recorded owner; None if the file is empty or only half written."""
    try:
        values = json.loads(os.pread(handle, 4096, 0))
        return Owner(str(values["host"]), int(values["pid"]), str(values["started"]), str(values["since"]))
    except (ValueError, KeyError, TypeError):
        return None


def _write(handle: int) -> None:
    owner = Owner(platform.node(), os.getpid(), started(os.getpid()), time.strftime("%Y-%m-%d %H:%M:%S %z"))
    os.ftruncate(handle, 0)
    os.pwrite(handle, json.dumps(owner._asdict()).encode(), 0)


def started(pid: int) -> str:
    """When a process of this machine started; empty if there is no such process, or the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}:{fields[19]}"
    except OSError:
        return ""
