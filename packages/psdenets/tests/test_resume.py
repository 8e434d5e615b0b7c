"""A run that is killed at any point and resumed ends with the same bytes as an uninterrupted one."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from psdenets.config import Config
from psdenets.data import load_splits
from psdenets.errors import BadInput
from psdenets.runs.checksums import Folder
from psdenets.runs.weights import FORMAT
from psdenets.train import main
from psdenets.training.checkpoint import Checkpoints, Snapshot
from psdenets.training.loop import Trainer

# Options that add state to a run: averaged weights, a stochastic head, two samples, augmentation, warm-up, best weights.
STATEFUL = ["--cut", "full", "--ema", "0.9", "--head", "meanfield", "--augment", "jitter", "--samples", "2",
            "--select", "best", "--kappa-warmup", "1.5", "--checkpoint-seconds", "0"]  # fmt: skip

# Training that kills its own process at the n-th flush to disk: before, while or after writing a checkpoint.
KILLED_AT_FLUSH = """
import os, signal, sys
from psdenets.training import checkpoint
from psdenets.runs import files
real, left = files.flush, [int(sys.argv[1])]
def flush(path):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(path)
checkpoint.flush = files.flush = flush
from psdenets.train import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    return finished(tmp_path_factory.mktemp("runs") / "whole")


def finished(path, *more):
    flags = [
        "--preset",
        "digits-strided",
        "--width",
        "4",
        "--steps",
        "3",
        "--drift",
        "1-4-1",
        "--limit-train",
        "96",
        "--limit-test",
        "40",
        "--batch-size",
        "16",
        "--epochs",
        "2",
        "--test-samples",
        "2",
        "--threads",
        "1",
    ]  # as in the fixture `small`, which a fixture of this scope cannot use
    assert main(["--out", str(path), *flags, *STATEFUL, *more]) == 0
    return path


def timeless(path):
    """The records of metrics.jsonl without their times."""
    records = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


def assert_same_run(one, other):
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    states = [sorted((path / "checkpoints").glob("epoch-*"))[-1] / "state.safetensors" for path in (one, other)]
    assert states[0].read_bytes() == states[1].read_bytes()
    assert timeless(one) == timeless(other)
    arrays = [np.load(path / "predictions.npz")["probs"] for path in (one, other)]
    assert np.array_equal(arrays[0], arrays[1])


# There are 4 flushes each for data.json and config.json: the file, checksums.json and twice the directory. Then there are
# 6 per checkpoint, and 4 for the first metrics.jsonl. So the run is killed before its first step, in steps 1, 2, 4 and 5,
# at the end of epoch 1 or in epoch 2; before and after checksums.json and the file itself are renamed.
DEEP_FLUSHES = (4, 5, 6, 7, 8, 14, 29, 33, 40, 45, 46, 48, 52, 70, 100)


@pytest.mark.parametrize("flush", [3, 11, 47, *(pytest.param(n, marks=pytest.mark.deep) for n in DEEP_FLUSHES)])
def test_a_run_killed_while_writing_resumes_exactly(flush, tmp_path, small, uninterrupted):
    path = tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_AT_FLUSH, str(flush), "--out", str(path), *small, *STATEFUL], check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert not (path / "metrics.json").exists()
    assert main(["--out", str(path), "--resume", *small, *STATEFUL]) == 0
    assert_same_run(path, uninterrupted)
    assert len(list((path / "checkpoints").glob("epoch-*"))) in (2, 3)  # the last two, and that of the best epoch
    assert not [file for file in path.rglob("*") if file.name.endswith(".tmp")]


def test_a_run_killed_from_outside_in_the_middle_of_an_epoch_resumes_exactly(tmp_path, small, uninterrupted):
    path = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-m", "psdenets.train", "--out", str(path), *small, *STATEFUL])
    wait_for_step(path, 3)
    process.kill()
    process.wait()
    assert main(["--out", str(path), "--resume"]) == 0
    assert_same_run(path, uninterrupted)


def wait_for_step(path, step):
    deadline = time.monotonic() + 600  # a busy machine may take minutes to start Python
    while not [p for p in path.glob("checkpoints/epoch-*") if p.name >= f"epoch-00000-batch-{step:06d}"]:
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("system", ["psde", "odenet", "resnet32", "vbll", "mfvi-odenet"])
def test_every_system_continues_from_a_checkpoint_as_if_it_had_not_stopped(system, tmp_path):
    """Kernels are stored channels last. Adam's moments have to be restored in that layout, not only with their values."""
    config = Config(model=system, limit_train=40, limit_test=10, batch_size=16)
    splits = load_splits(config)
    whole, resumed = (Trainer(config, splits, torch.device("cpu")) for _ in range(2))
    whole.step()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("epoch-1", whole.snapshot())
    resumed.restore(checkpoints.load())
    assert whole.step() == resumed.step()  # the loss before the second step
    for (name, a), b in zip(whole.model.state_dict().items(), resumed.model.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_ctrl_c_saves_a_checkpoint_and_prints_how_to_resume(tmp_path, small, uninterrupted):
    path = tmp_path / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "psdenets.train", "--out", str(path), *small, *STATEFUL],
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for_step(path, 1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert f"resume with: python -m psdenets.train --out {path} --resume" in out
    assert main(["--out", str(path), "--resume"]) == 0
    assert_same_run(path, uninterrupted)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path, uninterrupted):
    assert_same_run(finished(tmp_path / "again"), uninterrupted)
    other = finished(tmp_path / "other", "--seed", "1")
    assert (other / "model.safetensors").read_bytes() != (uninterrupted / "model.safetensors").read_bytes()


