"""Images, or the rows of a table, given from Python: arrays, tensors or a `torch.utils.data.Dataset`."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from psdenets.data.images import Images, Pool, as_images
from psdenets.data.sets import alike
from psdenets.data.spec import ImageSpec
from psdenets.data.tables import raise_unless_one_each, rows_of, table_of, targets_of
from psdenets.errors import BadInput

_WANTED = "(x, y), (x, y, x_test, y_test), a Dataset of (image, label), or a pair of Datasets"


def pool_from(data: Any) -> Pool:
    """All images or rows of `data`, see `psdenets.fit`; raises BadInput if they cannot be used."""
    parts = _pairs(data)
    if _array(parts[0][0]).ndim == 2:
        return _table(parts)
    classes = np.unique(_labels(parts[0][1], "y"))
    if len(classes) < 2:
        raise BadInput(f"expected labels of at least two classes, got {len(classes)}")
    train = _images(*parts[0], classes, "x")
    spec = _spec(train, classes)
    pool = Pool(train, None, spec)
    if len(parts) == 2:
        test = _images(*parts[1], classes, "x_test")
        pool = pool._replace(test=Images(alike(test.pixels[:], spec), test.labels))
    return pool._replace(checksum=checksum(pool))


def _pairs(data: Any) -> list[tuple[Any, Any]]:
    """Images and labels of the training set and, if there is one, of the test set."""
    given = (data,) if isinstance(data, Dataset) else data
    if isinstance(given, tuple | list) and given and all(isinstance(part, Dataset) for part in given):
        parts = [_stacked(part) for part in given]
    elif isinstance(given, tuple | list) and len(given) in (2, 4):
        parts = [(given[i], given[i + 1]) for i in range(0, len(given), 2)]
    else:
        parts = []
    if len(parts) not in (1, 2):
        found = f"{len(given)} parts" if isinstance(given, tuple | list) else type(data).__name__
        raise BadInput(f"expected data to be {_WANTED}, got {found}")
    return parts


def _table(parts: list[tuple[Any, Any]]) -> Pool:
    """Rows of numbers (N, columns). Floating-point targets are numbers to predict; others are classes."""
    x, y = (_array(part) for part in parts[0])
    if y.dtype.kind == "f":
        targets_of(y, len(x), "y")  # names y in its errors
        made = table_of(x, y, "x")
        pool = Pool(made.rows, None, made.spec)
        tests = [(rows_of(_array(x), "x_test", made.spec.channels), _array(y)) for x, y in parts[1:]]
        found = [Images(rows, targets_of(y, len(rows), "y_test")) for rows, y in tests]
    else:
        classes = np.unique(_labels(y, "y"))
        raise_unless_one_each(len(x), y, "y")
        made = table_of(x, np.searchsorted(classes, y), "x", regress=False)
        pool = Pool(made.rows, None, replace(made.spec, classes=_names(classes)))
        found = [_classified(*part, classes, made.spec) for part in parts[1:]]
    pool = pool._replace(test=found[0] if found else None)
    return pool._replace(checksum=checksum(pool))


def _classified(x: Any, y: Any, classes: np.ndarray, spec: ImageSpec) -> Images:
    """Rows of a test set whose labels are numbered in the order of `classes`."""
    rows, labels = rows_of(_array(x), "x_test", spec.channels), _labels(y, "y_test")
    raise_unless_one_each(len(rows), labels, "y_test")
    _require_known(labels, classes, "x_test")
    return Images(rows, torch.from_numpy(np.searchsorted(classes, labels)))


def _array(values: Any) -> np.ndarray:
    """An array; bfloat16, which numpy lacks, becomes float32, and objects that are all text become text."""
    if isinstance(values, torch.Tensor):
        tensor: torch.Tensor = values.detach().cpu()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    found = np.asarray(values)
    return found.astype(str) if found.dtype == object and all(isinstance(v, str) for v in found.flat) else found


def _require_known(labels: np.ndarray, classes: np.ndarray, name: str) -> None:
    unknown = np.setdiff1d(labels, classes)
    if len(unknown):
        raise BadInput(f"expected the labels of {name} among those of x, got {unknown[0]}")


def _images(x: Any, y: Any, classes: np.ndarray, name: str) -> Images:
    """Images whose labels are numbered in the order of `classes`."""
    labels, pixels = _labels(y, name.replace("x", "y")), _pixels(x, name)
    if pixels.ndim and len(labels) != len(pixels):
        raise BadInput(f"expected {len(pixels)} labels in {name.replace('x', 'y')}, got {len(labels)}")
    _require_known(labels, classes, name)
    return as_images(pixels, np.searchsorted(classes, labels), len(classes), name)


def checksum(pool: Pool) -> str:
    """SHA-256 of all images and labels."""
    found = hashlib.sha256()
    for images in filter(None, (pool.train, pool.test)):
        for tensor in (images.pixels[:], images.labels):
            found.update(str(tuple(tensor.shape)).encode())
            found.update(tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


def _stacked(dataset: Any) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a Dataset, in its order."""
    try:
        pairs = [dataset[i] for i in range(len(dataset))]
        images, labels = zip(*((np.asarray(image), np.asarray(label)) for image, label in pairs), strict=True)
    except (TypeError, ValueError) as error:
        raise BadInput(f"expected a Dataset with a length, of (image, label) pairs, got {error}") from None
    if len({image.shape for image in images}) > 1:
        raise BadInput(f"expected images of equal size, got {images[0].shape} and others")
    return np.stack(images), np.stack(labels)


def _labels(y: Any, name: str) -> np.ndarray:
    labels = _array(y)
    if labels.ndim != 1 or labels.dtype.kind not in "iubUS":
        raise BadInput(f"expected {name} to be one whole number or text per image, got {labels.dtype} {labels.shape}")
    return labels


def _pixels(x: Any, name: str) -> np.ndarray:
    """8-bit images; floating-point ones are rounded."""
    pixels = _array(x)
    if pixels.dtype.kind != "f":
        return pixels
    if not (np.isfinite(pixels).all() and pixels.min(initial=0) >= 0 and pixels.max(initial=0) <= 1):
        raise BadInput(f"expected floating-point images in [0, 1] in {name}, got other values or NaN")
    return np.round(255 * pixels).astype(np.uint8)


def _spec(images: Images, classes: np.ndarray) -> ImageSpec:
    pixels = images.pixels[:].double() / 255
    mean, std = pixels.mean((0, 2, 3)), pixels.std((0, 2, 3)).clamp(min=1e-3)
    channels, height, width = images.pixels.shape[1:]
    return ImageSpec(channels, height, width, _names(classes), tuple(mean.tolist()), tuple(std.tolist()))


def _names(classes: np.ndarray) -> tuple[str, ...]:
    return tuple(c.decode() if isinstance(c, bytes) else str(c) for c in classes.tolist())
