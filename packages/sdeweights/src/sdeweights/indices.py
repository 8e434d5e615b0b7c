"""Choose the stochastic coordinates S of a horizontal cut by parameter name, by magnitude or at random.

Each function returns sorted indices into the flat weight vector, to be passed to `Cut.horizontal` or `Cut.both`.
"""

from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn


def by_name(module: nn.Module, *patterns: str) -> tuple[int, ...]:
    """Coordinates of the parameters whose names match a pattern, e.g. `by_name(net, "0.*", "2.bias")`.

    Names and order are those of `module.named_parameters()`, which is also the order of `flatten(module)`.
    """
    names = [name for name, _ in module.named_parameters()]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"expected a parameter matching {pattern!r}, got only {', '.join(names)}")
    chosen: list[int] = []
    start = 0
    for name, parameter in module.named_parameters():
        if any(fnmatchcase(name, pattern) for pattern in patterns):
            chosen.extend(range(start, start + parameter.numel()))
        start += parameter.numel()
    return tuple(chosen)


def by_magnitude(w0: Tensor, share: float) -> tuple[int, ...]:
    """The `round(share * d)` coordinates with the largest |w0|; ties go to the smallest index."""
    order = torch.argsort(w0.detach().abs(), descending=True, stable=True)
    return tuple(sorted(order[: _size(len(w0), share)].tolist()))


def at_random(d: int, share: float, generator: torch.Generator) -> tuple[int, ...]:
    """`round(share * d)` coordinates drawn without replacement."""
    order = torch.randperm(d, generator=generator, device=generator.device)
    return tuple(sorted(order[: _size(d, share)].tolist()))


def _size(d: int, share: float) -> int:
    if not 0 <= share <= 1:
        raise ValueError(f"expected a share in [0, 1], got {share}")
    return round(share * d)
