"""Damage files of run directories, and use the runs: `python corruptions.py [--cases N] [--seed K]`.

Each case copies a small trained run, damages one file and runs one command in this process. It must end in one of three
ways: refused in one line that names a file, with exit status 2; continued from the checkpoint before the damaged one,
which is named; or the same output as that of the undamaged run. A traceback, another output or 60 seconds fail.

The table of outcomes is printed as Markdown. The exit status is 1 if a case failed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import logging
import os
import random
import shutil
import signal
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

SIZES = ["--preset", "digits-strided", "--width", "2", "--steps", "2", "--drift", "1-2-1", "--limit-train", "48",
         "--limit-test", "20", "--batch-size", "16", "--epochs", "2", "--test-samples", "2", "--threads", "1",
         "--no-epoch-test", "--checkpoint-seconds", "0", "--device", "cpu"]  # fmt: skip
SECONDS = 60
READ = (".json", ".jsonl", ".safetensors", ".npz")  # files that are read back
FINE = ("refused", "earlier checkpoint", "same output")


class Runs(NamedTuple):
    """A finished run, another one of another seed, and a picture."""

    run: Path
    other: Path
    picture: Path


class Outcome(NamedTuple):
    """How a command ended: exit status, standard output, and the lines of standard error and of the log."""

    status: int
    out: str
    lines: list[str]


def make_runs(folder: Path) -> Runs:
    """Train two small runs."""
    import numpy as np
    from PIL import Image

    from psdenets.train import main

    for seed, name in enumerate(("run", "other")):
        with contextlib.redirect_stdout(io.StringIO()):
            if main([*SIZES, "--seed", str(seed), "--out", str(folder / name)]) != 0:
                raise RuntimeError("the run to damage could not be trained")
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(folder / "picture.png")
    return Runs(folder / "run", folder / "other", folder / "picture.png")


# Commands: each takes a run directory and a picture, and prints what must not change.


def predict(run: Path, picture: Path) -> int:
    """`psdenets predict`."""
    from psdenets.predict import main

    return main([str(run), str(picture), "--json", "--samples", "2"])


def evaluate(run: Path, _: Path) -> int:
    """`psdenets evaluate`; the names of directories are not compared."""
    from psdenets.evaluate import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main([str(run), "--out", str(run.parent / "evaluation")])
    sys.stdout.write(out.getvalue().replace(str(run.parent), ""))
    return status


def load(run: Path, _: Path) -> int:
    """`psdenets.load`, and everything that `psdenets.Run` reads."""
    import torch

    import psdenets
    from psdenets.cli import run as in_one_line
    from psdenets.seeds import generator

    def read(_: Any) -> int:
        found = psdenets.Run.load(run)
        probs = found.model.predict_proba(torch.full((1, 1, 8, 8), 0.5), 2, generator(0, "drill"))
        sys.stdout.write(f"{found.metrics} {found.history} {probs.tolist()} {found.predictions.probs.sum()}\n")
        return 0

    return in_one_line("load", read, [])


def resume_finished(run: Path, _: Path) -> int:
    """`psdenets train --resume` of a finished run."""
    from psdenets.train import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        status = main(["--out", str(run), "--resume"])
    sys.stdout.write(out.getvalue().replace(str(run), ""))
    return status


def resume(run: Path, _: Path) -> int:
    """What `psdenets train --resume` of an unfinished run reads; prints a digest of the last checkpoint's weights."""
    import torch

    from psdenets.cli import run as in_one_line
    from psdenets.data import load_splits
    from psdenets.runs.directory import RunDir
    from psdenets.runs.loading import read_config
    from psdenets.training.loop import Trainer
    from psdenets.training.session import begin_or_restore

    def read(_: Any) -> int:
        config, _spec = read_config(run)
        trainer = Trainer(config, load_splits(config), torch.device("cpu"))
        begin_or_restore(trainer, RunDir(run))
        while trainer.at.epoch < config.training.epochs:
            while trainer.at.batch < trainer.batches:
                trainer.step()
            trainer.finish_epoch(lambda: None)
        state = sorted(trainer.snapshot().tensors.items())
        digest = hashlib.sha256(b"".join(tensor.contiguous().numpy().tobytes() for _, tensor in state))
        sys.stdout.write(f"{digest.hexdigest()}\n")
        return 0

    return in_one_line("resume", read, [])


