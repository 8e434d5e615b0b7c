"""Checksums of the files in a directory: the one writer and the one reader of run directories.

A `Folder` writes its files together with checksums.json, and reads a file only if it has the recorded length and
SHA-256. Run directories, checkpoints, chains of HMC and results of `evaluate` each are such a folder:

    {"format": 1, "run": "5f0c...",                                     a random id, the same in all folders of a run
     "files": {"config.json": [{"bytes": 2210, "sha256": "9ab1..."}], ...},
     "sha256": "77d0..."}                                               of the three entries above

A file and checksums.json cannot change at the same instant, and a process may be killed between any two system calls.
So to replace a file,

    1. its new content is written under a temporary name and flushed to disk;
    2. checksums.json is replaced by one that lists the old and the new checksum of the file;
    3. the temporary file is renamed to its final name;
    4. checksums.json is replaced by one that lists the new checksum only.

Both files are replaced by a rename, which is atomic, and every rename is flushed to disk before the next step. Killed
before step 3, the directory holds the old file, and killed after it the new one. Both are listed from step 2 on, so the
directory can always be read. If the file did not exist before, a missing file is what was there. A checkpoint is a new
directory that is renamed when all of its files, checksums.json among them, are complete; it needs none of this.

A reader may come between two steps of a writer. If a file does not match, checksums.json is read again, and only if it
has not changed meanwhile, the file is damaged.

Names in checksums.json are relative, so a run directory can be moved and copied as a whole. Directories of earlier
versions have no checksums.json. They are read without it, with a line that says so, and it is created when they are
written to. If data.json says that the directory has checksums, a missing checksums.json is an error.
"""

import hashlib
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from bnneval.strict_json import loads
from psdenets.errors import BadInput
from psdenets.runs.digests import Damaged, Digest, digest_of, read
from psdenets.runs.files import atomically, json_text, lines_text, write_json
from psdenets.runs.schema import COUNT, require

NAME = "checksums.json"
FORMAT = 1
WITH_CHECKSUMS = 3  # from this format of data.json on, a run directory has checksums
KNOWN = (
    "config.json",
    "data.json",
    "metrics.jsonl",
    "metrics.json",
    "model.safetensors",
    "predictions.npz",
    "validation.npz",
    "ood.npz",
)
_MARKED = "data.json"
_SCHEMA = {"format": int, "run": str, "files": {str: [{"bytes": COUNT, "sha256": str}]}, "sha256": str}
_log = logging.getLogger("psdenets")
T = TypeVar("T")


@dataclass(frozen=True)
class Records:
    """The content of checksums.json: for each file one digest, or several while it is replaced."""

    run: str
    files: Mapping[str, tuple[Digest, ...]] = field(default_factory=dict)

    def with_file(self, name: str, digests: Iterable[Digest]) -> "Records":
        """A copy with other digests for one file."""
        return Records(self.run, {**self.files, name: tuple(dict.fromkeys(digests))})

    def as_json(self) -> dict[str, Any]:
        """The value that is written."""
        files = {name: [digest._asdict() for digest in digests] for name, digests in sorted(self.files.items())}
        value = {"format": FORMAT, "run": self.run, "files": files}
        return {**value, "sha256": _digest_of_json(value)}


