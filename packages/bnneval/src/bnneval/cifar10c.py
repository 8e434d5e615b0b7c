"""Read the official CIFAR-10-C files: one NAME.npy per corruption with all five severities, and labels.npy.

An official file has 50,000 images (150 MB). Files are memory-mapped, so only the images of a batch are read.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bnneval import _check
from bnneval.corruptions import CORRUPTIONS, SEVERITIES


@dataclass(frozen=True)
class Cifar10C:
    """The corrupted test set in `folder`; the images of severity s are the s-th fifth of each file.

    >>> Cifar10C("CIFAR-10-C").images("fog", 5)[:100]   # doctest: +SKIP
    """

    folder: str | Path

    def __post_init__(self) -> None:
        if not (Path(self.folder) / "labels.npy").is_file():
            raise ValueError(f"expected the CIFAR-10-C files in {self.folder}, got a folder with no labels.npy")

    @property
    def corruptions(self) -> tuple[str, ...]:
        """Names of the corruptions whose file exists, in the benchmark's order."""
        return tuple(name for name in CORRUPTIONS if (Path(self.folder) / f"{name}.npy").is_file())

    def images(self, name: str, severity: int) -> NDArray[np.uint8]:
        """(N, 32, 32, 3) bytes of one corruption and severity, memory-mapped read-only."""
        _check.choice(name, "name", self.corruptions)
        _check.whole(severity, "severity", 1, 5)
        file = self._load(f"{name}.npy")
        if file.dtype != np.uint8 or file.shape[1:] != (32, 32, 3) or len(file) % len(SEVERITIES):
            raise ValueError(f"expected uint8 (5 N, 32, 32, 3) in {name}.npy, got {file.dtype} {file.shape}")
        n = len(file) // len(SEVERITIES)
        if n != len(self.labels()):
            raise ValueError(f"expected {len(self.labels())} images per severity in {name}.npy, one per label, got {n}")
        return file[(severity - 1) * n : severity * n]

    def labels(self) -> NDArray[np.int64]:
        """(N,) labels; labels.npy repeats them for each severity."""
        stored = self._load("labels.npy")
        if stored.dtype.kind not in "iu" or stored.ndim != 1 or len(stored) % len(SEVERITIES):
            raise ValueError(f"expected 5 N integers in labels.npy, got {stored.dtype} {stored.shape}")
        rows = stored.reshape(len(SEVERITIES), -1)
        if (rows != rows[0]).any():
            raise ValueError("expected the same labels for all five severities in labels.npy, got different ones")
        once: NDArray[np.int64] = rows[0].astype(np.int64)
        return once

    def _load(self, name: str) -> NDArray[np.uint8]:
        try:
            loaded: NDArray[np.uint8] = np.load(Path(self.folder) / name, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError, EOFError) as error:
            raise ValueError(f"expected a .npy array in {name}, got: {str(error).splitlines()[0]}") from None
        return loaded
