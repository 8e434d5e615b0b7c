"""Specification of what a network is given: size, channels, classes or target, normalisation."""

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, Self

from psdenets.errors import BadInput


@dataclass(frozen=True)
class ImageSpec:
    """Images of `channels` x `height` x `width` in [0, 1], and the names of their classes.

    `mean` and `std`, one number per channel, are applied inside the model, so every prediction is normalised.

    A row of a table is an image of one pixel: its channels are the `columns`, and its values are any finite numbers. If
    a number is to be predicted instead of a class, there are no classes, and `target` is its mean and std.
    """

    channels: int
    height: int
    width: int
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    columns: tuple[str, ...] = ()
    target: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        self._check_types()
        if min(self.channels, self.height, self.width) < 1:
            raise BadInput(f"expected images of at least one pixel, got {self.size}")
        if self.target is None and len(self.classes) < 2:
            raise BadInput(f"expected at least two classes, got {len(self.classes)}")
        if self.target is not None and (self.classes or len(self.target) != 2 or not self.target[1] > 0):
            raise BadInput(f"expected a target with a std > 0 and no classes, got {self.target} and {self.classes}")
        if self.columns and (len(self.columns), self.height, self.width) != (self.channels, 1, 1):
            raise BadInput(f"expected a name for every column and rows of one pixel, got {self.columns} of {self.size}")
        if not len(self.mean) == len(self.std) == self.channels or min(self.std) <= 0:
            raise BadInput(f"expected mean and std > 0 for {self.channels} channels, got {self.mean} and {self.std}")

    def _check_types(self) -> None:
        """Raise `BadInput` for values of other types, NaN, infinities and repeated names; lists become tuples."""
        for name in ("channels", "height", "width"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, Integral):
                raise BadInput(f"expected {name} to be a whole number, got {value!r}")
            object.__setattr__(self, name, int(value))
        for name in ("classes", "columns"):
            names = _tuple(self, name)
            if not all(isinstance(each, str) for each in names) or len(set(names)) < len(names):
                raise BadInput(f"expected {name} with different names, got {names}")
        for name in ("mean", "std", *(("target",) if self.target is not None else ())):
            numbers = _tuple(self, name)
            if not all(isinstance(x, Real) and not isinstance(x, bool) and math.isfinite(x) for x in numbers):
                raise BadInput(f"expected {name} to be finite numbers, got {numbers}")

    @property
    def size(self) -> str:
        """Channels x height x width as text, e.g. "1 x 28 x 28", or the number of columns of a table."""
        if self.columns:
            return f"{self.channels} column{'s' * (self.channels > 1)}"
        return f"{self.channels} x {self.height} x {self.width}"

    @property
    def things(self) -> str:
        """What is predicted from: "images" or "rows"."""
        return "rows" if self.columns else "images"

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The inverse of `dataclasses.asdict`; accepts lists in place of tuples, as read from JSON."""
        known = {item.name for item in fields(cls)}
        if not isinstance(values, dict) or not values.keys() <= known:
            raise BadInput(f"expected some of {', '.join(sorted(known))}, got {values}")
        return cls(**values)


def _tuple(spec: ImageSpec, name: str) -> tuple[Any, ...]:
    """A field as a tuple, which is stored; raises `BadInput` if it is no list or tuple."""
    value = getattr(spec, name)
    if not isinstance(value, list | tuple):
        raise BadInput(f"expected {name} to be a tuple, got {value!r}")
    object.__setattr__(spec, name, tuple(value))
    return tuple(value)


_DIGITS = tuple("0123456789")
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
FASHION_CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
KMNIST_CLASSES = ("o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo")

# The paper normalises CIFAR-10 but not MNIST. Mean and std of CIFAR-10 are the commonly used values.
SPECS = {
    "digits": ImageSpec(1, 8, 8, _DIGITS, (0.0,), (1.0,)),
    "mnist": ImageSpec(1, 28, 28, _DIGITS, (0.0,), (1.0,)),
    "fashion-mnist": ImageSpec(1, 28, 28, FASHION_CLASSES, (0.0,), (1.0,)),
    "kmnist": ImageSpec(1, 28, 28, KMNIST_CLASSES, (0.0,), (1.0,)),
    "cifar10": ImageSpec(3, 32, 32, CIFAR10_CLASSES, (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "svhn": ImageSpec(3, 32, 32, _DIGITS, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)),
}
