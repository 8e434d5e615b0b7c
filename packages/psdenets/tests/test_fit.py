"""Training from Python: `fit`, `Run`, callbacks, arrays, extending a run."""

from __future__ import annotations

import csv
import json
import threading

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import psdenets
from psdenets import BadInput, Callback, Config, CsvLog, Diverged, Interrupted, Run, compare_runs, fit, runs_table
from psdenets.data import load_splits
from psdenets.runs.predictions import predict
from psdenets.seeds import generator
from psdenets.train import main
from psdenets.training.display import Bar, display_on

TINY = {
    "width": 4, "steps": 3, "drift": "1-4-1", "epochs": 2, "batch_size": 32, "limit_train": 64, "limit_test": 40,
    "test_samples": 2, "threads": 1,
}  # fmt: skip


def tiny(out, **changes):
    return fit("digits-strided", out=str(out), progress="none", **{**TINY, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("fit") / "a")


def arrays(n=80, seed=0):
    g = np.random.default_rng(seed)
    y = g.integers(3, size=n)
    x = g.integers(0, 100, size=(n, 8, 8), dtype=np.uint8)
    x[np.arange(n), y * 2] += 150  # a bright row tells the class
    return x, y


def test_fit_returns_the_run_that_the_command_writes(run, tmp_path, capsys):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    assert main(["--preset", "digits-strided", "--out", str(tmp_path / "b"), *flags]) == 0
    for name in ("model.safetensors", "predictions.npz"):
        assert (tmp_path / "b" / name).read_bytes() == (run.path / name).read_bytes()
    capsys.readouterr()


def test_a_run_has_its_model_metrics_history_config_predictions_report_and_plots(run):
    assert run.config.training.epochs == 2
    assert [record["epoch"] for record in run.history] == [1, 2]
    assert run.report.is_file()
    test = load_splits(run.config).test
    again = predict(run.model, test, 2, generator(run.config.seed, "final"))
    np.testing.assert_array_equal(again.probs, run.predictions.probs)
    assert run.predictions.metrics()["accuracy"] == run.metrics["accuracy"]
    for plot in (run.plot_curves, run.plot_reliability, run.plot_entropy, run.plot_weights):
        assert plot().axes
    assert "accuracy" in repr(run)


def test_a_loaded_run_equals_the_fitted_one(run):
    assert Run.load(run.path).metrics == run.metrics
    with pytest.raises(BadInput, match=r"expected a finished run with metrics.json, got .*nothing"):
        Run.load(run.path / "nothing")


def test_fit_prints_nothing_with_progress_none(tmp_path, capsys):
    tiny(tmp_path / "a", epochs=1)
    out = capsys.readouterr()
    assert out.out == out.err == ""


def test_fit_into_a_folder_that_holds_a_run_is_refused_and_changes_nothing(run):
    before = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    with pytest.raises(BadInput, match="expected a new --out, got .*, which holds a run"):
        tiny(run.path)
    assert {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()} == before


def test_fit_trains_where_gradients_are_off_and_leaves_the_settings_of_torch_as_they_were(run, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        with torch.inference_mode():
            other = tiny(tmp_path / "a")
            assert torch.is_inference_mode_enabled()
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
    assert (other.path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()


def test_another_default_dtype_is_refused(tmp_path):
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(BadInput, match=r"expected torch's default dtype to be torch.float32, got torch.float64"):
            tiny(tmp_path / "a")
    finally:
        torch.set_default_dtype(torch.float32)
    assert not (tmp_path / "a").exists()


def test_fit_works_in_a_thread(tmp_path):
    found = []
    thread = threading.Thread(target=lambda: found.append(tiny(tmp_path / "a", epochs=1)))
    thread.start()
    thread.join()
    assert found[0].metrics["epochs"] == 1


class Recorder(Callback):
    def __init__(self):
        self.events = []

    def on_begin(self, training):
        self.events.append(("begin", len(training.history)))

    def on_step(self, step):
        self.events.append(("step", step.step))
        assert np.isfinite([step.loss, step.nll, step.kl, step.accuracy, step.lr, step.seconds]).all()

    def on_epoch(self, record):
        self.events.append(("epoch", record["epoch"]))

    def on_end(self, run):
        self.events.append(("end", run.metrics["epochs"]))


def test_callbacks_see_every_step_and_epoch_in_order(tmp_path):
    seen = Recorder()
    tiny(tmp_path / "a", callbacks=[seen])
    assert seen.events == [("begin", 0), ("step", 1), ("step", 2), ("epoch", 1), ("step", 3), ("step", 4),
                           ("epoch", 2), ("end", 2)]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "true"), [("on_step", True), ("on_epoch", np.bool_(True)), ("on_epoch", torch.tensor(True))]
)
def test_a_callback_that_returns_true_ends_training_with_complete_results(method, true, tmp_path):
    callback = Callback()
    setattr(callback, method, lambda _: true)
    run = tiny(tmp_path / "a", epochs=5, callbacks=[callback])
    assert run.metrics["epochs"] == 1
    assert run.metrics["steps"] == (1 if method == "on_step" else 2)
    assert run.report.is_file()


@pytest.mark.parametrize("callbacks", [Callback(), [Callback], [lambda step: None]], ids=["alone", "class", "function"])
def test_callbacks_that_cannot_be_called_are_refused_before_anything_is_written(callbacks, tmp_path):
    with pytest.raises(BadInput, match="expected callbacks to be"):
        tiny(tmp_path / "a", callbacks=callbacks)
    assert not (tmp_path / "a").exists()


class Raises(Callback):
    def __init__(self, at):
        self.at = at

    def on_step(self, step):
        if step.step == self.at:
            raise RuntimeError("no more disk for my log")


def test_a_callback_that_raises_ends_the_session_with_a_checkpoint(run, tmp_path):
    with pytest.raises(RuntimeError, match="no more disk for my log") as caught:
        tiny(tmp_path / "a", callbacks=[Raises(at=3)])
    assert "resume" in caught.value.__notes__[0]
    seen = Recorder()
    resumed = fit(out=str(tmp_path / "a"), resume=True, progress="none", callbacks=[seen])
    assert seen.events[:2] == [("begin", 1), ("step", 4)]  # the third step is not repeated
    assert (resumed.path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()


@pytest.mark.parametrize("method", ["on_begin", "on_epoch", "on_end"])
def test_nothing_is_lost_wherever_a_callback_raises(method, run, tmp_path):
    def fails(_):
        raise RuntimeError("no more disk for my log")

    callback = Callback()
    setattr(callback, method, fails)
    with pytest.raises(RuntimeError, match="no more disk for my log"):
        tiny(tmp_path / "a", callbacks=[callback])
    if method == "on_end":  # the run is finished
        assert Run.load(tmp_path / "a").metrics["nll"] == run.metrics["nll"]
    resumed = fit(out=str(tmp_path / "a"), resume=True, progress="none")
    assert (resumed.path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()


class Interrupts(Callback):
    def on_step(self, step):
        import signal

        if step.step == 3:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_raises_interrupted_with_a_checkpoint(run, tmp_path):
    with pytest.raises(Interrupted, match="stopped, checkpoint saved; resume with"):
        tiny(tmp_path / "a", callbacks=[Interrupts()])
    resumed = fit(out=str(tmp_path / "a"), resume=True, progress="none")
    assert (resumed.path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()


def test_divergence_is_an_exception(tmp_path):
    with pytest.raises(Diverged, match="training diverged at epoch 1"):
        tiny(tmp_path / "a", lr=1e9, clip=None, epochs=5)


def test_the_csv_log_has_a_line_per_epoch_also_after_resuming(tmp_path):
    with pytest.raises(RuntimeError):
        tiny(tmp_path / "a", log="csv", callbacks=[Raises(at=3)])
    resumed = fit(out=str(tmp_path / "a"), resume=True, progress="none")
    with (resumed.path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epoch"] for row in rows] == ["1", "2"]
    assert float(rows[1]["val_accuracy"]) == resumed.history[1]["val"]["accuracy"]
    log = CsvLog(tmp_path / "own.csv")
    tiny(tmp_path / "b", epochs=1, callbacks=[log])
    assert (tmp_path / "own.csv").read_text().count("\n") == 2


def test_the_tensorboard_log_has_every_epoch(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tiny(tmp_path / "a", log="tensorboard")
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    found = events.Scalars("val/accuracy")
    assert [event.step for event in found] == [2, 4]
    assert [event.value for event in found] == pytest.approx([r["val"]["accuracy"] for r in run.history])


@pytest.mark.parametrize("kind", ["uint8", "float", "tensor", "dataset", "text"])
def test_fit_takes_arrays_tensors_and_datasets(kind, tmp_path):
    x, y = arrays()
    names = np.array(["cat", "dog", "eel"])
    data = {
        "uint8": (x, y),
        "float": (x / 255, y.astype(np.int32)),
        "tensor": (torch.from_numpy(x), torch.from_numpy(y)),
        "dataset": TensorDataset(torch.from_numpy(x), torch.from_numpy(y)),
        "text": (x, names[y]),
    }[kind]
    run = tiny(tmp_path / "a", data=data, limit_train=None, limit_test=None)
    assert run.model.spec.classes == (("cat", "dog", "eel") if kind == "text" else ("0", "1", "2"))
    assert run.predictions.probs.shape == (2, 16, 3)
    if kind == "uint8":
        return
    same = tiny(tmp_path / "b", data=(x, y), limit_train=None, limit_test=None)
    np.testing.assert_array_equal(same.predictions.probs, run.predictions.probs)


def test_labels_may_be_objects_that_are_text_and_rows_may_have_any_floating_point_type(tmp_path):
    from psdenets.data.arrays import pool_from

    x, y = arrays()
    names = np.array(["low", "mid", "high"], dtype=object)[y]  # as in a column of pandas
    assert pool_from((x, names)).spec.classes == ("high", "low", "mid")
    rows = torch.from_numpy(x[:, :2, 0]).bfloat16()
    torch.testing.assert_close(pool_from((rows, y)).train.pixels[:, :, 0, 0], rows.float(), rtol=0, atol=0)


def test_given_test_images_are_used_for_testing(tmp_path):
    (x, y), (x_test, y_test) = arrays(), arrays(21, seed=1)
    run = tiny(tmp_path / "a", data=(x, y, x_test, y_test), limit_train=None, limit_test=None)
    np.testing.assert_array_equal(run.predictions.labels, y_test)
    train, test = (TensorDataset(torch.from_numpy(a), torch.from_numpy(b)) for a, b in ((x, y), (x_test, y_test)))
    again = tiny(tmp_path / "b", data=(train, test), limit_train=None, limit_test=None)
    np.testing.assert_array_equal(run.predictions.probs, again.predictions.probs)


def test_a_run_on_arrays_resumes_only_with_the_same_arrays(tmp_path):
    whole = tiny(tmp_path / "whole", data=arrays())
    with pytest.raises(RuntimeError):
        tiny(tmp_path / "a", data=arrays(), callbacks=[Raises(at=2)])
    for data, message in ((None, "expected data="), (arrays(seed=5), "their checksum differs")):
        with pytest.raises(BadInput, match=message):
            fit(out=str(tmp_path / "a"), resume=True, data=data, progress="none")
    resumed = fit(out=str(tmp_path / "a"), resume=True, data=arrays(), progress="none")
    assert (resumed.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()


class Broken(Dataset):
    def __getitem__(self, i):
        return np.zeros((8, 8), np.uint8)

    def __len__(self):
        return 3


X, Y = arrays()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((X, Y[:-1]), "expected 80 labels in y, got 79"),
        ((X, Y.astype(float)), "expected y to be one whole number or text per image, got float64"),
        ((X, Y[:, None]), "expected y to be one whole number or text per image"),
        ((X / 100, Y), r"expected floating-point images in \[0, 1\]"),
        ((np.where(X > 0, X / 255, np.nan), Y), r"expected floating-point images in \[0, 1\] in x, got .* NaN"),
        ((X[:, 0], Y), "expected options with dataset=.table. for rows of numbers, got those of .digits."),
        ((X[:, 0, 0], Y), "expected uint8 images"),
        ((X.astype(int), Y), "expected uint8 images"),
        ((X, np.zeros(80, int)), "expected labels of at least two classes, got 1"),
        ((X, Y, X, Y + 5), "expected the labels of x_test among those of x, got 5"),
        ((X, Y, X), "expected data to be .*, got 3 parts"),
        (X, "expected data to be .*, got ndarray"),
        (Broken(), r"expected a Dataset with a length, of \(image, label\) pairs"),
    ],
    ids=str,
)
def test_data_that_cannot_be_used_is_refused_before_anything_is_written(data, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        tiny(tmp_path / "a", data=data)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sigmma": 1.0}, "unknown option sigmma; did you mean sigma"),
        ({"sigma": -1.0}, "expected --sigma above 0"),
        ({"progress": "loud"}, "expected progress to be auto, live, bar, lines, none"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        fit("digits-strided", out=str(tmp_path / "a"), **{"progress": "none", **options})
    assert not (tmp_path / "a").exists()


def test_the_dataset_arrays_needs_python(tmp_path, capsys):
    assert main(["--dataset", "arrays", "--out", str(tmp_path / "a")]) == 2
    assert "psdenets.fit(..., data=(x, y))" in capsys.readouterr().err


def test_fit_takes_a_config(tmp_path, run):
    config = Config.read({**psdenets.PRESETS["digits-strided"], **TINY})
    other = fit(config, out=str(tmp_path / "a"), progress="none")
    assert (other.path / "model.safetensors").read_bytes() == (run.path / "model.safetensors").read_bytes()
    assert fit(config, out=str(tmp_path / "a"), resume=True, progress="none").metrics == other.metrics


@pytest.mark.parametrize("schedule", ["constant", "one-cycle"])
def test_a_finished_run_is_extended(schedule, tmp_path):
    whole = tiny(tmp_path / "whole", epochs=4, schedule=schedule)
    tiny(tmp_path / "a", schedule=schedule)
    longer = fit(out=str(tmp_path / "a"), resume=True, epochs=4, progress="none")
    assert longer.config.training.epochs == longer.metrics["epochs"] == 4
    assert [record["epoch"] for record in longer.history] == [1, 2, 3, 4]
    same = (longer.path / "model.safetensors").read_bytes() == (whole.path / "model.safetensors").read_bytes()
    assert same == (schedule == "constant")


def test_a_run_killed_while_it_is_reopened_finishes_as_before(tmp_path):
    run = tiny(tmp_path / "a")
    before = (run.path / "model.safetensors").read_bytes(), run.metrics["accuracy"]
    (run.path / "metrics.json").unlink()
    again = fit(out=str(tmp_path / "a"), resume=True, progress="none")
    assert ((again.path / "model.safetensors").read_bytes(), again.metrics["accuracy"]) == before


@pytest.mark.parametrize(
    ("options", "more", "message"),
    [
        ({}, 1, "expected at least the 2 --epochs"),
        ({"steps": "2,3"}, 4, "its grid was already refined"),
    ],
)
def test_runs_that_cannot_be_extended_are_refused_and_stay_finished(options, more, message, tmp_path):
    run = tiny(tmp_path / "a", **options)
    with pytest.raises(BadInput, match=message):
        fit(out=str(run.path), resume=True, epochs=more, progress="none")
    assert Run.load(run.path).metrics == run.metrics


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": None}, "expected data="),
        ({"data": arrays(seed=5)}, "their checksum differs"),
        ({"progress": "loud"}, "expected progress to be"),
        ({"callbacks": [Callback]}, "expected callbacks to be"),
        ({"device": "none-such"}, "not available on this machine"),
    ],
    ids=["no data", "other data", "progress", "callback", "device"],
)
def test_a_refused_extension_leaves_the_run_finished(options, message, run_on_arrays):
    before = {path: path.read_bytes() for path in run_on_arrays.path.rglob("*") if path.is_file()}
    with pytest.raises(BadInput, match=message):
        fit(**{"out": str(run_on_arrays.path), "data": arrays(), "resume": True, "epochs": 4, **options})
    assert {path: path.read_bytes() for path in run_on_arrays.path.rglob("*") if path.is_file()} == before


@pytest.fixture(scope="module")
def run_on_arrays(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("fit") / "a", data=arrays(), epochs=1)


def test_an_ensemble_cannot_be_extended(tmp_path):
    small = {name: value for name, value in TINY.items() if name not in ("drift", "test_samples")}
    run = fit(model="ensemble", member="odenet", members=1, out=str(tmp_path / "a"), progress="none", **small)
    with pytest.raises(BadInput, match="an ensemble cannot be extended"):
        fit(out=str(run.path), resume=True, epochs=4, progress="none")
    assert Run.load(run.path).metrics == run.metrics


def test_the_command_extends_a_run(tmp_path, capsys):
    run = tiny(tmp_path / "a", schedule="constant")
    assert main(["--out", str(run.path), "--resume", "--epochs", "3"]) == 0
    assert Run.load(run.path).metrics["epochs"] == 3
    capsys.readouterr()
    assert main(["--out", str(run.path), "--resume"]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_a_table_of_runs(run, tmp_path):
    other = tiny(tmp_path / "runs" / "b", seed=1)
    (tmp_path / "runs" / "unfinished").mkdir()
    table = runs_table([run, str(tmp_path / "runs" / "*")])
    assert [row["run"] for row in table] == [run.path.name, "b"]
    assert table[1]["accuracy"] == other.metrics["accuracy"]
    lines = str(table).splitlines()
    assert len(lines) == 3
    assert lines[0].split()[:3] == ["run", "dataset", "model"]
    assert f"{other.metrics['accuracy']:.2%}" in lines[2]
    assert table._repr_html_().count("<tr>") == 3
    with pytest.raises(BadInput, match="which matches nothing"):
        runs_table(str(tmp_path / "none*"))


def test_a_table_of_runs_as_a_data_frame(run):
    pytest.importorskip("pandas")
    frame = runs_table(run.path).to_pandas()
    assert frame["nll"][0] == run.metrics["nll"]


def test_two_runs_are_compared_on_the_same_images(run, tmp_path):
    other = tiny(tmp_path / "b", seed=1)
    found = compare_runs(run, other.path, ood="noise")
    assert set(found) == {"accuracy", "nll", "ece", "auroc noise"}
    for name in ("accuracy", "nll", "ece"):
        assert found[name].a == pytest.approx(run.metrics[name])
        assert found[name].difference == pytest.approx(run.metrics[name] - other.metrics[name])
        assert found[name].low <= found[name].high
    assert found["auroc noise"].difference == pytest.approx(found["auroc noise"].a - found["auroc noise"].b)
    assert len(str(found).splitlines()) == 5
    itself = compare_runs(run, run, ood="noise")
    assert all(d.difference == d.low == d.high == 0 for d in itself.values())


def test_runs_on_other_images_are_not_compared(run, tmp_path):
    other = tiny(tmp_path / "b", split_seed=3)
    with pytest.raises(BadInput, match="expected runs with the same test images"):
        compare_runs(run, other)


class Stream:
    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def isatty(self):
        return False


def test_the_bar_overwrites_one_line(monkeypatch):
    stream = Stream()
    config = Config(**{**TINY, "epochs": 1, "batch_size": 16, "noise_start": 0.0})
    from psdenets.training.loop import Trainer

    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    with Bar(stream, every=0.0) as bar:
        while trainer.at.batch < trainer.batches:
            bar.step(trainer, trainer.step())
        bar.show_epoch(trainer.finish_epoch(lambda: None))
    assert "epoch 1/1" in stream.text
    assert stream.text.count("\n") == 2  # the estimate of the time, and the end
    shown = [part for part in stream.text.split("\r") if "loss" in part]
    assert len(shown) == trainer.steps


def test_on_a_terminal_there_is_one_live_display_which_ends(tmp_path):
    import os
    import pty
    import sys

    out = tmp_path / "r"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    pid, terminal = pty.fork()
    if pid == 0:
        command = [sys.executable, "-m", "psdenets.train", "--preset", "digits-strided", "--out", str(out), *flags]
        os.execv(sys.executable, command)
    shown = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        shown += part
    assert os.waitpid(pid, 0)[1] == 0
    text = shown.decode()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1  # the cursor is hidden once, and shown again
    assert text.rstrip().endswith("report.html") or "report.html" in text[text.index("\x1b[?25h") :]


def test_a_config_file_with_options_of_other_systems_resumes_a_run(run, tmp_path, capsys):
    file = tmp_path / "all.yaml"
    file.write_text(json.dumps({"sigma": run.config.system.process.sigma, "chains": 4, "norm": "batch"}))
    assert main(["--out", str(run.path), "--resume", "--config", str(file)]) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert main(["--out", str(run.path), "--resume", "--chains", "4"]) == 2
    file.write_text(json.dumps({"sigma": 3.0}))
    assert main(["--out", str(run.path), "--resume", "--config", str(file)]) == 2
    assert "expected --sigma" in capsys.readouterr().err


def test_in_a_notebook_the_display_is_a_bar(monkeypatch):
    import sys
    import types

    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    assert isinstance(display_on(stream=Stream()), Bar)


def test_metrics_json_of_a_fitted_run_is_strict_json(run):
    assert json.loads((run.path / "metrics.json").read_text())["seed"] == 0
