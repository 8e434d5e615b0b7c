"""Read CIFAR-10's binary version: each record is a label byte and 3,072 pixel bytes (red, green, blue planes)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from psdenets.errors import BadInput

_RECORD = 1 + 3 * 32 * 32


def read_cifar(paths: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Pixels (N, 3, 32, 32) and labels (N,) of the files, in order."""
    parts = []
    for path in paths:
        data = np.fromfile(path, np.uint8)
        if data.size == 0 or data.size % _RECORD:
            raise BadInput(f"expected records of {_RECORD} bytes in {path}, got {data.size} bytes: is it truncated?")
        parts.append(data.reshape(-1, _RECORD))
    records = np.concatenate(parts)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
