"""Every system of Table 1 works with the same commands: train, evaluate, load, predict."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from bnneval.__main__ import main as bnneval_main
from psdenets import Config, ImageClassifier, load
from psdenets.data import load_splits
from psdenets.data.images import to_unit
from psdenets.evaluate import main as evaluate
from psdenets.predict import main as predict
from psdenets.runs.checksums import Folder
from psdenets.seeds import generator
from psdenets.systems import SYSTEMS
from psdenets.train import main

BASELINES = [name for name in SYSTEMS if name != "psde"]
SAMPLES = {"resnet32": 1, "odenet": 1, "ensemble": 2, "hmc": 4}


def test_the_baselines_are_those_of_table_1():
    wanted = (
        "resnet32 odenet mfvi-resnet32 mfvi resnet32-laplace ensemble hmc mfvi-odenet mfvi-hyperodenet vbll sde-bnn"
    )
    assert set(wanted.split()) == set(BASELINES)


@pytest.mark.parametrize("model", BASELINES)
def test_a_system_trains_and_bnneval_evaluates_its_predictions(model, run_of, capsys):
    path = run_of(model)
    metrics = json.loads((path / "metrics.json").read_text())
    with np.load(path / "predictions.npz") as archive:
        probs, labels = archive["probs"], archive["labels"]
    assert probs.shape == (SAMPLES.get(model, 3), 40, 10)
    assert probs.sum(-1) == pytest.approx(1, abs=1e-12)
    capsys.readouterr()
    assert bnneval_main([str(path / "predictions.npz")]) == 0
    shown = capsys.readouterr().out
    assert f"{(probs.mean(0).argmax(-1) == labels).mean():.4f}" in shown or f"{metrics['accuracy']:.2%}" in shown
    assert metrics["seconds"] > 0
    assert len((path / "metrics.jsonl").read_text().splitlines()) >= 2
    page = (path / "report.html").read_text()
    assert "Calibration and uncertainty" in page
    assert ("Weights over depth" in page) == (model == "sde-bnn")
    assert ("After each epoch" in page or "after each epoch" in page) == (
        Config(model=model).system.training is not None
    )


@pytest.mark.parametrize("model", BASELINES)
def test_a_loaded_system_reproduces_the_predictions_of_its_run(model, run_of):
    path = run_of(model)
    classifier = load(path)
    assert isinstance(classifier, ImageClassifier)
    x = to_unit(load_splits(classifier.config).test.pixels)
    samples = SAMPLES.get(model, 3)
    with torch.no_grad():
        logits = classifier.logits(x, classifier.draw(samples, generator(0, "final")))
    with np.load(path / "predictions.npz") as archive:
        # the run predicted in the same batches, so the operations are the same
        np.testing.assert_array_equal(logits.double().softmax(-1).numpy(), archive["probs"])


@pytest.mark.parametrize("model", ["resnet32", "mfvi-odenet", "ensemble", "hmc", "resnet32-laplace"])
def test_a_system_is_evaluated_on_out_of_distribution_images_and_classifies_files(model, run_of, tmp_path, capsys):
    path = run_of(model)
    assert evaluate([str(path), "--ood", "noise", "--limit-test", "20", "--out", str(tmp_path / "e")]) == 0
    metrics = json.loads((tmp_path / "e" / "metrics.json").read_text())["metrics"]
    assert 0 <= metrics["ood"]["auroc"] <= 1
    with np.load(tmp_path / "e" / "predictions.npz") as again, np.load(path / "predictions.npz") as first:
        np.testing.assert_allclose(again["probs"], first["probs"][:, :20], rtol=0, atol=1e-6)  # all members and draws
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "black.png")
    capsys.readouterr()
    assert predict([str(path), str(tmp_path / "black.png"), "--samples", "2", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert sum(row["probabilities"].values()) == pytest.approx(1)


def test_an_ensemble_of_one_predicts_the_same_as_its_member(tmp_path, brief_descent):
    assert main(["--model", "ensemble", "--members", "1", "--out", str(tmp_path / "one"), *brief_descent]) == 0
    whole, member = ((tmp_path / place / "predictions.npz") for place in ("one", "one/members/0"))
    with np.load(whole) as a, np.load(member) as b:
        np.testing.assert_array_equal(a["probs"], b["probs"])


def test_an_ensemble_stores_the_predictions_of_each_member_and_members_differ(run_of):
    path = run_of("ensemble")
    with np.load(path / "predictions.npz") as archive:
        probs = archive["probs"]
    members = []
    for k in range(2):
        with np.load(path / "members" / str(k) / "predictions.npz") as archive:
            members.append(archive["probs"][0])
    np.testing.assert_array_equal(probs, np.stack(members))
    assert np.abs(members[0] - members[1]).max() > 0.01
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["member"], line["epoch"]) for line in lines] == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_an_ensemble_is_resumed_member_by_member(run_of, tmp_path):
    """If training is killed in the second member, the first is not trained again, and the weights are byte-identical."""
    whole, path = run_of("ensemble"), tmp_path / "cut"
    shutil.copytree(whole, path)
    for name in ("metrics.json", "model.safetensors", "predictions.npz", "members/1/metrics.json"):
        (path / name).unlink()
    shutil.rmtree(path / "members/1/checkpoints")  # killed before its first checkpoint
    first = (path / "members/0/metrics.json").stat().st_mtime_ns
    assert main(["--out", str(path), "--resume"]) == 0
    assert (path / "members/0/metrics.json").stat().st_mtime_ns == first
    assert (path / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert main(["--out", str(path), "--resume"]) == 0  # nothing to do


def test_a_resnet_resumes_with_its_running_averages(tmp_path, brief_descent, run_of):
    """Killed in its eighth step and resumed, it ends with the same bytes as an uninterrupted run."""
    path = tmp_path / "run"
    flags = ["--model", "resnet32", "--out", str(path), "--checkpoint-seconds", "0", *brief_descent]
    from psdenets.training import session
    from psdenets.training.loop import Trainer

    class Killed(BaseException):
        pass

    real, left = Trainer.step, [8]

    def step(self):
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session.Trainer, "step", step)
        with pytest.raises(Killed):
            main(flags)
    assert main([*flags, "--resume"]) == 0
    assert (path / "model.safetensors").read_bytes() == (run_of("resnet32") / "model.safetensors").read_bytes()


def test_laplace_of_a_finished_run_equals_laplace_fitted_after_training(run_of, tmp_path, small_resnet):
    flags = ["--model", "resnet32-laplace", "--laplace-of", str(small_resnet), "--test-samples", "3"]
    assert main([*flags, "--out", str(tmp_path / "run")]) == 0
    trained = run_of("resnet32-laplace")
    assert (tmp_path / "run/model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()
    assert main([*flags, "--out", str(tmp_path / "run"), "--resume"]) == 0


def test_max_seconds_of_uses_the_training_time_of_another_run(run_of, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(run_of("resnet32"), other)
    metrics = json.loads((other / "metrics.json").read_text())
    Folder(other).write_json("metrics.json", {**metrics, "seconds": 0.05})
    flags = ["--model", "sde-bnn", "--max-seconds-of", str(other), "--epochs", "1000", "--limit-train", "64"]
    assert main([*flags, "--limit-test", "20", "--width", "4", "--out", str(tmp_path / "run")]) == 0
    assert "stopped after --max-seconds 0.05, at step" in capsys.readouterr().out
    assert json.loads((tmp_path / "run/config.json").read_text())["max_seconds"] == 0.05


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--model", "ensemble", "--members", "0"], "expected --members at least 1, got 0"),
        (["--model", "sde-bnn", "--max-seconds", "0"], "expected --max-seconds above 0, got 0"),
        (["--model", "sde-bnn", "--max-seconds-of", "nowhere"], "expected a finished run with metrics.json"),
        (["--model", "resnet32", "--max-seconds-of", "a", "--max-seconds", "3"], "expected either --max-seconds or"),
        (
            ["--model", "sde-bnn", "--cut", "vertical"],
            "expected --cut with --model psde only, got it with --model sde-bnn",
        ),
        (["--model", "resnet32", "--drift", "1-4-1"], "expected --drift with --model psde or sde-bnn or"),
        (["--model", "resnet32", "--test-samples", "5"], "expected --test-samples with --model"),
        (["--model", "hmc", "--lr", "0.1"], "expected --lr with --model"),
        (["--model", "mfvi", "--members", "2"], "expected --members with --model ensemble only"),
        (["--model", "odenet", "--rtol", "1e-3"], "expected --rtol and --atol with an adaptive scheme"),
        (["--hidden-method", "dopri5"], "expected --hidden-method dopri5 with weights that do not change"),
        (["--model", "odenet", "--hidden-method", "reversible_heun"], "expected a --hidden-method of torchdiffeq"),
        (["--prior-std", "2"], "expected --prior-std and --log-std with --head meanfield"),
        (["--model", "resnet33"], "expected --model to be one of"),
        (
            ["--model", "resnet32", "--batch-size", "1"],
            "expected --batch-size of 2 or more with batch normalisation, got 1",
        ),
        (["--model", "mfvi", "--blocks", "1-1-1-1"], "large enough for 4 scales, got 8 x 8"),
    ],
)
def test_a_mistake_gives_a_one_line_error_and_exit_status_2(args, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(args) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", ["mfvi", "odenet", "ensemble"])
def test_laplace_of_a_run_that_is_not_a_resnet32_is_refused(model, run_of, capsys, tmp_path):
    out = tmp_path / "run"
    assert main(["--model", "resnet32-laplace", "--laplace-of", str(run_of(model)), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert (
        f"whose last layer is linear and whose weights are point estimates, got {run_of(model)} of --model {model}"
        in error
    )
    assert not out.exists()


@pytest.mark.parametrize("model", SYSTEMS)
@pytest.mark.parametrize("dataset", ["digits", "mnist", "cifar10"])
def test_the_defaults_of_every_system_make_a_valid_config(model, dataset):
    config = Config(model=model, dataset=dataset)
    assert config.as_dict().keys() >= SYSTEMS[model].takes({})
    if "resnet32" in model or model in ("vbll", "ensemble"):
        assert config.system.net.scales == ((1, 1, 1) if dataset == "digits" else (5, 5, 5))


def test_hmc_reports_its_cost_and_its_mixing(run_of, capsys, tmp_path, brief):
    pytest.importorskip("pyro")
    flags = [
        "--model",
        "hmc",
        "--chains",
        "2",
        "--warmup",
        "10",
        "--draws",
        "8",
        "--leapfrog",
        "5",
        "--test-samples",
        "4",
        "--width",
        "4",
    ]
    assert main([*flags, *brief, "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr().out
    assert "96 images x 180 gradients is about" in shown
    assert (
        "a full-size one, as Izmailov et al. (2021) ran it on CIFAR-10: 40,960 images x 61,115,760 gradients" in shown
    )
    assert "divergent transitions" in shown
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    assert set(metrics["mixing"]) == {"log_posterior", "log_probs", "weights"}
    assert {"max_rhat", "min_ess"} <= set(metrics["mixing"]["log_probs"])
    assert len(metrics["accept"]) == 2
    assert (tmp_path / "run/model.safetensors").read_bytes() == (run_of("hmc") / "model.safetensors").read_bytes()


def test_hmc_that_would_take_too_long_is_refused_with_an_estimate(capsys, tmp_path, monkeypatch):
    pytest.importorskip("pyro")
    monkeypatch.chdir(tmp_path)
    assert main(["--model", "hmc", "--leapfrog", "1000000", "--limit-train", "64"]) == 2
    error = capsys.readouterr().err
    assert (
        "expected a data set on which HMC takes at most 2 h, got digits: 64 images x 1,600,000,000 gradients" in error
    )
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