COMMANDS = {
    "load": load,
    "predict": predict,
    "evaluate": evaluate,
    "resume": resume,
    "resume finished": resume_finished,
}


# Kinds of damage: each changes one file in place, and returns whether it did.


def truncated(file: Path, rng: random.Random, _: Path) -> bool:
    """Cut off the end."""
    content = file.read_bytes()
    file.write_bytes(content[: rng.choice([0, 1, len(content) - 1, rng.randrange(len(content))])])
    return True


def bit_flipped(file: Path, rng: random.Random, _: Path) -> bool:
    """Flip one bit anywhere."""
    return _flip(file, rng, 0)


def tensor_bit_flipped(file: Path, rng: random.Random, _: Path) -> bool:
    """Flip one bit of a number in a safetensors file."""
    return file.suffix == ".safetensors" and _flip(file, rng, 8 + struct.unpack("<Q", file.read_bytes()[:8])[0])


def _flip(file: Path, rng: random.Random, start: int) -> bool:
    content = bytearray(file.read_bytes())
    content[rng.randrange(start, len(content))] ^= 1 << rng.randrange(8)
    file.write_bytes(content)
    return True


def swapped(file: Path, _: random.Random, other: Path) -> bool:
    """Take the file of another run."""
    if not other.exists() or other.read_bytes() == file.read_bytes():
        return False
    shutil.copyfile(other, file)
    return True


def removed(file: Path, _: random.Random, __: Path) -> bool:
    """Delete the file."""
    file.unlink()
    return True


def pipe(file: Path, _: random.Random, __: Path) -> bool:
    """Replace the file by a named pipe, which nobody writes to."""
    file.unlink()
    os.mkfifo(file)
    return True


def wrong_type(file: Path, rng: random.Random, _: Path) -> bool:
    """Valid JSON in which one value has another type."""
    return _retyped(file, rng)


def wrong_type_recorded(file: Path, rng: random.Random, _: Path) -> bool:
    """Valid JSON in which one value has another type, with a checksum that matches."""
    from psdenets.runs.checksums import Folder

    if file.name == "checksums.json" or not _retyped(file, rng):
        return False
    folder = Folder(file.parent)
    names = [path.name for path in file.parent.iterdir() if path.suffix in READ and path.name != "checksums.json"]
    Folder(file.parent, folder.id).record(names)
    return True


def _retyped(file: Path, rng: random.Random) -> bool:
    if file.suffix not in (".json", ".jsonl"):
        return False
    lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    values = [json.loads(line) for line in lines]
    places = list(_places(values[0]))
    holder, key = rng.choice(places)
    holder[key] = _of_another_type(holder[key], rng)
    file.write_text("\n".join(map(json.dumps, values)) + "\n")
    return True


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All (container, key) in a JSON value."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def _of_another_type(value: Any, rng: random.Random) -> Any:
    wrong = {"text": "x", "number": 1.5, "list": [[]], "object": {"x": 1}, "boolean": True}
    kinds = {str: "text", int: "number", float: "number", list: "list", dict: "object", bool: "boolean"}
    if value is None:  # an option that is not set; a text or number may be a value of it
        return rng.choice([[[]], {"x": 1}])
    return wrong[rng.choice([kind for kind in wrong if kind != kinds[type(value)]])]


DAMAGES: dict[str, Callable[[Path, random.Random, Path], bool]] = {
    "truncated": truncated, "bit flipped": bit_flipped, "bit of a tensor flipped": tensor_bit_flipped,
    "file of another run": swapped, "deleted": removed, "named pipe": pipe, "wrong type": wrong_type,
    "wrong type, checksum matches": wrong_type_recorded,
}  # fmt: skip


def files_of(run: Path, command: str) -> list[Path]:
    """The files that a command reads, relative to the run; to resume, those of the newest checkpoint among them."""
    newest = sorted((run / "checkpoints").glob("epoch-*"))[-1]
    if command == "resume":
        found = [*(run / name for name in ("config.json", "data.json", "checksums.json")), *newest.iterdir()]
    else:
        found = [path for path in run.iterdir() if path.suffix in READ]
    return sorted(path.relative_to(run) for path in found)


class _TooLong(BaseException):
    """A command did not end in time."""


