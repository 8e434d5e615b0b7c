"""A hidden drift is a function of (t, h, w) alone: it draws no random numbers and changes no buffers.

An integration evaluates f_h once per step or more often, for one sample or for all samples at once. Dropout would draw
a new mask at every evaluation, noise that the KL does not count, and running statistics would average over depth and
samples.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.dropout import _DropoutNd


def require_pure(module: nn.Module) -> None:
    """Raise ValueError if a module contains dropout, or a layer that updates running statistics."""
    for path, part in module.named_modules():
        name = f"{type(part).__name__}{f' at {path!r}' if path else ''}"
        if isinstance(part, _NormBase) and part.track_running_stats:
            raise ValueError(
                f"expected f_h without running statistics, got {name}: they would average over depth and weight "
                f"samples; use GroupNorm, LayerNorm or track_running_stats=False"
            )
        p = _dropout(part)
        if p > 0:
            raise ValueError(
                f"expected f_h without dropout, got p={p:g} in {name}: it would draw a new mask in every step; "
                f"pass p=0 (dropout=0.0), the weights are already random"
            )


def _dropout(part: nn.Module) -> float:
    if isinstance(part, _DropoutNd):
        return float(part.p)
    return float(part.dropout) if isinstance(part, nn.MultiheadAttention | nn.RNNBase) else 0.0


@contextmanager
def unchanged(module: nn.Module, like: Tensor) -> Iterator[None]:
    """Raise ValueError if a buffer of the module changes, or the global generator for the device of `like` is used."""
    buffers, random = _versions(module), random_state(like)
    yield
    changed = [name for name, version in _versions(module).items() if buffers.get(name) != version]
    if changed:
        raise ValueError(f"expected f_h to keep its buffers, got a new value of {changed[0]!r}")
    if not torch.equal(random_state(like), random):
        raise ValueError("expected f_h without random numbers, got one that draws them, such as functional dropout")


def _versions(module: nn.Module) -> dict[str, tuple[int, int]]:
    """Identity and version of every buffer; a tensor made in inference mode has no version."""
    return {name: (id(b), 0 if b.is_inference() else b._version) for name, b in module.named_buffers()}


def random_state(like: Tensor) -> Tensor:
    """State of torch's global generator for the device of `like`."""
    return torch.cuda.get_rng_state(like.device) if like.is_cuda else torch.get_rng_state()
