"""References `module:attribute`: how a registry names its entries, and how a user names code of their own.

    psdenets.models.psde:Classifier      an entry of a registry
    mynets:Drift                         the class Drift of the user's file mynets.py

Resolving a reference imports its module, which executes that module's code. A module is looked for in the current
directory and on `sys.path`; for a run that was recorded earlier, in the recorded file first.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Mapping
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
    """Import the module of a reference and return its attribute; `BadInput` if either is missing."""
    name, _, attribute = reference.partition(":")
    module = _imported(name, reference)
    try:
        return getattr(module, attribute)
    except AttributeError:
        where = getattr(module, "__file__", name)
        raise BadInput(f"expected an attribute {attribute} in {where} for {reference!r}, found none") from None


def chosen(registry: Mapping[str, str], name: str) -> Any:
    """The entry of a registry, or whatever the reference `name` leads to."""
    return resolve(registry.get(name, name))


@dataclass(frozen=True)
class Reference:
    """A function that is imported when it is first called."""

    text: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return resolve(self.text)(*args, **kwargs)


def _imported(name: str, reference: str) -> ModuleType:
    sys.path.append(str(Path.cwd()))  # a console script does not search the current directory by itself
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
            raise BadInput(f"importing {name} for {reference!r} failed: {error}") from error
        raise BadInput(
            f"expected a module {name} for {reference!r}, found none in {Path.cwd()} or on Python's path"
        ) from None
    except Exception as error:
        raise BadInput(f"importing {name} for {reference!r} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop()


def sources(references: Iterable[str]) -> dict[str, dict[str, str]]:
    """File and SHA-256 of the modules that references lead to, by module name. Imports the modules."""
    found = {}
    for reference in references:
        name = reference.partition(":")[0]
        file = Path(str(_imported(name, reference).__file__)).resolve()
        found[name] = {"file": str(file), "sha256": _digest(file)}
    return found


def restore(recorded: Mapping[str, Mapping[str, str]]) -> None:
    """Import modules from the files that `sources` recorded; `BadInput` if a file is gone or has changed."""
    for name, source in recorded.items():
        file = Path(source["file"])
        if file.is_file():
            _load(name, file)
        else:
            loaded = _imported(name, name)
            file = Path(str(loaded.__file__))
        if _digest(file) != source["sha256"]:
            raise BadInput(
                f"expected {file} as it was when the run began (SHA-256 {source['sha256'][:12]}...), "
                f"got other content ({_digest(file)[:12]}...): restore that version of the file"
            )


def _load(name: str, file: Path) -> None:
    """Import a module from one file, replacing a module of the same name that came from another."""
    present = sys.modules.get(name)
    if present is not None and getattr(present, "__file__", None) == str(file):
        return
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise BadInput(f"expected a Python file, got {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise BadInput(f"importing {file} failed: {type(error).__name__}: {error}") from error


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
