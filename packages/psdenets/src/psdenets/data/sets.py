"""The data sets of `psdenets.registries.DATASETS`, functions from the data root to a `Pool`, and their splits.

A custom data set, `--dataset mydata:load`, is also such a function. Instead of a `Pool` it may return
(pixels, labels, class names): uint8 pixels (N, H, W), (N, H, W, C) or (N, C, H, W), and integer labels (N,); or a
`psdenets.data.tables.Table`, made by `table_of`.
"""

import os
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from psdenets.config import Config
from psdenets.data.download import download
from psdenets.data.folder import decoding_of, imagefolder
from psdenets.data.images import Images, Pool, Splits, as_images
from psdenets.data.pictures import pictures_in, read_picture
from psdenets.data.readers import read_cifar, read_idx, read_npz
from psdenets.data.spec import SPECS, ImageSpec
from psdenets.data.stored import Progress, unseen
from psdenets.data.tables import Table
from psdenets.errors import BadInput
from psdenets.references import is_reference, made
from psdenets.registries import DATASETS
from psdenets.seeds import generator

VARIABLE = "PSDENETS_DATA"
_TEST_SHARE = 0.2  # fraction held out for testing if a data set has no test set
_FILES = {  # files created by --download
    "mnist": "MNIST/raw",
    "fashion-mnist": "FashionMNIST/raw",
    "kmnist": "KMNIST/raw",
    "cifar10": "cifar-10-batches-bin",
    "svhn": "train_32x32.mat",
    "omniglot": "omniglot.npz",
}


def root_of(data_root: str | None) -> Path:
    """The directory containing the data sets: --data-root, else $PSDENETS_DATA, else ./data."""
    return Path(data_root or os.environ.get(VARIABLE) or "data")


def load_splits(config: Config, progress: Progress = unseen) -> Splits:
    """Training, validation and test images of a run; the split depends only on --split-seed.

    Pictures of a folder that are not in the cache are decoded; then `progress` is called every two seconds.
    """
    root = root_of(config.data_root)
    if config.dataset == "imagefolder":
        return splits_of(imagefolder(root, decoding_of(config, root, progress)), config)
    return splits_of(pool_of(config.dataset, root, config.download), config)


def splits_of(pool: Pool, config: Config) -> Splits:
    """Split the images of a data set; a test set is split off if it has none."""
    order = torch.randperm(len(pool.train), generator=generator(config.split_seed, "split"))
    shuffled = pool.train.take(interleaved(order, pool.train.labels) if pool.balanced_split else order)
    test, rest = _split(shuffled, _TEST_SHARE) if pool.test is None else (pool.test, shuffled)
    val, train = _split(rest, config.val_share)
    train = train.first(config.limit_train)
    if pool.balanced_split:
        _require_every_class(train, pool.spec)
    elif config.system.training is not None and len(train) < config.system.training.batch_size:
        got = config.system.training.batch_size
        raise BadInput(f"expected --batch-size of at most the {len(train)} training images, got {got}")
    val, test = val.first(config.limit_train), test.first(config.limit_test)
    return Splits(train, val, test, pool.spec, pool.checksum, pool.notes)