@dataclass(frozen=True)
class Folder:
    """A directory whose files are written with checksums and read only if they match.

    Attributes:
        path: the directory.
        run: the id of the run that the folder must belong to; None accepts any.
    """

    path: Path
    run: str | None = None

    @property
    def id(self) -> str:
        """The id of the run; that of a directory without checksums is empty."""
        records = self.records()
        return "" if records is None else records.run

    def write(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a file atomically and record its checksum; `write` is called with a temporary path."""
        before = self._started()
        known = before.files.get(name, ())
        if len(known) > 1:  # an earlier write was killed: keep the digest of the file that is there
            known = tuple(digest for digest in known if digest == _digest_or_none(self.path / name))
        digests: list[Digest] = []

        def announce(temporary: Path) -> None:
            digests.append(digest_of(temporary))
            self._save(before.with_file(name, [*known, *digests]))

        atomically(self.path / name, write, announce)
        if known:
            self._save(before.with_file(name, digests))

    def write_json(self, name: str, value: Any) -> None:
        """Write strict JSON."""
        self.write(name, lambda path: path.write_text(json_text(value), encoding="utf-8"))

    def write_lines(self, name: str, records: Iterable[dict[str, Any]]) -> None:
        """Write one strict JSON object per line."""
        text = lines_text(records)
        self.write(name, lambda path: path.write_text(text, encoding="utf-8"))

    def remove(self, name: str) -> None:
        """Remove a file and its checksum."""
        records = self._started()
        (self.path / name).unlink(missing_ok=True)
        self._save(Records(records.run, {key: value for key, value in records.files.items() if key != name}))

    def content(self, name: str) -> bytes:
        """The content of a file, read once; raises `Damaged` unless it is what was written."""
        return self._matching(name, read)

    def verified(self, name: str) -> Path:
        """The path of a file; raises `Damaged` unless its content is what was written."""
        return self._matching(name, lambda path, _: (digest_of(path), path))

    def read_json(self, name: str, schema: Any = object, *, infinities: bool = True) -> Any:
        """A value written by `write_json`; raises `Damaged` unless it has the form of the schema.

        With `infinities`, the text "Infinity" is a number. It may also be the name of a class.
        """
        return self._parsed(name, self.content(name), schema, loads if infinities else json.loads)

    def read_lines(self, name: str, schema: Any = object) -> list[Any]:
        """Values written by `write_lines`; raises `Damaged` unless each has the form of the schema."""
        return [self._parsed(name, line, schema, loads) for line in self.content(name).splitlines()]

    def verify(self, *, complete: bool = True) -> list[str]:
        """Check all recorded files and return their names; raises `Damaged` for the first one that does not match.

        If the folder is not `complete`, files may be missing: a process that is killed can leave a checksum without
        its file.
        """
        records = self.records()
        names = [] if records is None else list(records.files)
        found = [name for name in names if complete or (self.path / name).exists()]
        for name in found:
            self.verified(name)
        return found

    def record(self, names: Iterable[str]) -> None:
        """Record files as they are now; nothing else is recorded after that."""
        self._save(self._as_they_are(names))

    def records(self) -> Records | None:
        """The content of checksums.json, or None for a directory that an earlier version wrote."""
        path = self.path / NAME
        if not path.exists():
            if self._must_have_checksums():
                raise Damaged(f"{path} is missing, and without it no file of {self.path} can be checked; {_HOW}")
            return None
        value = self._parsed(NAME, read(path, None)[1], _SCHEMA)
        if value["format"] != FORMAT:
            raise BadInput(f"expected format {FORMAT} in {path}, got {value['format']}; from another version?")
        if value.pop("sha256") != _digest_of_json(value):
            raise Damaged(f"{path} is damaged: its own checksum does not match; {_HOW}")
        if self.run not in (None, value["run"]):
            raise Damaged(f"{self.path} belongs to another run")
        files = {name: tuple(Digest(**digest) for digest in digests) for name, digests in value["files"].items()}
        return Records(value["run"], files)

    def _matching(self, name: str, reader: Callable[[Path, int | None], tuple[Digest, T]]) -> T:
        """The result of `reader`, whose digest must be one that is recorded."""
        path, records = self.path / name, self.records()
        if records is None:
            _say_without_checksums(self.path)
            return reader(path, None)[1]
        while True:
            known = records.files.get(name, ())
            digest, found = reader(path, max((each.bytes for each in known), default=None))
            if digest in known:
                return found
            again = self.records()
            if again == records or again is None:
                raise Damaged(_mismatch(path, known, digest))
            records = again

    def _parsed(self, name: str, content: bytes, schema: Any, parse: Callable[[str], Any] = json.loads) -> Any:
        try:
            value = parse(content.decode("utf-8"))
        except (ValueError, RecursionError) as error:  # ValueError: not UTF-8, not JSON, numbers of too many digits
            raise Damaged(f"expected JSON in {self.path / name}, got something else: {error}") from None
        try:
            require(value, schema)
        except BadInput as error:
            raise Damaged(f"{self.path / name}: {error}") from None
        return value

    def _started(self) -> Records:
        """The records to add a file to."""
        found = self.records()
        return self._as_they_are(name for name in KNOWN if (self.path / name).is_file()) if found is None else found

    def _as_they_are(self, names: Iterable[str]) -> Records:
        return Records(self.run or uuid.uuid4().hex, {name: (digest_of(self.path / name),) for name in names})

    def _save(self, records: Records) -> None:
        write_json(self.path / NAME, records.as_json())

    def _must_have_checksums(self) -> bool:
        if self.run is not None:
            return self.path.is_dir() and any(not path.name.startswith(".") for path in self.path.iterdir())
        if not (self.path / _MARKED).exists():
            return False
        value = self._parsed(_MARKED, read(self.path / _MARKED, None)[1], dict)
        return isinstance(value.get("format"), int) and value["format"] >= WITH_CHECKSUMS


_HOW = "restore it, or accept the files as they are with: psdenets verify RUN_DIR --record"


def _digest_or_none(path: Path) -> Digest | None:
    try:
        return digest_of(path)
    except Damaged:
        return None


def _mismatch(path: Path, known: tuple[Digest, ...], found: Digest) -> str:
    if not known:
        return f"{path} is not listed in {NAME} next to it, so it cannot be checked; {_HOW}"
    return f"{path} is damaged or was changed: expected {known[-1]}, got {found}; {_HOW}"


def _digest_of_json(value: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


@cache
def _say_without_checksums(path: Path) -> None:
    _log.warning(f"{path} was written by an earlier version, without checksums: its files are not checked for damage")
