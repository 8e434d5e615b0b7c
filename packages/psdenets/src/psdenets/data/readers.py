"""Read the file formats of data sets: MNIST's idx, CIFAR-10's binary version, NumPy archives. Nothing is unpickled."""

import gzip
import struct
import zipfile
from pathlib import Path

import numpy as np

from psdenets.errors import BadInput

_UNSIGNED_BYTE = 0x08
_RECORD = 1 + 3 * 32 * 32  # CIFAR-10: a label byte and 3,072 pixel bytes (red, green, blue planes)


def read_idx(path: Path) -> np.ndarray:
    """Read the array in an idx file of unsigned bytes, plain or gzipped.

    The format is two zero bytes, a type byte, the number of axes, their lengths, the data.
    Example: the bytes 00 00 08 01 00 00 00 02 05 07 are the vector (5, 7).
    """
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != _UNSIGNED_BYTE or len(data) < 4 + 4 * data[3]:
        raise BadInput(f"expected an idx file of unsigned bytes in {path}, got something else")
    axes = data[3]
    shape = struct.unpack(f">{axes}I", data[4 : 4 + 4 * axes])
    body = np.frombuffer(data, np.uint8, offset=4 + 4 * axes)
    if body.size != int(np.prod(shape)):
        raise BadInput(f"expected {shape} = {int(np.prod(shape))} bytes in {path}, got {body.size}: is it truncated?")
    return body.reshape(shape)


def read_cifar(paths: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N, 3, 32, 32) and labels (N,) of the files of CIFAR-10's binary version, in order."""
    parts = []
    for path in paths:
        data = np.fromfile(path, np.uint8)
        if data.size == 0 or data.size % _RECORD:
            raise BadInput(f"expected records of {_RECORD} bytes in {path}, got {data.size} bytes: is it truncated?")
        parts.append(data.reshape(-1, _RECORD))
    records = np.concatenate(parts)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def read_npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Read `images` (uint8) and `labels` from a NumPy archive; labels are None if it does not contain them."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if "images" not in archive:
                raise BadInput(f"expected an array called images in {path}, got {', '.join(archive) or 'nothing'}")
            return archive["images"], archive.get("labels")
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise BadInput(f"expected a NumPy archive in {path}, got something else ({error})") from None
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"expected plain arrays in {path}, got pickled objects, which are never loaded") from None
