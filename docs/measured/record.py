"""results.json: one small entry per run, by name.

An entry has everything that the page shows: command, config, commit, CPU, versions, metrics, OOD detection and the
differences from the twin. Weights and predictions stay in the run directory, which may disappear.
"""

from __future__ import annotations

import fcntl
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psdenets
from bnneval.strict_json import dumps
from measured.rows import Run, changed_options, run_of
from psdenets.errors import BadInput
from psdenets.runs.compare import against_twin
from psdenets.runs.files import read_json, write_json, write_text

Entries = dict[str, dict[str, Any]]
METRICS = (
    "accuracy", "ece", "nll", "brier", "entropy", "kl", "epistemic_share", "disagreement", "nll_one_sample",
    "accuracy_one_sample", "nll_no_noise", "accuracy_no_noise", "test_samples", "parameters",
)  # fmt: skip
PATHS = ("out", "data_root", "start_from", "max_seconds_of")  # on a machine that the reader does not have
OOD_METRICS = ("images", "auroc", "auroc_mutual_information", "epistemic_share", "disagreement")


def read(file: Path) -> Entries:
    """All entries, by name; empty if there is no file."""
    return read_json(file) if file.exists() else {}


def record(folder: Path, file: Path) -> None:
    """Add the run in this directory to the file, or replace its entry.

    A twin is compared with the runs next to it, so twins may be recorded in any order.
    """
    run, entry = run_of(folder.name), entry_of(folder)
    with locked(file):
        entries = read(file)
        before = entries.get(run.name, {})
        same = before.get("metrics") == entry["metrics"]
        if "against_twin" in before and same:
            entry.setdefault("against_twin", before["against_twin"])
        entries[run.name] = entry
        for other in run.compared:
            if other.name in entries:
                _compare_again(entries[other.name], other, folder, same)
        write(file, entries)


def _compare_again(entry: dict[str, Any], run: Run, twin: Path, same: bool) -> None:
    """Compare a recorded run with its twin; drop the comparison if it was with a different twin."""
    found = compared(twin.parent / run.name, twin, run)
    if found is not None:
        entry["against_twin"] = found
    elif not same:
        entry.pop("against_twin", None)


def entry_of(folder: Path) -> dict[str, Any]:
    """The entry of a finished run; raises BadInput if it is not finished or was trained with other flags."""
    run = run_of(folder.name)
    if not (folder / "metrics.json").exists():
        raise BadInput(f"expected a finished run with metrics.json in {folder}")
    metrics, config = (read_json(folder / name) for name in ("metrics.json", "config.json"))
    changed = changed_options(run, config)
    if changed:
        raise BadInput(f"expected a run of `{run.flags()}` in {folder}, got {', '.join(changed)}")
    versions = dict(metrics["versions"])
    entry = {
        "command": f"python -m psdenets.train {run.flags()}",
        **origin(folder),
        "threads": int(versions.pop("threads")),
        "versions": versions,
        "seconds": metrics["seconds"],
        "epochs": metrics.get("epochs"),
        "seed": metrics["seed"],
        "config": {key: value for key, value in config.items() if key not in PATHS},
        "metrics": {name: metrics[name] for name in METRICS if name in metrics},
        "ood": {name: _ood(folder / f"ood-{name}") for name in run.ood if (folder / f"ood-{name}").exists()},
    }
    twin = None if run.twin is None else folder.parent / run.twin.name
    found = None if twin is None else compared(folder, twin, run)
    return entry if found is None else {**entry, "against_twin": found}


def _ood(folder: Path) -> dict[str, Any]:
    found = read_json(folder / "metrics.json")["metrics"]["ood"]
    return {name: found[name] for name in OOD_METRICS if name in found}


def compared(folder: Path, twin: Path, run: Run) -> dict[str, Any] | None:
    """The differences from the twin, or None unless both directories have their predictions."""
    if all((path / "predictions.npz").exists() for path in (folder, twin)):
        return against_twin(folder, twin, run.ood)
    return None


def write(file: Path, entries: Entries) -> None:
    """Write the entries sorted by name, one field per line, atomically."""
    blocks = []
    for name, entry in sorted(entries.items()):
        fields = ",\n".join(f"  {dumps(key)}: {dumps(value)}" for key, value in entry.items())
        blocks.append(f" {dumps(name)}: {{\n{fields}\n }}")
    write_text(file, "{\n" + ",\n".join(blocks) + "\n}\n" if blocks else "{}\n")


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Let one process at a time read, change and write the file."""
    handle = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def note_origin(folder: Path) -> None:
    """Write the commit and the CPU next to the run directory when its training starts; add to them if it resumes."""
    file = _origin_file(folder)
    before = read_json(file) if file.exists() and (folder / "config.json").exists() else {}
    now = {"commit": commit(), "cpu": cpu()}
    write_json(
        file,
        {key: ", ".join(dict.fromkeys([*before.get(key, value).split(", "), value])) for key, value in now.items()},
    )


def origin(folder: Path) -> dict[str, str]:
    """Commit and CPU of the training; if they were not noted, those of now, marked as such."""
    file = _origin_file(folder)
    return read_json(file) if file.exists() else {"commit": f"{commit()} (when recorded)", "cpu": cpu()}


def _origin_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.origin.json")  # a new run directory must be empty


def commit() -> str:
    """The commit of the code that runs, with a + if files under packages/ differ from it."""
    try:
        changed = _git("status", "--porcelain", "--", ":/packages")
        return _git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*args: str) -> str:
    folder = str(Path(psdenets.__file__).parent)
    return subprocess.run(["git", "-C", folder, *args], check=True, capture_output=True, text=True).stdout.strip()


def cpu() -> str:
    """The model of the CPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
