"""`--dataset imagefolder`: listing, image size, the cache, splits, training, resuming, `--balance`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from psdenets import BadInput, Callback, Config, Run, build, evaluate, fit, predict, train
from psdenets.data import load_splits, stored
from psdenets.data.folder import chosen_size, imagefolder
from psdenets.data.stored import Decoding, PictureFile
from psdenets.models.likelihoods import CATEGORICAL
from psdenets.seeds import generator
from psdenets.training.objective import class_weights, mean_nll
from psdenets.training.step import TrainingStep

QUICK = {"channels": "4-4-4", "epochs": 1, "batch_size": 8, "test_samples": 2, "tune_sigma": "none", "samples": 1,
         "objective": "elbo", "image_size": 16, "threads": 1}  # fmt: skip
FLAGS = [text for name, value in QUICK.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def picture(path, size=(20, 14), shade=0):
    """A picture of (width, height) with a random pattern around a shade."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(abs(hash((path.name, shade))) % 2**32)
    pixels = rng.integers(0, 60, (size[1], size[0], 3)) + shade
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


@pytest.fixture
def folder(tmp_path):
    """30 dark and 12 bright pictures of two sizes."""
    root = tmp_path / "my pets $1"
    for k in range(30):
        picture(root / "a $x$ ü" / f"{k:02}.png", (20, 14) if k % 2 else (12, 30))
    for k in range(12):
        picture(root / "b" / f"{k:02}.png", shade=180)
    return root


class StopAt(Callback):
    """Ends training with an exception after some steps."""

    def __init__(self, step):
        self.at = step

    def on_step(self, step):
        if step.step == self.at:
            raise KeyError("stop")


def config_of(root, **options):
    return Config(dataset="imagefolder", data_root=str(root), **{**QUICK, **options})


def test_pictures_of_mixed_sizes_are_split_with_the_same_share_of_every_class(folder):
    splits = load_splits(config_of(folder))
    assert splits.spec.classes == ("a $x$ ü", "b")
    assert splits.spec.size == "3 x 16 x 16"
    for seed in range(4):
        found = load_splits(config_of(folder, split_seed=seed))[:3]
        assert [part.labels.bincount(minlength=2).tolist() for part in found] == [[22, 9], [2, 1], [6, 2]]
    everything = torch.cat([part.pixels[:] for part in splits[:3]]).double() / 255
    assert everything.mean((0, 2, 3)).tolist() == pytest.approx(splits.spec.mean, abs=1e-12)
    assert everything.permute(1, 0, 2, 3).flatten(1).std(1, correction=0).tolist() == pytest.approx(splits.spec.std)


def test_stored_images_are_indexed_like_tensors(folder):
    pixels = load_splits(config_of(folder)).train.pixels
    whole = pixels[:]
    assert isinstance(whole, torch.Tensor)
    assert pixels.shape == whole.shape
    chosen = torch.tensor([5, 0, 5])
    for index in (3, slice(2, 7), slice(None, None, 2), chosen):
        assert torch.equal(pixels[index], whole[index])
    assert torch.equal(pixels.at(chosen).at(slice(1, 3))[:], whole[[0, 5]])


@pytest.mark.parametrize(
    ("sides", "expected"), [([10, 20, 25], 32), ([47, 41, 90], 48), ([42, 42], 40), ([52, 54, 55], 56), ([500], 64)]
)
def test_the_image_size_is_the_median_of_the_shorter_sides_from_32_to_64(tmp_path, sides, expected):
    files = [PictureFile(picture(tmp_path / f"{i}.png", (side + 9 * i, side)), 0) for i, side in enumerate(sides)]
    assert chosen_size(files) == expected
    assert chosen_size(files, 16) % 16 == 0


def test_the_cache_is_used_again_unless_a_file_changes(folder, tmp_path, monkeypatch):
    read = []
    original = stored.read_picture
    monkeypatch.setattr(stored, "read_picture", lambda path, *rest: read.append(path) or original(path, *rest))
    how = Decoding(16, cache=tmp_path / "cache")
    before = imagefolder(folder, how)
    assert len(read) == 42
    again = imagefolder(folder, how)
    assert len(read) == 42
    assert torch.equal(before.train.pixels[:], again.train.pixels[:])
    assert again.checksum == before.checksum
    picture(folder / "b" / "00.png", shade=100)
    changed = imagefolder(folder, how)
    assert len(read) == 84
    assert changed.checksum != before.checksum
    imagefolder(folder, Decoding(16, "crop", tmp_path / "cache"))
    assert len(read) == 126


