from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from psdenets import BadInput, Config
from psdenets.data import load_splits, load_test_images
from psdenets.data.augment import augmented, jittered, shifted
from psdenets.data.images import as_images, to_unit
from psdenets.data.readers import read_cifar, read_idx, read_npz
from psdenets.data.spec import SPECS


def idx_bytes(array):
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def fake_mnist(root, folder="MNIST", n=40, classes=10):
    raw = root / folder / "raw"
    raw.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for prefix, size in (("train", n), ("t10k", 12)):
        (raw / f"{prefix}-images-idx3-ubyte").write_bytes(idx_bytes(rng.integers(0, 256, (size, 28, 28), np.uint8)))
        (raw / f"{prefix}-labels-idx1-ubyte").write_bytes(idx_bytes(np.arange(size, dtype=np.uint8) % classes))
    return raw


def test_an_idx_file_written_by_hand_is_read_with_and_without_compression(tmp_path):
    path = tmp_path / "v"
    path.write_bytes(bytes.fromhex("00000801000000020507"))
    assert read_idx(path).tolist() == [5, 7]
    zipped = tmp_path / "v.gz"
    zipped.write_bytes(gzip.compress(path.read_bytes()))
    assert read_idx(zipped).tolist() == [5, 7]


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\x08\x01\0\0\0\x03\x05", b"PK\x03\x04 something", b"\0\0\x0d\x01\0\0\0\x01\x05"]
)
def test_a_file_that_is_not_idx_is_rejected(tmp_path, data):
    path = tmp_path / "v"
    path.write_bytes(data)
    with pytest.raises(BadInput):
        read_idx(path)


def test_a_cifar_record_written_by_hand_is_read(tmp_path):
    record = np.zeros(3073, np.uint8)
    record[0], record[1], record[1 + 1024 + 33] = 7, 11, 22  # label, red of pixel (0, 0), green of pixel (1, 1)
    path = tmp_path / "b.bin"
    path.write_bytes(record.tobytes() * 2)
    pixels, labels = read_cifar([path])
    assert labels.tolist() == [7, 7]
    assert pixels[0, 0, 0, 0] == 11
    assert pixels[0, 1, 1, 1] == 22
    assert pixels.sum() == 2 * 33
    path.write_bytes(record.tobytes()[:-1])
    with pytest.raises(BadInput, match="truncated"):
        read_cifar([path])


def test_pickled_archives_and_other_invalid_archives_are_rejected(tmp_path):
    """Loading a pickle can execute arbitrary code."""
    path = tmp_path / "a.npz"
    np.savez(path, images=np.array([{"code": 1}], dtype=object))
    with pytest.raises(BadInput, match="never loaded"):
        read_npz(path)
    path.write_bytes(b"not a zip file")
    with pytest.raises(BadInput):
        read_npz(path)
    np.savez(path, pictures=np.zeros(3))
    with pytest.raises(BadInput, match="called images"):
        read_npz(path)


def test_labels_beyond_the_number_of_classes_are_rejected():
    """The published code silently trains ten logits on 964 classes."""
    with pytest.raises(BadInput, match="expected labels from 0 to 9 in there, got 0 to 10"):
        as_images(np.zeros((2, 4, 4), np.uint8), np.array([0, 10]), 10, "there")


def test_labels_out_of_range_in_a_file_are_rejected(tmp_path):
    fake_mnist(tmp_path, classes=11)
    with pytest.raises(BadInput, match="expected labels from 0 to 9"):
        load_splits(Config(dataset="mnist", data_root=str(tmp_path), batch_size=4))


def test_the_number_of_omniglot_classes_is_that_of_its_labels(tmp_path):
    np.savez(tmp_path / "omniglot.npz", images=np.zeros((60, 28, 28), np.uint8), labels=np.arange(60) % 15)
    splits = load_splits(Config(dataset="omniglot", data_root=str(tmp_path), batch_size=4))
    assert len(splits.spec.classes) == 15


def test_all_digits_are_split_without_overlap():
    splits = load_splits(Config())
    assert [len(part) for part in splits[:3]] == [1294, 144, 359]
    everything = torch.cat([part.pixels for part in splits[:3]])
    assert everything.max() == 255
    found = load_digits()
    ours = sorted(map(tuple, everything.flatten(1).tolist()))
    assert ours == sorted(map(tuple, np.round(found.images * (255 / 16)).astype(int).reshape(-1, 64).tolist()))
    labels = torch.cat([part.labels for part in splits[:3]])
    assert labels.bincount().tolist() == np.bincount(found.target).tolist()


