"""Damaged, swapped or edited files of a run are refused in one line, or an earlier checkpoint is used."""

from __future__ import annotations

import importlib.util
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import psdenets
from psdenets import BadInput
from psdenets.runs.checksums import Folder, Records
from psdenets.runs.digests import Damaged, digest_of
from psdenets.runs.directory import RunDir
from psdenets.runs.forms import METRICS
from psdenets.runs.loading import read_config
from psdenets.runs.schema import COUNT, require
from psdenets.train import main

DRILL = Path(__file__).parents[1] / "drills" / "corruptions.py"


def loaded():
    spec = importlib.util.spec_from_file_location("corruptions", DRILL)
    module = importlib.util.module_from_spec(spec)
    sys.modules["corruptions"] = module  # dataclasses and named tuples look their module up
    spec.loader.exec_module(module)
    return module


drill = loaded()
QUICK = ("load", "predict", "resume", "resume finished")


@pytest.fixture(scope="module")
def runs(small_run, small_resnet, tmp_path_factory):
    picture = tmp_path_factory.mktemp("pictures") / "picture.png"
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(picture)
    return drill.Runs(small_run, small_resnet, picture)


@pytest.fixture(scope="module")
def whole(runs, tmp_path_factory):
    return drill.undamaged(runs, tmp_path_factory.mktemp("whole"), list(QUICK))


def test_undamaged_runs_are_used_without_a_word(whole):
    assert {name: (found.status, found.lines) for name, found in whole.items()} == dict.fromkeys(QUICK, (0, []))


@pytest.mark.parametrize("damage", drill.DAMAGES)
@pytest.mark.parametrize("command", ["load", "resume", "resume finished"])
def test_damaged_files_are_refused_or_an_earlier_checkpoint_is_used(command, damage, runs, whole, tmp_path):
    rng, outcomes = random.Random(f"{command} {damage}"), {}
    for file in drill.files_of(runs.run, command):
        outcome = drill.tried(drill.Case(command, damage, file), runs, whole, tmp_path, rng)
        if outcome is not None:
            outcomes[str(file)] = outcome
    assert {file: outcome for file, outcome in outcomes.items() if outcome not in drill.FINE} == {}
    assert {"refused", "earlier checkpoint"} & set(outcomes.values()) or damage == "wrong type, checksum matches"


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_predict_refuses_a_changed_file(file, runs, whole, tmp_path):
    rng = random.Random(0)
    assert drill.tried(drill.Case("predict", "bit flipped", Path(file)), runs, whole, tmp_path, rng) == "refused"


def test_a_sound_run_can_be_moved_and_copied(runs, tmp_path):
    shutil.copytree(runs.run, tmp_path / "elsewhere")
    assert psdenets.Run.load(tmp_path / "elsewhere").model
    assert main(["--out", str(tmp_path / "elsewhere"), "--resume"]) == 0