def interleaved(order: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A shuffled order of images, rearranged so that every part of it has the same share of each class.

    Example: of four images of class 0 and two of class 1, every third one is of class 1.
        >>> labels = torch.tensor([0, 0, 0, 0, 1, 1])
        >>> labels[interleaved(torch.arange(6), labels)].tolist()
        [0, 1, 0, 0, 1, 0]
    """
    found, place = labels[order], torch.empty(len(order), dtype=torch.float64)
    for label in range(int(labels.max()) + 1):
        (mine,) = (found == label).nonzero(as_tuple=True)
        place[mine] = (torch.arange(len(mine), dtype=torch.float64) + 0.5) / len(mine)
    return order[torch.argsort(place, stable=True)]


def _require_every_class(train: Images, spec: ImageSpec) -> None:
    """Raise BadInput unless there are two training images, and one of every class."""
    counts = train.labels.bincount(minlength=len(spec.classes))
    missing = [name for name, count in zip(spec.classes, counts.tolist(), strict=True) if count == 0]
    if missing or len(train) < 2:
        what = f"of {missing[0]!r}" if missing else "of every class"
        raise BadInput(
            f"expected more pictures {what}: after the split into training, validation and test images, "
            f"{len(train)} are left for training{', none of this class' if missing else ''}"
        )


def _split(images: Images, share: float) -> tuple[Images, Images]:
    """The first images, at least one, and the rest."""
    size = max(1, round(share * len(images)))
    return images.first(size), images.take(torch.arange(size, len(images)))


def load_test_images(name: str, config: Config, spec: ImageSpec) -> Images:
    """Test images of a data set or folder in the format of `spec`, as an out-of-distribution set; labels are unused."""
    root = root_of(config.data_root)
    if Path(name).is_dir():
        files = pictures_in(Path(name))
        if not files:
            raise BadInput(f"expected pictures in {name}, got no picture")
        pixels = np.stack([read_picture(f, spec.channels, (spec.height, spec.width), config.aspect) for f in files])
        return as_images(pixels, np.zeros(len(pixels), np.int64), 1, name)
    if name == "noise":
        g = generator(config.split_seed, "noise images")
        shape = (2000, spec.channels, spec.height, spec.width)
        return Images(torch.randint(256, shape, generator=g, dtype=torch.uint8), torch.zeros(2000, dtype=torch.int64))
    if name not in DATASETS and not is_reference(name):
        raise BadInput(f"expected --ood to be noise, a folder or one of {', '.join(DATASETS)}, got {name!r}")
    unlabelled = {"svhn": root / "svhn-test-5000.npz", "kmnist": root / "kmnist-test.npz"}.get(name)
    if unlabelled is not None and unlabelled.is_file():
        pixels, _ = read_npz(unlabelled)
        images = as_images(pixels, np.zeros(len(pixels), np.int64), 1, unlabelled)
    else:
        pool = pool_of(name, root, config.download)
        images = pool.train if pool.test is None else pool.test
    return Images(alike(images.pixels[:], spec), images.labels)


def alike(pixels: torch.Tensor, spec: ImageSpec) -> torch.Tensor:
    """Convert images to the channels (grey or colour) and size of `spec`."""
    if pixels.shape[1] == 3 and spec.channels == 1:
        weights = torch.tensor([0.299, 0.587, 0.114])[:, None, None]  # ITU-R 601 luma, as in Pillow's mode L
        pixels = (pixels * weights).sum(1, keepdim=True).round().to(torch.uint8)
    pixels, size = pixels.expand(-1, spec.channels, -1, -1), (spec.height, spec.width)
    if pixels.shape[-2:] == size:
        return pixels
    resized = F.interpolate(pixels.float(), size, mode="bilinear", antialias=True, align_corners=False)
    return resized.round().clamp(0, 255).to(torch.uint8)


def pool_of(name: str, root: Path, fetch: bool = False) -> Pool:
    """Load all images of a data set: a name in `DATASETS`, or a custom `module:attribute`."""
    if fetch and name in _FILES and not (root / _FILES[name]).exists():
        download(name, root)
    try:
        loaded = made(DATASETS, name, root)
    except FileNotFoundError as error:
        missing = Path(str(error.filename))
        missing = missing.relative_to(root) if missing.is_relative_to(root) else missing
        raise BadInput(
            f"no {name} under {root}: looked for {missing}; put the files there or "
            f"point --data-root (or ${VARIABLE}) at them, or download them with --download"
        ) from None
    if isinstance(loaded, Table):
        return Pool(loaded.rows, None, loaded.spec)
    return loaded if isinstance(loaded, Pool) else _pool_from_arrays(name, loaded)


def _pool_from_arrays(name: str, loaded: object) -> Pool:
    """A pool from what a custom function returned; images are not normalised, and a test set is split off."""
    if not (isinstance(loaded, tuple) and len(loaded) == 3):
        raise BadInput(
            f"expected {name} to return a Pool or (pixels, labels, class names), got {type(loaded).__name__}"
        )
    pixels, labels, classes = loaded
    images = as_images(np.asarray(pixels), np.asarray(labels), len(classes), name)
    channels, height, width = images.pixels.shape[1:]
    spec = ImageSpec(channels, height, width, tuple(map(str, classes)), (0.0,) * channels, (1.0,) * channels)
    return Pool(images, None, spec)


def arrays(root: Path) -> Pool:  # noqa: ARG001 - they are not on disk
    """Images or rows given from Python, which only `psdenets.fit(data=...)` has."""
    raise BadInput("expected data from Python with --dataset arrays, table or numbers: psdenets.fit(..., data=(x, y))")


def digits(root: Path) -> Pool:  # noqa: ARG001 - scikit-learn includes them
    """The 1,797 digits included in scikit-learn; their grey levels range from 0 to 16."""
    from sklearn.datasets import load_digits

    found = load_digits()
    pixels = np.round(found.images * (255 / 16)).astype(np.uint8)
    return Pool(as_images(pixels, found.target, 10, "scikit-learn's digits"), None, SPECS["digits"])


def _idx_set(name: str, root: Path) -> Pool:
    raw = root / _FILES[name]
    arrays = []
    for file in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        plain, gzipped = raw / f"{file}-ubyte", raw / f"{file}-ubyte.gz"
        arrays.append(read_idx(gzipped if gzipped.is_file() and not plain.is_file() else plain))
    train, test = as_images(arrays[0], arrays[1], 10, raw), as_images(arrays[2], arrays[3], 10, raw)
    return Pool(train, test, SPECS[name])


mnist, fashion_mnist, kmnist = (partial(_idx_set, name) for name in ("mnist", "fashion-mnist", "kmnist"))


def cifar10(root: Path) -> Pool:
    """The binary version in cifar-10-batches-bin."""
    folder = root / "cifar-10-batches-bin"
    train = as_images(*read_cifar([folder / f"data_batch_{k}.bin" for k in range(1, 6)]), 10, folder)
    return Pool(train, as_images(*read_cifar([folder / "test_batch.bin"]), 10, folder), SPECS["cifar10"])


def svhn(root: Path) -> Pool:
    """train_32x32.mat and test_32x32.mat."""
    from scipy.io import loadmat

    parts = []
    for split in ("train", "test"):
        path = root / f"{split}_32x32.mat"
        if not path.is_file():
            raise FileNotFoundError(2, "missing", str(path))
        arrays = loadmat(path)
        labels = arrays["y"].reshape(-1) % 10  # the digit 0 is stored as 10
        parts.append(as_images(arrays["X"].transpose(3, 0, 1, 2), labels, 10, path))
    return Pool(parts[0], parts[1], SPECS["svhn"])


def omniglot(root: Path) -> Pool:
    """omniglot.npz with images and labels; a test set is split off."""
    path = root / "omniglot.npz"
    pixels, labels = read_npz(path)
    if labels is None:
        raise BadInput(f"expected labels in {path}, got only images")
    classes = int(labels.max()) + 1
    images = as_images(pixels, labels, classes, path)
    height, width = images.pixels.shape[-2:]
    spec = ImageSpec(1, height, width, tuple(f"character {k}" for k in range(classes)), (0.0,), (1.0,))
    return Pool(images, None, spec)
