"""References `module:attribute`, used for entries of registries and for custom code.

    psdenets.models.psde:Classifier      an entry of a registry
    mynets:Drift                         the class Drift of the user's file mynets.py

Resolving a reference imports its module, which executes that module's code. Modules are searched for in the current
directory and on `sys.path`; for an existing run, the recorded file comes first. A run directory may come from somebody
else, so its references are only resolved with the user's consent (`--allow-code`).
"""

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from psdenets.errors import BadInput

_FORM = re.compile(r"[\w.]+:\w+")


def is_reference(text: str) -> bool:
    """Whether a text has the form `module:attribute`.

    Example:
        >>> is_reference("mynets:Drift"), is_reference("strided")
        (True, False)
    """
    return _FORM.fullmatch(text) is not None


def resolve(reference: str) -> Any:
    """Import the module of a reference and return its attribute; raises `BadInput` if either is missing."""
    name, _, attribute = reference.partition(":")
    module = _imported(name, reference)
    try:
        return getattr(module, attribute)
    except AttributeError:
        where = getattr(module, "__file__", name)
        raise BadInput(f"no attribute {attribute} in {where} for {reference!r}") from None


def made(registry: Mapping[str, str], name: str, *args: Any, **kwargs: Any) -> Any:
    """Call an entry of a registry or the object of a reference; raises `BadInput` if its signature does not match."""
    function = resolve(registry.get(name, name))
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise BadInput(f"expected {name} with the signature in the README of psdenets, got: {error}") from None
    return function(*args, **kwargs)


@dataclass(frozen=True)
class Reference:
    """A function that is imported when it is first called."""

    text: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return resolve(self.text)(*args, **kwargs)


@contextmanager
def _searching(first: Path | None = None) -> Iterator[None]:
    """Context in which modules are searched for in `first`, then on Python's path, then in the current directory."""
    before = list(sys.path)
    sys.path[:] = [*([] if first is None else [str(first)]), *before, str(Path.cwd())]
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path[:] = before


def _imported(name: str, reference: str, first: Path | None = None) -> ModuleType:
    try:
        with _searching(first):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise BadInput(f"importing {name} for {reference!r} failed: {error}") from error
        raise BadInput(f"no module {name} for {reference!r} in {Path.cwd()} or on Python's path") from None
    except Exception as error:
        raise BadInput(f"importing {name} for {reference!r} failed: {type(error).__name__}: {error}") from error


def sources(references: Iterable[str]) -> dict[str, dict[str, str]]:
    """File and SHA-256 of the modules that references refer to, by module name; imports the modules."""
    found = {}
    for reference in references:
        name = reference.partition(":")[0]
        file = _file_of(_imported(name, reference))
        found[name] = {"file": str(file), "sha256": _digest(file)}
    return found


def restore(recorded: Mapping[str, Mapping[str, str]]) -> None:
    """Import modules from the files recorded by `sources`; raises `BadInput` if a file is missing or has changed.

    The content of a file is checked before it is executed.
    """
    for name, source in recorded.items():
        file = Path(source["file"])
        root = file.parents[name.count(".") + (file.name == "__init__.py")]
        _forget_other(name.partition(".")[0], root)
        with _searching(root), suppress(ModuleNotFoundError):
            spec = importlib.util.find_spec(name)
            found = Path(str(spec.origin)) if spec is not None else file
            if found.is_file() and _digest(found) != source["sha256"]:
                raise BadInput(
                    f"expected {found} as it was when the run began (SHA-256 {source['sha256'][:12]}...), "
                    f"got other content ({_digest(found)[:12]}...): restore that version of the file"
                )
        _imported(name, name, root)


def _forget_other(top: str, root: Path) -> None:
    """Remove a module or package, with its submodules, if another run imported it from another directory."""
    present = sys.modules.get(top)
    if present is not None and root not in _file_of(present).parents:
        for name in [name for name in sys.modules if name.partition(".")[0] == top]:
            del sys.modules[name]


def _file_of(module: ModuleType) -> Path:
    return Path(str(module.__file__)).resolve()


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
