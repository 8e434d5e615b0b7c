"""Download the official files if `--download` is given; torchvision knows the URLs and verifies the checksums."""

from pathlib import Path
from urllib.error import URLError

import numpy as np

from psdenets.errors import BadInput

# The binary version, which contains no pickles. URL and MD5 checksum are from the data set's web page.
_CIFAR10 = ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530")
_IDX = {"mnist": "MNIST", "fashion-mnist": "FashionMNIST", "kmnist": "KMNIST"}


def download(name: str, root: Path) -> None:
    """Download the files of a data set to `root`, in the layout that our readers expect."""
    from psdenets.data.torchvision_import import import_torchvision

    datasets = import_torchvision().datasets
    root.mkdir(parents=True, exist_ok=True)
    try:
        if name in _IDX:
            getattr(datasets, _IDX[name])(str(root), download=True)
        elif name == "cifar10":
            url, md5 = _CIFAR10
            datasets.utils.download_and_extract_archive(url, str(root), md5=md5)
        elif name == "svhn":
            for split in ("train", "test"):
                datasets.SVHN(str(root), split=split, download=True)
        else:
            _omniglot(datasets.Omniglot(str(root), background=True, download=True), root / "omniglot.npz")
    except (URLError, OSError, RuntimeError) as error:
        raise BadInput(f"could not download {name} to {root}: {error}") from None


def _omniglot(drawings: object, path: Path) -> None:
    """Save drawings as 28 x 28 pixels, bright on dark, in the archive read by `sets.omniglot`."""
    from PIL import Image, ImageOps

    pairs = [(ImageOps.invert(picture.convert("L")), label) for picture, label in drawings]  # type: ignore[attr-defined]
    pixels = np.stack([np.asarray(p.resize((28, 28), Image.Resampling.BOX), np.uint8) for p, _ in pairs])
    np.savez_compressed(path, images=pixels, labels=np.array([label for _, label in pairs]))
