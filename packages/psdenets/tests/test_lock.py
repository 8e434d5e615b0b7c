"""One process writes to a run directory at a time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from psdenets import BadInput, Config
from psdenets.evaluate import main as evaluate
from psdenets.runs.directory import RunDir
from psdenets.runs.lock import NAME, Owner, only_writer, started
from psdenets.train import main

HOLD = """
import sys, time
from pathlib import Path
from psdenets.runs.lock import only_writer
with only_writer(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of a directory; the test gets the process and the directory."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process, tmp_path / "run"
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_refused_in_one_line_until_the_first_has_ended(holder, capsys, caplog):
    process, run = holder
    assert main(["--out", str(run), "--epochs", "1", "--limit-train", "80"]) == 2
    error = capsys.readouterr().err
    assert f"{run} is in use by process {process.pid} on " in error
    assert error.count("\n") == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    with only_writer(run):
        assert json.loads((run / NAME).read_text())["pid"] == os.getpid()
    assert [f"process {process.pid} on" in record.message for record in caplog.records] == [True]
    assert "taking over" in caplog.text
    assert not (run / NAME).exists()


def test_a_second_session_of_the_same_process_is_refused(tmp_path):
    with (
        only_writer(tmp_path),
        pytest.raises(BadInput, match=f"in use by process {os.getpid()}"),
        only_writer(tmp_path),
    ):
        pytest.fail("both hold the lock")


@pytest.mark.skipif(not started(os.getpid()), reason="the system does not say when processes started")
def test_a_process_counts_as_the_owner_only_if_it_started_when_the_owner_did(tmp_path, caplog):
    """Without flock, as on some network file systems, the recorded owner decides."""
    alive = os.getppid()
    for start, refused in ((started(alive), True), ("another boot:1", False), ("", False)):
        owner = Owner(os.uname().nodename, alive, start, "2026-01-01")
        (tmp_path / NAME).write_text(json.dumps(owner._asdict()))
        if refused:
            with pytest.raises(BadInput, match=f"in use by process {alive}"), only_writer(tmp_path):
                pytest.fail("the owner is alive")
        else:
            with only_writer(tmp_path):
                assert "taking over" in caplog.text
        caplog.clear()


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"pid": "x"}', "\x00\xff"])
def test_a_lock_that_was_only_half_written_is_taken(content, tmp_path):
    (tmp_path / NAME).write_text(content)
    with only_writer(tmp_path):
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()


def test_a_lock_is_acquired_by_one_of_many(tmp_path):
    won, ready = [], threading.Barrier(8)

    def acquire():
        ready.wait()
        try:
            with only_writer(tmp_path):
                won.append(1)
                time.sleep(0.3)
        except BadInput:
            pass

    threads = [threading.Thread(target=acquire) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1


def test_runs_without_out_that_start_together_get_different_directories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen, ready, config = [], threading.Barrier(8), Config()

    def choose():
        ready.wait()
        chosen.append(RunDir.choose(config).path)

    threads = [threading.Thread(target=choose) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(chosen)) == 8
    assert all(path.is_dir() for path in chosen)


@pytest.mark.parametrize("out", [["--out", "a/b"], []])
def test_a_run_that_cannot_start_leaves_no_directory(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["--dataset", "mnist", "--data-root", str(tmp_path / "missing"), *out]) == 2
    assert not [path for path in tmp_path.rglob("*") if path.name != "runs"]


def test_evaluate_is_refused_while_another_process_writes_its_results(small_run, tmp_path, capsys):
    with only_writer(tmp_path / "out"):
        assert evaluate([str(small_run), "--out", str(tmp_path / "out")]) == 2
    assert "is in use by process" in capsys.readouterr().err