def test_resuming_a_finished_run_changes_nothing(uninterrupted, capsys):
    before = {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*")}
    assert main(["--out", str(uninterrupted), "--resume"]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in uninterrupted.rglob("*")} == before


def test_resuming_without_a_run_starts_one(tmp_path, small):
    assert main(["--out", str(tmp_path / "new"), "--resume", *small]) == 0
    assert (tmp_path / "new" / "metrics.json").exists()


def test_resuming_with_a_different_option_is_refused(uninterrupted, capsys):
    (uninterrupted / "metrics.json").rename(uninterrupted / "hidden")
    try:
        assert main(["--out", str(uninterrupted), "--resume", "--lr", "0.5"]) == 2
    finally:
        (uninterrupted / "hidden").rename(uninterrupted / "metrics.json")
    assert "expected --lr 0.01 as in" in capsys.readouterr().err


def test_resuming_with_a_different_option_in_a_config_file_is_refused(uninterrupted, capsys, tmp_path):
    (uninterrupted / "metrics.json").rename(uninterrupted / "hidden")
    try:
        for text, expected in (("lr: 0.5", "expected --lr 0.01 as in"), ("model: resnet32", "expected --model psde")):
            (tmp_path / "other.yaml").write_text(text)
            assert main(["--out", str(uninterrupted), "--resume", "--config", str(tmp_path / "other.yaml")]) == 2
            assert expected in capsys.readouterr().err
    finally:
        (uninterrupted / "hidden").rename(uninterrupted / "metrics.json")


def test_a_full_disk_gives_a_one_line_error_and_leaves_no_partial_checkpoint(tmp_path, small):
    """A limit on the size of files simulates a full disk."""
    path = tmp_path / "run"
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))  # noqa: E731
    result = subprocess.run(
        [sys.executable, "-m", "psdenets.train", "--out", str(path), *small],
        preexec_fn=limit, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "could not write" in result.stderr
    assert list((path / "checkpoints").iterdir()) == []


def test_nothing_in_a_run_directory_is_pickled(uninterrupted):
    kinds = {path.suffix for path in uninterrupted.rglob("*") if path.is_file()}
    assert kinds == {".json", ".jsonl", ".safetensors", ".npz", ".png", ".html"}
    with np.load(uninterrupted / "predictions.npz", allow_pickle=False) as archive:
        assert sorted(archive) == ["labels", "probs"]
    assert load_file(uninterrupted / "model.safetensors")


def test_loading_a_checkpoint_returns_what_was_saved_last(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c")
    assert checkpoints.load() is None
    for step in (1, 2):
        checkpoints.save(
            f"epoch-0-batch-{step}",
            Snapshot({"model.a": torch.arange(3) * step, "ema.a": torch.ones(2)}, {"x": [step]}),
        )
    found = checkpoints.load()
    assert found.part("model")["a"].tolist() == [0, 2, 4]
    assert found.values == {"x": [2]}
    assert sorted(path.name for path in (tmp_path / "c").iterdir()) == ["epoch-0-batch-1", "epoch-0-batch-2"]


def test_a_checkpoint_of_another_format_is_refused(tmp_path):
    checkpoints = Checkpoints(tmp_path / "c")
    checkpoints.save("epoch-0-batch-1", Snapshot({"a": torch.ones(1)}, {}))
    state = tmp_path / "c" / "epoch-0-batch-1" / "state.json"
    state.write_text(state.read_text().replace(f'"format": {FORMAT}', '"format": 99'))
    Folder(state.parent).record(["state.json", "state.safetensors"])
    with pytest.raises(BadInput, match=f"format {FORMAT}"):
        checkpoints.load()


def test_an_output_directory_that_cannot_be_written_is_refused(tmp_path, small):
    if os.geteuid() == 0:
        (tmp_path / "file").write_text("")
        assert main(["--out", str(tmp_path / "file" / "run"), *small]) == 2
    else:
        tmp_path.chmod(0o500)
        assert main(["--out", str(tmp_path / "run"), *small]) == 2
