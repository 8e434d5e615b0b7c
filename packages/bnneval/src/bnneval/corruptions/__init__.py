"""The 19 corruptions of CIFAR-10-C at severities 1 to 5, for uint8 images."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bnneval import _check
from bnneval.corruptions import blur, colour, digital, noise, spatter, weather
from bnneval.corruptions.constants import BENCHMARK, CONSTANTS, CORRUPTIONS, SEVERITIES
from bnneval.corruptions.weather import Textures, textures

__all__ = ["BENCHMARK", "CONSTANTS", "CORRUPTIONS", "SEVERITIES", "Textures", "corrupt", "textures"]

_MODULES = (noise, blur, weather, colour, digital, spatter)
_FUNCTIONS: dict[str, Callable[..., NDArray[np.uint8]]] = {
    name: getattr(module, name) for name in CORRUPTIONS for module in _MODULES if hasattr(module, name)
}


def corrupt(
    images: ArrayLike,
    name: str,
    severity: int,
    seed: int = 0,
    *,
    start: int = 0,
    frost: str | Path | Textures | None = None,
) -> NDArray[np.uint8]:
    """Corrupt images: uint8 (N, H, W, 3), H and W from 16 to 60 -> the same shape and dtype.

    The name is one of CORRUPTIONS and the severity 1 to 5; the constants are meant for H = W = 32. The random numbers
    for image i depend only on seed, name, severity and start + i, so corrupting a data set as a whole or in batches
    gives the same bytes. `frost` is the folder of the frost photographs, or `textures(folder)`; without it, a
    procedural texture is used.

    >>> corrupt(np.full((1, 32, 32, 3), 100, np.uint8), "brightness", 5)[0, 0, 0]   # 100 / 255 + 0.3, truncated
    array([176, 176, 176], dtype=uint8)
    """
    x = _check.images(images)
    _check.choice(name, "name", CORRUPTIONS)
    _check.whole(severity, "severity", 1, 5)
    key = [_check.whole(seed, "seed", 0), CORRUPTIONS.index(name), severity]
    first = _check.whole(start, "start", 0)
    constants: tuple[object, ...] = CONSTANTS[name][severity - 1]
    if name == "frost":
        constants = (*constants, frost if isinstance(frost, Textures) else textures(frost))
    corrupted = np.empty_like(x)
    for i, image in enumerate(x):
        corrupted[i] = _FUNCTIONS[name](image, np.random.default_rng([*key, first + i]), *constants)
    return corrupted
