"""Read the idx format of MNIST: two zero bytes, a type byte, the number of axes, their lengths, the data."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np

from psdenets.errors import BadInput

_UNSIGNED_BYTE = 0x08


def read_idx(path: Path) -> np.ndarray:
    """Read the array in an idx file of unsigned bytes, plain or gzipped.

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