def test_a_damaged_or_unusable_cache_is_noticed(folder, tmp_path):
    how = Decoding(16, cache=tmp_path / "cache")
    pool = imagefolder(folder, how)
    expected = pool.train.pixels[:]
    pool.train.pixels.path.write_bytes(b"half")
    assert torch.equal(imagefolder(folder, how).train.pixels[:], expected)
    shutil.rmtree(tmp_path / "cache")
    with pytest.raises(BadInput, match="--resume decodes them again"):
        pool.train.pixels[:1]
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="choose another --cache-dir"):
        imagefolder(folder, Decoding(16, cache=tmp_path / "file"))


def test_the_number_of_workers_does_not_change_the_images(folder, tmp_path, monkeypatch):
    threads, original = set(), stored.read_picture

    def slowly(*args):  # so that one thread cannot take all pictures
        threads.add(threading.get_ident())
        time.sleep(0.02)
        return original(*args)

    monkeypatch.setattr(stored, "read_picture", slowly)
    one, four = (imagefolder(folder, Decoding(16, cache=tmp_path / str(n), workers=n)) for n in (1, 4))
    assert len(threads) > 2
    assert one.checksum == four.checksum
    assert torch.equal(one.train.pixels[:], four.train.pixels[:])
    assert torch.equal(one.train.labels, four.train.labels)


def test_the_memory_of_a_folder_does_not_grow_with_its_pictures(tmp_path):
    """300 pictures take 3.7 MB at 64 x 64; a chunk of 16 of them takes 0.2 MB, and so does a batch."""
    source = picture(tmp_path / "source.png", (70, 70))
    for k in range(300):
        target = tmp_path / "set" / "ab"[k % 2] / f"{k}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.hardlink_to(source)
    config = config_of(tmp_path / "set", image_size=64, cache_dir=str(tmp_path / "cache"), workers=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "_CHUNK", 16)
        load_splits(config_of(tmp_path / "set", image_size=8))  # imports
        tracemalloc.start()
        splits = load_splits(config)
        for first in range(0, 200, 8):
            splits.train.pixels[torch.arange(first, first + 8)]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 1.5e6


def test_what_is_not_a_picture_is_ignored_and_said(folder, capsys, tmp_path):
    (folder / ".ipynb_checkpoints").mkdir()
    picture(folder / ".ipynb_checkpoints" / "x.png")
    (folder / "b" / ".DS_Store").touch()
    (folder / "b" / "notes.txt").touch()
    (folder / "empty").mkdir()
    (folder / "b" / "broken\x1b[31m.png").write_text("not a picture")
    assert (
        train.main(["--dataset", "imagefolder", "--data-root", str(folder), *FLAGS, "--out", str(tmp_path / "r")]) == 0
    )
    out = capsys.readouterr().out
    assert "my pets $1: 31 training, 3 validation, 8 test images of 3 x 16 x 16\n" in out
    assert "pictures are resized to 16 x 16 (--image-size), padded to keep their aspect (--aspect)\n" in out
    assert "ignored, because they are not pictures in a class: 2 (b/notes.txt, empty/)\n" in out
    assert r"ignored, because they cannot be read: 1 (b/broken\x1b[31m.png)" in out
    assert "2 classes with 9 (b) to 22 (a $x$ ü) training images: 2.4 times as many; --balance" in out