def called(command: Callable[[Path, Path], int], run: Path, picture: Path) -> Outcome:
    """Run a command and collect what it prints."""

    def too_long(*_: Any) -> None:
        raise _TooLong

    out, err, log = io.StringIO(), io.StringIO(), io.StringIO()
    handler, logger = logging.StreamHandler(log), logging.getLogger("psdenets")
    logger.addHandler(handler)
    logger.propagate, before = False, signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = command(run, picture)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        logger.removeHandler(handler)
        logger.propagate = True
    return Outcome(status, out.getvalue(), [*err.getvalue().splitlines(), *log.getvalue().splitlines()])


def judged(command: Callable[[Path, Path], int], run: Path, picture: Path, whole: Outcome) -> str:
    """The outcome of a command on a damaged run, one of `FINE` or what went wrong."""
    try:
        found = called(command, run, picture)
    except _TooLong:
        return f"did not end in {SECONDS} s"
    except Exception as error:  # whatever escapes is what this looks for
        return f"traceback: {type(error).__name__}: {error}"
    if found.status == 2 and len(found.lines) == 1 and str(run) in found.lines[0]:
        return "refused"
    if found.status == 0 and found.out == whole.out:
        return "earlier checkpoint" if any("continuing from" in line for line in found.lines) else "same output"
    return f"status {found.status}, {found.lines}, {'same' if found.out == whole.out else 'another'} output"


class Case(NamedTuple):
    """What is damaged, how, and which command is run."""

    command: str
    damage: str
    file: Path


def tried(case: Case, runs: Runs, whole: dict[str, Outcome], folder: Path, rng: random.Random) -> str | None:
    """Damage a copy of the run and run the command; None if this file cannot be damaged in this way."""
    if case == Case("resume finished", "deleted", Path("metrics.json")):
        return None  # a run without it is not finished, and is trained
    run = folder / "run"
    shutil.copytree(runs.run, run)
    try:
        if case.command == "resume":
            (run / "metrics.json").unlink()
        file = run / case.file
        if not file.exists() or not DAMAGES[case.damage](file, rng, runs.other / case.file):
            return None
        return judged(COMMANDS[case.command], run, runs.picture, whole[case.command])
    finally:
        shutil.rmtree(run)


def undamaged(runs: Runs, folder: Path, commands: list[str]) -> dict[str, Outcome]:
    """What the commands print for the undamaged run."""
    found = {}
    for name in commands:
        run = folder / "run"
        shutil.copytree(runs.run, run)
        if name == "resume":
            (run / "metrics.json").unlink()
        found[name] = called(COMMANDS[name], run, runs.picture)
        shutil.rmtree(run)
    return found


def table(counts: Counter[tuple[str, str]]) -> str:
    """The number of cases by damage and outcome, in Markdown."""
    columns = (*FINE, "failed")
    rows = {damage: [counts[damage, column] for column in columns] for damage in DAMAGES}
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    head = [f"| damage | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    return "\n".join([*head, *(f"| {name} | {' | '.join(map(str, row))} |" for name, row in rows.items())])


def drill(cases: int, seed: int) -> int:
    """Try random cases, print the table, and return the exit status."""
    rng = random.Random(seed)
    counts: Counter[tuple[str, str]] = Counter()
    failed = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = make_runs(folder)
        work = folder / "work"
        work.mkdir()
        whole = undamaged(runs, work, list(COMMANDS))
        while counts.total() < cases:
            command = rng.choices(list(COMMANDS), weights=[4, 3, 1, 4, 3])[0]
            damage = rng.choices(list(DAMAGES), weights=[1, 1, 4, 1, 1, 1, 1, 1])[0]  # many in the numbers of tensors
            tensors = damage == "bit of a tensor flipped"
            files = [file for file in files_of(runs.run, command) if not tensors or file.suffix == ".safetensors"]
            case = Case(command, damage, rng.choice(files))
            outcome = tried(case, runs, whole, work, rng)
            if outcome is None:
                continue
            counts[case.damage, outcome if outcome in FINE else "failed"] += 1
            if outcome not in FINE:
                failed.append(f"- {case.command}, {case.file} {case.damage}: {outcome}")
    print("\n".join([table(counts), "", *failed]))
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Damage files of run directories and use the runs.")
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    sys.exit(drill(given.cases, given.seed))