def test_the_split_depends_only_on_its_own_seed():
    same = [load_splits(Config(seed=s)).test.pixels for s in (0, 1)]
    other = load_splits(Config(split_seed=1)).test.pixels
    assert torch.equal(same[0], same[1])
    assert not torch.equal(same[0], other)


def test_mnist_files_are_read_and_limited(tmp_path):
    fake_mnist(tmp_path)
    splits = load_splits(Config(dataset="mnist", data_root=str(tmp_path), batch_size=4, limit_train=20, limit_test=5))
    assert [len(part) for part in splits[:3]] == [20, 4, 5]
    assert splits.test.labels.tolist() == [0, 1, 2, 3, 4]  # the official test set keeps its order


def test_label_10_of_svhn_becomes_0(tmp_path):
    from scipy.io import savemat

    for split in ("train", "test"):
        savemat(tmp_path / f"{split}_32x32.mat", {"X": np.zeros((32, 32, 3, 20), np.uint8), "y": np.full((20, 1), 10)})
    splits = load_splits(Config(dataset="svhn", data_root=str(tmp_path), batch_size=4))
    assert splits.train.labels.unique().tolist() == [0]
    assert splits.train.pixels.shape[1:] == (3, 32, 32)


def test_out_of_distribution_images_are_converted_to_the_models_shape(tmp_path):
    fake_mnist(tmp_path)
    foreign = load_test_images("mnist", Config(data_root=str(tmp_path)), SPECS["cifar10"])
    assert foreign.pixels.shape == (12, 3, 32, 32)
    np.savez(tmp_path / "svhn-test-5000.npz", images=np.full((5, 32, 32, 3), 100, np.uint8))
    foreign = load_test_images("svhn", Config(data_root=str(tmp_path)), SPECS["digits"])
    assert foreign.pixels.shape == (5, 1, 8, 8)
    assert foreign.pixels.unique().tolist() == [100]
    with pytest.raises(BadInput, match="expected --ood to be"):
        load_test_images("mars", Config(), SPECS["digits"])


def test_shifts_move_whole_images():
    g = torch.Generator().manual_seed(0)
    pixels = torch.zeros(200, 1, 8, 8, dtype=torch.uint8)
    pixels[:, 0, 4, 4] = 200
    moved = shifted(pixels, 1, g)
    assert moved.flatten(1).sum(1).unique().tolist() == [200]
    places = {tuple(place) for place in (moved[:, 0] == 200).nonzero()[:, 1:].tolist()}
    assert places == {(i, j) for i in (3, 4, 5) for j in (3, 4, 5)}


def test_jitter_changes_images_only_slightly():
    pixels = torch.zeros(50, 1, 28, 28, dtype=torch.uint8)
    pixels[:, :, 10:18, 10:18] = 255
    changed = to_unit(jittered(pixels, torch.Generator().manual_seed(0)))
    mass = changed.flatten(1).sum(1)
    assert mass.min() > 64 * 0.92**2 * 0.9  # scaled by at most 8 % per side
    assert mass.max() < 64 / 0.92**2 * 1.1
    assert not torch.equal(changed[0], changed[1])


@pytest.mark.parametrize("kind", ["none", "jitter", "crop-flip", "shift-flip"])
def test_augmentation_depends_only_on_its_generator_and_turns(kind):
    pixels = torch.randint(256, (4, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    turns = torch.tensor([True, False, True, False])
    first, again = (augmented(pixels, kind, torch.Generator().manual_seed(1), turns) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(first, pixels) == (kind == "none")


def test_shift_flip_mirrors_the_other_half_in_the_next_epoch():
    column = torch.arange(8, dtype=torch.uint8).expand(6, 1, 8, 8)  # rises to the right, unless mirrored
    turns = torch.tensor([True, False, False, True, True, False])
    for which in (turns, ~turns):
        out = augmented(column, "shift-flip", torch.Generator().manual_seed(0), which)
        rises = out[:, 0, 0, 6] > out[:, 0, 0, 1]
        assert torch.equal(rises, ~which)