def test_title_run_name_and_report_have_the_name_of_the_folder(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = fit(dataset="imagefolder", data_root=str(folder), progress="none", **QUICK)
    assert run.path.name == "my-pets-1-vertical-ode-first-seed0"
    page = run.report.read_text()
    assert "<title>my pets $1, cut vertical" in page
    assert "<h1>my pets $1, cut vertical" in page
    assert "a $x$ ü" in page
    assert "my pets $1" in repr(run)


def test_unusable_folders_are_explained(tmp_path, folder):
    def message(root, **options):
        with pytest.raises(BadInput) as error:
            load_splits(config_of(root, **options))
        return str(error.value)

    assert "expected --data-root to be a folder of pictures, got" in message(tmp_path / "nowhere")
    (tmp_path / "set").mkdir()
    assert "one folder per class, got no picture" in message(tmp_path / "set")
    picture(tmp_path / "set" / "a.png")
    assert "got 1 pictures that are in no such folder" in message(tmp_path / "set")
    picture(tmp_path / "set" / "cat" / "a.png")
    assert "expected at least two classes" in message(tmp_path / "set")
    assert "got only 'cat'" in message(tmp_path / "set")
    picture(tmp_path / "set" / "dog" / "a.png")
    assert "expected more pictures of 'cat'" in message(tmp_path / "set")
    for name in ("cat", "dog"):
        (tmp_path / "set" / name / "a.png").write_text("not a picture")
    assert "but none can be read" in message(tmp_path / "set")
    (folder / "test").mkdir()
    (folder / "a $x$ ü").rename(folder / "train")  # a class may be called train
    assert load_splits(config_of(folder)).spec.classes == ("b", "train")


def test_folders_for_training_and_testing_are_kept_apart(folder, tmp_path):
    root = tmp_path / "apart"
    shutil.copytree(folder, root / "train")
    picture(root / "test" / "b" / "0.png")
    picture(root / "val" / "b" / "0.png")
    splits = load_splits(config_of(root))
    assert [len(part) for part in splits[:3]] == [38, 4, 1]
    assert splits.test.labels.tolist() == [1]
    assert any("val/" in note for note in splits.notes)
    (root / "test" / "b" / "0.png").write_text("not a picture")
    with pytest.raises(BadInput, match="but none can be read"):
        load_splits(config_of(root))
    picture(root / "test" / "c" / "0.png")
    with pytest.raises(BadInput, match=r"only the training classes .* also got \['c'\]"):
        load_splits(config_of(root))


def test_a_small_folder_is_one_batch(tmp_path):
    for k in range(10):
        picture(tmp_path / "set" / "ab"[k % 2] / f"{k}.png", shade=100 * (k % 2))
    run = fit(config_of(tmp_path / "set", batch_size=64), out=str(tmp_path / "r"), progress="none")
    assert run.metrics["steps"] == 1


def test_an_interrupted_run_on_a_folder_resumes_to_the_same_bytes(folder, tmp_path):
    options = {
        "dataset": "imagefolder",
        "data_root": str(folder),
        "progress": "none",
        **QUICK,
        "image_size": None,
        "epochs": 2,
    }
    whole = fit(out=str(tmp_path / "whole"), **options)
    with pytest.raises(KeyError):
        fit(out=str(tmp_path / "cut"), callbacks=[StopAt(3)], **options)
    elsewhere = {"workers": 3, "cache_dir": str(tmp_path / "other")}
    resumed = fit(out=str(tmp_path / "cut"), resume=True, **options, **elsewhere)
    for name in ("model.safetensors", "predictions.npz", "validation.npz"):
        assert (whole.path / name).read_bytes() == (resumed.path / name).read_bytes(), name
    assert json.loads((whole.path / "config.json").read_text())["image_size"] == 32


def test_a_run_is_not_resumed_with_other_pictures(folder, tmp_path):
    with pytest.raises(KeyError):
        fit(config_of(folder, out=str(tmp_path / "r")), callbacks=[StopAt(1)], progress="none")
    picture(folder / "b" / "new.png")
    with pytest.raises(BadInput, match="they have changed"):
        fit(out=str(tmp_path / "r"), resume=True, progress="none")


def test_a_run_is_not_evaluated_on_pictures_that_have_changed(folder, tmp_path, capsys):
    run = fit(config_of(folder), out=str(tmp_path / "r"), progress="none")
    assert evaluate.main([str(run.path)]) == 0
    found = json.loads((run.path / "evaluation" / "metrics.json").read_text())["metrics"]
    assert found["nll"] == pytest.approx(run.metrics["nll"], rel=1e-12)
    picture(folder / "b" / "new.png")
    assert evaluate.main([str(run.path)]) == 2
    assert "its training images may be among the test images" in capsys.readouterr().err
    assert evaluate.main([str(run.path), "--data-root", str(folder)]) == 0


def test_flags_of_folders_are_refused_for_other_data_sets(capsys):
    for flags in (["--image-size", "32"], ["--aspect", "crop"], ["--workers", "2"], ["--cache-dir", "x"]):
        assert train.main(flags) == 2
        assert f"expected {flags[0]} with --dataset imagefolder, got --dataset digits" in capsys.readouterr().err


def test_balanced_classes_have_equal_shares_of_the_loss():
    """Worked out by hand: three images of class 0 and one of class 1, so the weights are 2/3 and 2."""
    assert class_weights([3, 1]).tolist() == pytest.approx([2 / 3, 2])
    nll = torch.tensor([[1.0, 2.0, 3.0, 10.0], [3.0, 4.0, 5.0, 20.0]])
    weights = class_weights([3, 1])[torch.tensor([0, 0, 0, 1])]
    # the mean over samples is 2, 3, 4, 15: (2/3 (2 + 3 + 4) + 2 * 15) / 4 = 9
    assert mean_nll(nll, "elbo", weights).item() == pytest.approx(9)
    mixed = [np.log(2) - np.log(np.exp(-a) + np.exp(-b)) for a, b in nll.t().tolist()]
    expected = (2 / 3 * sum(mixed[:3]) + 2 * mixed[3]) / 4
    assert mean_nll(nll, "mixture", weights).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("piece", [None, 2])
def test_a_balanced_step_weights_the_nll_and_nothing_else(piece):
    model = build(Config(preset="digits-strided", block="strided", stem="none", transition="space-to-depth", pool="none",
                         squeeze_input=1, augment_channels=4, blocks="1", width=4, drift="1-4-1", steps=3))  # fmt: skip
    g = torch.Generator().manual_seed(0)
    x, labels = torch.rand(6, 1, 8, 8, generator=g), torch.tensor([0, 0, 0, 0, 1, 2])
    weights = torch.linspace(0.5, 3, 10)
    step = TrainingStep(model, CATEGORICAL, 6, piece=piece, class_weights=weights)
    losses = step(x, labels, torch.Generator().manual_seed(1), 0.1)
    each = CATEGORICAL.nll(losses.logits, labels)[0]
    assert losses.nll.item() == pytest.approx((weights[labels] * each).mean().item(), rel=1e-5)
    assert losses.loss.item() == pytest.approx(losses.nll.item() + 2 * 0.1 * losses.kl.item() / 6, rel=1e-5)


def test_balance_changes_training_and_leaves_metrics_unweighted(folder, tmp_path, capsys):
    runs = [fit(config_of(folder, balance=b), out=str(tmp_path / str(b)), progress="lines") for b in (False, True)]
    assert "--balance gives all classes the same weight in the loss" in capsys.readouterr().out
    assert runs[0].metrics["nll"] != runs[1].metrics["nll"]
    with np.load(runs[1].path / "predictions.npz") as found:
        probs, labels = found["probs"].mean(0), found["labels"]
    assert runs[1].metrics["nll"] == pytest.approx(-np.log(probs[np.arange(len(labels)), labels]).mean())
    with pytest.raises(BadInput, match="--balance with classes"):
        fit(dataset="gap", balance=True, epochs=1, progress="none", out=str(tmp_path / "gap"))


def test_predict_reads_pictures_as_training_did(folder, tmp_path, capsys):
    run = fit(config_of(folder, aspect="crop"), out=str(tmp_path / "r"), progress="none")
    splits = load_splits(run.config)
    assert predict.main([str(run.path), "--json", str(folder)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 42
    everything = torch.cat([part.pixels[:] for part in splits[:3]]).float() / 255
    ours = Run.load(run.path).model.predict_proba(everything, 2, generator(0, "predict")).numpy()
    theirs = np.array([list(row["probabilities"].values()) for row in rows])
    np.testing.assert_allclose(np.sort(theirs[:, 0]), np.sort(ours[:, 0]), atol=1e-6)


@pytest.mark.deep
def test_the_example_with_pictures_of_mixed_sizes_reaches_90_percent(tmp_path):
    """About a minute of CPU time, with no options but the folder."""
    example = Path(__file__).parents[3] / "examples" / "own_pictures.py"
    subprocess.run([sys.executable, str(example), str(tmp_path)], check=True)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["accuracy"] >= 0.9
    assert metrics["epistemic_share"] > 0.01
