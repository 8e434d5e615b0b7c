"""predictions.npz: probs (S, N, C) and labels (N,), in the format that `python -m bnneval` reads."""

import io
import math
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from psdenets.runs.checksums import Folder
from psdenets.runs.digests import Damaged
from psdenets.runs.predictions import Predictions

Array = NDArray[np.float64]
_SUMS = 1e-3  # tolerance of the sum of probabilities; a custom likelihood may round


class Stored(NamedTuple):
    """Predictions as they are stored."""

    probs: Array
    labels: NDArray[Any]


def save_predictions(folder: Folder, name: str, predictions: Predictions) -> None:
    """Write probs (S, N, C) and labels (N,)."""

    def write(path: Path) -> None:
        with path.open("wb") as file:  # given a path, numpy would append .npz to it
            np.savez_compressed(file, probs=predictions.probs, labels=predictions.labels)

    folder.write(name, write)


def read_predictions(folder: Folder, name: str, outputs: int | None = None) -> Stored:
    """Predictions of classes, or of numbers with `outputs` 2; raises `Damaged` if the arrays cannot be such ones.

    Shapes are compared with each other and with the size of the file before arrays are allocated.
    """
    path, content = folder.path / name, folder.content(name)
    try:
        shapes = _shapes(content)
        _check_shapes(shapes, outputs)
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            found = Stored(archive["probs"], archive["labels"])
        _check_values(found, outputs)
    except Exception as error:  # zipfile, zlib and numpy raise a dozen kinds for files that are not what they seem
        raise Damaged(f"expected predictions in {path}, got something else: {error}") from None
    return found


def _shapes(content: bytes) -> dict[str, tuple[int, ...]]:
    """Shapes of the arrays in a npz file; raises ValueError if one would not fill its entry exactly."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for item in archive.infolist():
            with archive.open(item) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
                if dtype.hasobject or file.tell() + math.prod(shape) * dtype.itemsize != item.file_size:
                    raise ValueError(f"{item.filename} does not hold an array of {shape}")
            found[item.filename.removesuffix(".npy")] = tuple(shape)
    return found


def _check_shapes(shapes: dict[str, tuple[int, ...]], outputs: int | None) -> None:
    if sorted(shapes) != ["labels", "probs"]:
        raise ValueError(f"arrays {', '.join(sorted(shapes))} instead of probs and labels")
    probs, labels = shapes["probs"], shapes["labels"]
    if len(probs) != 3 or len(labels) != 1 or probs[1] != labels[0] or outputs not in (None, probs[2]):
        raise ValueError(f"probs of shape {probs} and labels of shape {labels}")


def _check_values(found: Stored, outputs: int | None) -> None:
    probs, labels = found
    if probs.dtype != np.float64 or not np.isfinite(probs).all() or not np.isfinite(labels).all():
        raise ValueError("numbers that are not finite or not float64")
    if labels.dtype.kind not in "iu":
        return
    if labels.min(initial=0) < 0 or (outputs is not None and labels.max(initial=0) >= outputs):
        raise ValueError(f"labels from {labels.min()} to {labels.max()}")
    if probs.min(initial=0) < 0 or np.abs(probs.sum(-1) - 1).max(initial=0) > _SUMS:
        raise ValueError("probabilities that do not add to 1")
