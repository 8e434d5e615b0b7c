from __future__ import annotations

import json
from unittest.mock import patch

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bnneval import accuracy, ece, mean_probs, nll
from psdenets import Config, load, preset
from psdenets.data import Images, load_splits
from psdenets.data.augment import augmented
from psdenets.errors import BadInput
from psdenets.runs.checksums import Folder
from psdenets.runs.noise import noise_metrics
from psdenets.runs.predictions import predict
from psdenets.runs.weights import FORMAT
from psdenets.seeds import generator, seed_of
from psdenets.train import main
from psdenets.training.display import Lines, Live, duration, pace
from psdenets.training.loop import Trainer


def records(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def test_a_run_directory_contains_the_documented_files_and_metrics(small_run):
    names = {path.name for path in small_run.iterdir()}
    documented = (
        "config.json data.json metrics.jsonl metrics.json predictions.npz validation.npz model.safetensors report.html "
        "checksums.json"
    )
    assert names == {*documented.split(), "checkpoints", "plots"}
    assert {p.name for p in (small_run / "plots").glob("*.png")} == {
        "curves.png", "entropy.png", "reliability.png", "weights.png", "widths.png"}  # fmt: skip
    metrics = json.loads((small_run / "metrics.json").read_text())
    assert {"accuracy", "ece", "nll", "brier", "entropy", "seconds", "seed", "versions"} <= set(metrics)


def test_weights_of_another_format_are_refused_even_if_their_shapes_match(small_run, tmp_path):
    for name in ("config.json", "data.json"):
        (tmp_path / name).write_bytes((small_run / name).read_bytes())
    weights = load_file(small_run / "model.safetensors")
    save_file(weights, tmp_path / "model.safetensors")  # without a format number, as in format 1
    Folder(tmp_path).record(["config.json", "data.json", "model.safetensors"])
    with pytest.raises(BadInput, match=f"expected weights of format {FORMAT} in .*, got format 1"):
        load(tmp_path)


def test_every_epoch_has_metrics_for_train_val_and_test(small_run):
    for k, record in enumerate(records(small_run)):
        assert record["epoch"] == k + 1
        for part in ("train", "val", "test"):
            assert {"accuracy", "ece", "nll", "kl"} <= set(record[part])
            assert 0 <= record[part]["accuracy"] <= 1


def test_without_epoch_test_the_test_images_are_evaluated_at_the_end_only(tmp_path, small, capsys):
    assert main(["--out", str(tmp_path / "r"), *small, "--no-epoch-test"]) == 0
    assert all({"train", "val"} <= set(record) and "test" not in record for record in records(tmp_path / "r"))
    assert "accuracy" in json.loads((tmp_path / "r" / "metrics.json").read_text())
    epochs = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch ")]
    assert epochs
    assert not any(" test " in line for line in epochs)


def test_with_mirror_every_sample_predicts_the_mean_of_both_views(small_run):
    model = load(small_run)
    x = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    def probs(images):
        return model.predict_proba(images, 3, torch.Generator().manual_seed(1), return_samples=True)

    one, other = probs(x), probs(x.flip(-1))
    assert (one - other).abs().max() > 1e-6
    model.config = model.config.replace(mirror=True)
    assert torch.equal(probs(x), (one + other) / 2)
    images = Images((255 * x).round().to(torch.uint8), torch.arange(5))
    seen = noise_metrics(model, images, predict(model, images, 3, torch.Generator().manual_seed(1)))
    model.config = model.config.replace(mirror=False)
    alone = noise_metrics(model, images, predict(model, images, 3, torch.Generator().manual_seed(1)))
    assert seen["nll_no_noise"] != alone["nll_no_noise"]


def test_an_image_is_mirrored_in_every_other_epoch(tmp_path):
    config = Config(width=4, steps=3, drift="1-4-1", limit_train=64, limit_test=20, batch_size=32, augment="shift-flip")
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    seen = []

    def note(pixels, kind, generator, turn):
        seen.append((pixels, turn))
        return augmented(pixels, kind, generator, turn)

    with patch("psdenets.training.loop.augmented", note):
        for _ in range(2):
            while trainer.at.batch < trainer.batches:
                trainer.step()
            trainer.finish_epoch(lambda: None)
    turns = [{pixels.numpy().tobytes(): bool(turn) for x, t in part for pixels, turn in zip(x, t, strict=True)}
             for part in (seen[: trainer.batches], seen[trainer.batches :])]  # fmt: skip
    assert all(turns[0][image] is not turns[1][image] for image in turns[0])
    assert 0 < sum(turns[0].values()) < len(turns[0])


def test_the_final_metrics_are_those_of_the_saved_predictions(small_run):
    with np.load(small_run / "predictions.npz") as archive:
        probs, labels = archive["probs"], archive["labels"]
    assert probs.shape == (2, 40, 10)
    metrics = json.loads((small_run / "metrics.json").read_text())
    mean = mean_probs(probs)
    for name, f in (("accuracy", accuracy), ("ece", ece), ("nll", nll)):
        assert metrics[name] == pytest.approx(f(mean, labels), rel=1e-12)
    # the NLL is a mean over images; the published code reports about a hundredth of it
    assert metrics["nll"] == pytest.approx(-np.log(mean[np.arange(40), labels]).mean(), rel=1e-12)


def test_the_logged_loss_is_the_objective(small_run):
    """The published code trained with the factor kappa / n_train and logged the loss with a different one."""
    config = Config(**json.loads((small_run / "config.json").read_text()))
    for record in records(small_run):
        train = record["train"]
        expected = train["nll"] + 2 * config.system.kl_weight * train["kl"] / 96
        assert train["kl"] > 0
        assert train["loss"] == pytest.approx(expected, rel=1e-5)  # the logged NLL uses float64 probabilities


def test_a_loaded_model_reproduces_the_saved_predictions(small_run):
    model = load(small_run)
    config = model.config
    predictions = predict(model, load_splits(config).test, 2, generator(config.seed, "final"))
    with np.load(small_run / "predictions.npz") as archive:
        np.testing.assert_allclose(predictions.probs, archive["probs"], rtol=0, atol=1e-12)


def test_the_training_nll_decreases_from_the_first_epoch_to_the_last(small_run):
    first, last = records(small_run)[0], records(small_run)[-1]
    assert last["train"]["nll"] < first["train"]["nll"] < 2.5


def test_max_seconds_ends_a_run_early_with_complete_results(tmp_path, small, capsys):
    assert main(["--out", str(tmp_path / "r"), *small, "--epochs", "500", "--max-seconds", "0.5"]) == 0
    metrics = json.loads((tmp_path / "r" / "metrics.json").read_text())
    assert metrics["steps"] < 500 * 6
    assert metrics["seconds"] < 20
    assert "stopped after --max-seconds 0.5, at step" in capsys.readouterr().out


def test_the_remaining_time_is_estimated_after_a_few_steps(tmp_path, small, capsys):
    main(["--out", str(tmp_path / "r"), *small])
    assert "images/s; about" in capsys.readouterr().out


def test_divergence_gives_a_message_and_exit_status_1(tmp_path, small, capsys):
    status = main(["--out", str(tmp_path / "r"), *small, "--lr", "1e30", "--schedule", "constant"])
    assert status == 1
    assert "training diverged at epoch 1, batch" in capsys.readouterr().out
    assert not (tmp_path / "r" / "metrics.json").exists()


@pytest.mark.parametrize("select", ["last", "best"])
def test_the_kept_weights_are_the_last_or_the_best_on_the_validation_split(select):
    config = Config(
        width=4, steps=3, drift="1-4-1", limit_train=64, limit_test=20, batch_size=32, epochs=3, select=select,
        noise_start=0.0,
    )  # fmt: skip
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    states, scores = [], []
    for _ in range(3):
        while trainer.at.batch < trainer.batches:
            trainer.step()
        val = trainer.finish_epoch(lambda: None)["val"]
        scores.append((val["accuracy"], -val["nll"]))
        states.append({name: tensor.clone() for name, tensor in trainer.evaluated.state_dict().items()})
    expected = states[scores.index(max(scores))] if select == "best" else states[-1]
    assert all(torch.equal(expected[name], tensor) for name, tensor in trainer.chosen().items())


def test_averaged_weights_equal_a_moving_average_computed_by_hand():
    config = Config(width=2, steps=3, drift="1-2-1", limit_train=64, batch_size=32, epochs=1, ema=0.2)
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    mean = trainer.model.head.weight.detach().clone()
    for k in range(2):
        trainer.step()
        decay = min(0.2, (1 + k) / (10 + k))
        mean = decay * mean + (1 - decay) * trainer.model.head.weight.detach()
    torch.testing.assert_close(trainer.averaged.head.weight, mean, rtol=1e-6, atol=1e-7)


def test_clipping_limits_the_norm_of_the_gradient():
    config = Config(width=2, steps=3, drift="1-2-1", limit_train=64, batch_size=32, clip=1e-3)
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    trainer.step()
    norm = torch.cat([p.grad.reshape(-1) for p in trainer.model.parameters()]).norm()
    assert norm.item() == pytest.approx(1e-3, rel=1e-3)


def test_the_seed_of_a_generator_depends_on_run_seed_stream_and_index():
    assert seed_of(0, "noise", 5) == seed_of(0, "noise", 5)
    assert len({seed_of(s, stream, k) for s in (0, 1) for stream in ("noise", "order") for k in range(50)}) == 200
    assert seed_of(1, "a", 23) != seed_of(12, "a", 3)


def test_durations_are_shown_in_a_suitable_unit():
    assert [duration(s) for s in (45, 210, 7560, 345_600)] == ["45 s", "3.5 min", "2.1 h", "4.0 days"]


class Terminal:
    """A stream that claims to be a terminal."""

    encoding = "utf-8"

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return True


def test_the_live_display_shows_losses_speed_and_epochs():
    config = Config(width=2, steps=3, drift="1-2-1", limit_train=64, limit_test=20, batch_size=16, epochs=1)
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    stream = Terminal()
    with Live(stream) as live:
        while trainer.at.batch < trainer.batches:
            live.step(trainer, trainer.step())
        live.show_epoch(trainer.finish_epoch(lambda: None))
    for word in ("loss", "nll", "kl", "accuracy", "images/s", "left", "val ECE", "epochs", "batches"):
        assert word in stream.text


def test_output_that_is_not_a_terminal_gets_no_control_characters(tmp_path, small, capsys):
    main(["--out", str(tmp_path / "r"), *small])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.count("epoch ") == 2


def test_progress_is_printed_during_a_long_epoch():
    config = Config(width=2, steps=3, drift="1-2-1", limit_train=64, batch_size=32)
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    stream = Terminal()
    lines = Lines(stream, every=0.0)
    lines.step(trainer, trainer.step())
    assert "epoch 1/" in stream.text
    assert "batch 1/2" in stream.text


def test_speed_is_shown_with_at_least_two_digits_and_without_an_exponent():
    assert [pace(speed) for speed in (0.233, 9.4, 96.6, 1070.2)] == [
        "0.23 images/s", "9.4 images/s", "97 images/s", "1070 images/s"]  # fmt: skip


def test_the_drift_has_its_own_learning_rate(tmp_path):
    """The first step of Adam moves every weight by its learning rate, independently of the size of the gradient."""
    config = preset(
        "digits-strided",
        schedule="constant",
        lr=0.01,
        drift_lr=0.1,
        width=4,
        drift="1-4-1",
        limit_train=64,
        augment="none",
    )
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.step()
    moved = {name: (p.detach() - before[name]).abs().max().item() for name, p in trainer.model.named_parameters()}
    drift = [name for name in moved if ".drift." in name]
    assert moved["blocks.0.process.w0"] == pytest.approx(0.01, rel=1e-3)
    assert moved["head.weight"] == pytest.approx(0.01, rel=1e-3)
    assert max(moved[name] for name in drift) == pytest.approx(0.001, rel=1e-3)