def test_a_checkpoint_of_another_run_is_not_used(runs, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(runs.run, run)
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(runs.other / "checkpoints", run / "checkpoints")
    (run / "metrics.json").unlink()
    assert main(["--out", str(run), "--resume"]) == 2
    assert "belongs to another run" in capsys.readouterr().err


def test_a_finished_run_with_a_damaged_model_is_restored_from_its_checkpoint(runs, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(runs.run, run)
    model = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(model[:-1])
    assert main(["--out", str(run), "--resume"]) == 2
    assert "model.safetensors is damaged" in capsys.readouterr().err
    (run / "metrics.json").unlink()
    assert main(["--out", str(run), "--resume"]) == 0
    assert (run / "model.safetensors").read_bytes() == model
    assert main(["--out", str(run), "--resume"]) == 0


def test_a_missing_checksum_file_is_an_error_for_runs_that_had_one(runs, tmp_path):
    shutil.copytree(runs.run, tmp_path / "run")
    (tmp_path / "run" / "checksums.json").unlink()
    with pytest.raises(BadInput, match="checksums.json is missing"):
        psdenets.load(tmp_path / "run")


def test_a_run_of_an_earlier_version_loads_with_a_line_that_it_has_no_checksums(tmp_path, caplog):
    shutil.copytree(Path(__file__).parent / "format2" / "psde", tmp_path / "old")
    psdenets.load(tmp_path / "old")
    assert [record.message for record in caplog.records] == [
        f"{tmp_path / 'old'} was written by an earlier version, without checksums: its files are not checked for damage"
    ]


def test_replacing_a_file_can_be_killed_at_any_moment(tmp_path, monkeypatch):
    """The process is killed, one moment after the other, until the write succeeds; the file can be read every time."""
    import psdenets.runs.files as files

    class Killed(BaseException):
        pass

    def flush_until(n):
        left = [n]

        def flush(path):
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        return flush

    folder, seen = Folder(tmp_path / "f"), set()
    folder.write_json("a.json", {"x": 0})
    for n in range(1, 20):
        monkeypatch.setattr(files, "flush", flush_until(n))
        try:
            folder.write_json("a.json", {"x": 1})
            break
        except Killed:
            seen.add(folder.read_json("a.json")["x"])
    else:
        pytest.fail("the write never succeeded")
    assert seen == {0, 1}
    assert folder.read_json("a.json") == {"x": 1}
    assert len(folder.records().files["a.json"]) == 1


def test_an_older_version_of_a_file_is_refused(tmp_path):
    folder = Folder(tmp_path)
    folder.write_json("a.json", {"x": 0})
    old = (tmp_path / "a.json").read_bytes()
    folder.write_json("a.json", {"x": 1})
    (tmp_path / "a.json").write_bytes(old)
    with pytest.raises(Damaged, match="a.json is damaged or was changed"):
        folder.read_json("a.json")


def test_a_file_that_is_replaced_while_it_is_read_is_not_reported_as_damaged(tmp_path, monkeypatch):
    folder = Folder(tmp_path)
    folder.write_json("a.json", {"x": 0})
    stale = [Records(folder.id, {"a.json": (digest_of(tmp_path / "a.json"),)})]
    folder.write_json("a.json", {"x": 1})
    real = Folder.records
    monkeypatch.setattr(Folder, "records", lambda self: stale.pop() if stale else real(self))
    assert folder.read_json("a.json") == {"x": 1}


def test_a_class_may_be_called_infinity(tmp_path):
    spec = psdenets.ImageSpec(1, 8, 8, ("Infinity", "-Infinity"), (0.0,), (1.0,))
    RunDir(tmp_path).begin(psdenets.Config(), spec, {"train": 1, "val": 1, "test": 1})
    assert read_config(tmp_path)[1] == spec


def test_evaluate_does_not_write_into_a_run(runs, capsys):
    before = (runs.run / "metrics.json").read_bytes()
    from psdenets.evaluate import main as evaluate

    assert evaluate([str(runs.run), "--out", str(runs.run)]) == 2
    assert "holds a run" in capsys.readouterr().err
    assert (runs.run / "metrics.json").read_bytes() == before


@pytest.mark.parametrize(
    ("value", "schema", "message"),
    [
        ({"a": True}, {"a": int}, "expected a whole number for a, got True"),
        ({"a": -1}, {"a": COUNT}, "expected a whole number of at least 0 for a, got -1"),
        ({}, {"a": int}, "expected a, got an object without it"),
        ({"a": 1, "b": 2}, {"a": int}, "unknown key 'b'"),
        ({"a": [1, "x"]}, {"a": [int]}, r"expected a whole number for a\[1\], got 'x'"),
        ({"a": [1.0]}, {"a": [float, float]}, "expected a list of 2 for a"),
        ({"a": "x"}, {"a": (float, None)}, "expected a number for a, got 'x'"),
        ([], {"a": int}, r"expected an object, got \[\]"),
        (float("nan"), float, "expected a number, got nan"),
    ],
)
def test_a_value_of_another_form_is_named(value, schema, message):
    with pytest.raises(BadInput, match=message):
        require(value, schema)


@pytest.mark.parametrize(
    "name", ["seconds", "seed", "versions", "parameters", "disagreement", "test_samples", "of_my_own"]
)
@pytest.mark.parametrize("value", ["x", [[]], {"x": [1]}, True])
def test_a_metric_of_another_type_is_refused(name, value):
    metrics = {
        "seconds": 1.0,
        "kl": 2.0,
        "seed": 0,
        "versions": {"torch": "2"},
        "parameters": {"w0": 3},
        "of_my_own": None,
    }
    assert require(metrics, METRICS) is None
    with pytest.raises(BadInput, match=f"for {name}"):
        require({**metrics, name: value}, METRICS)


def test_values_of_the_right_form_are_accepted():
    for value, schema in [
        ({"a": 1, "more": "x"}, {"a": float, ...: str}),
        ({"a": None, "c": {"x": float("inf")}}, {"a": (float, None), "b?": int, "c": {str: float}}),
    ]:
        assert require(value, schema) is None


def test_verify_checks_every_file_and_record_accepts_changes(runs, tmp_path, capsys):
    from psdenets.verify import main as verify

    run = tmp_path / "run"
    shutil.copytree(runs.run, run)
    assert verify([str(run)]) == 0
    assert capsys.readouterr().out.count("files are as they were written") == 1 + len(
        list((run / "checkpoints").iterdir())
    )
    state = max((run / "checkpoints").iterdir()) / "state.json"
    state.write_text(state.read_text() + " ")
    assert verify([str(run)]) == 2
    assert "state.json is damaged or was changed" in capsys.readouterr().err
    assert verify([str(run), "--record"]) == 0
    assert verify([str(run)]) == 0
    assert psdenets.load(run)


def test_verify_adds_checksums_to_a_run_of_an_earlier_version(tmp_path, capsys):
    from psdenets.verify import main as verify

    shutil.copytree(Path(__file__).parent / "format2" / "odenet", tmp_path / "old")
    assert verify([str(tmp_path / "old")]) == 2
    assert "--record adds them" in capsys.readouterr().err
    assert verify([str(tmp_path / "old"), "--record"]) == 0
    (tmp_path / "old" / "config.json").write_text("{}")
    assert verify([str(tmp_path / "old")]) == 2
