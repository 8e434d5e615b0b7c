"""Signals that ask training to stop lead to a checkpoint, the line that resumes, and exit status 128 + the signal."""

from __future__ import annotations

import os
import signal

import pytest

from psdenets.runs.checksums import Folder
from psdenets.train import main
from psdenets.training import checkpoint, session
from psdenets.training.checkpoint import Checkpoints
from psdenets.training.loop import Trainer
from psdenets.training.stopping import SIGNALS


def sending(monkeypatch, *numbers):
    """Make the first training step of a session send signals to its own process."""
    step, left = Trainer.step, list(numbers)

    def signalled(self):
        report = step(self)
        while left:
            os.kill(os.getpid(), left.pop(0))
        return report

    monkeypatch.setattr(Trainer, "step", signalled)


def places(path):
    return sorted(place.name for place in (path / "checkpoints").iterdir())


def test_all_signals_of_users_supervisors_and_batch_systems_are_handled():
    assert {number.name for number in SIGNALS} == {"SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGXCPU"}


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_saves_a_checkpoint_and_says_how_to_resume(number, tmp_path, small, monkeypatch, capsys):
    before = {each: signal.getsignal(each) for each in SIGNALS}
    sending(monkeypatch, number)
    assert main(["--out", str(tmp_path / "run"), *small]) == 128 + number
    printed = capsys.readouterr()
    assert f"resume with: python -m psdenets.train --out {tmp_path / 'run'} --resume\n" in printed.out
    assert printed.err == ""
    assert places(tmp_path / "run") == ["epoch-00000-batch-000001"]
    assert not (tmp_path / "run" / ".lock").exists()
    assert {each: signal.getsignal(each) for each in SIGNALS} == before


def test_signals_during_the_save_do_not_disturb_it(tmp_path, small, monkeypatch, capsys):
    save, sent = checkpoint.save_weights, []

    def disturbed(tensors, path):
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
            sent.append(number)
        save(tensors, path)

    monkeypatch.setattr(checkpoint, "save_weights", disturbed)
    sending(monkeypatch, signal.SIGTERM, signal.SIGINT)
    assert main(["--out", str(tmp_path / "run"), *small]) == 143
    assert len(sent) == 4
    assert capsys.readouterr().err == ""
    found = Checkpoints(tmp_path / "run" / "checkpoints", Folder(tmp_path / "run").id).load()
    assert found.values["position"]["step"] == 1


def test_a_third_ctrl_c_before_the_save_ends_the_session_without_a_traceback(tmp_path, small, monkeypatch, capsys):
    sending(monkeypatch, *[signal.SIGINT] * 3)
    assert main(["--out", str(tmp_path / "run"), *small]) == 130
    assert capsys.readouterr().err == "psdenets.train: interrupted\n"
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_signal_while_results_are_written_leaves_a_run_that_resumes(tmp_path, small, monkeypatch, capsys):
    write = session.write_results
    monkeypatch.setattr(session, "write_results", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    flags = ["--out", str(tmp_path / "run"), *small, "--epochs", "1"]
    assert main(flags) == 143
    assert "all epochs are in the checkpoint; resume with:" in capsys.readouterr().out
    monkeypatch.setattr(session, "write_results", write)
    assert main(["--out", str(tmp_path / "run"), "--resume"]) == 0
    assert (tmp_path / "run" / "metrics.json").exists()
