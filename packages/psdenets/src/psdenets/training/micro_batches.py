"""Compute the gradient of a batch in micro-batches ("pieces"), since images are independent given the weights.

    d/dw mean NLL  =  sum over pieces of  d/dw (NLL of the piece / images of the batch)

Each piece completes its forward and backward pass before the next one starts, so memory is bounded by one piece. The
weight path is sampled once; the pieces accumulate their gradients in a copy of it, and then backpropagate them into the
path once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from psdenets.models.psde import Classifier, Weights
from psdenets.nn.heads import HeadWeights

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.data.spec import ImageSpec

_STATES = 2 * 10**9  # bytes kept for the backward pass; 2 GB should fit on any machine used for training


class Pieces(NamedTuple):
    """Outputs (S, N, K) of a batch without their graph, and its mean NLL.

    The backward pass of `nll` propagates the gradient that the pieces have accumulated.
    """

    logits: Tensor
    nll: Tensor


def in_pieces(
    model: Classifier,
    mean_nll: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    labels: Tensor,
    weights: Weights,
    size: int,
) -> Pieces:
    """Run the forward and backward passes of `size` images at a time, back to the weights.

    Args:
        model: the network.
        mean_nll: (outputs, labels) -> mean NLL over images, a scalar.
        x: images (N, C, H, W).
        labels: (N,).
        weights: weight samples.
        size: images per piece.
    """
    copies = _copies(weights)
    logits, nll = [], x.new_zeros(())
    for images, answers in zip(torch.split(x, size), torch.split(labels, size), strict=True):
        out = model.logits(images, copies)
        part = mean_nll(out, answers) * (len(images) / len(x))
        part.backward()  # type: ignore[no-untyped-call]
        logits.append(out.detach())
        nll += part.detach()
    pairs = [(a, b.grad) for a, b in zip(_tensors(weights), _tensors(copies), strict=True) if b.grad is not None]
    carried = sum(((a * grad).sum() for a, grad in pairs), x.new_zeros(()))
    return Pieces(torch.cat(logits, dim=1), nll + (carried - carried.detach()))


def size_for(batch: int, kept: int) -> int:
    """Images per piece if each image keeps `kept` bytes: as few pieces as memory allows, all equal except the last.

    Example: 128 images of 27 MB are split into two pieces.
        >>> size_for(128, 27 * 10**6), size_for(32, 27 * 10**6), size_for(128, 10**10)
        (64, 32, 1)
    """
    pieces = math.ceil(batch / max(1, _STATES // max(1, kept)))
    return math.ceil(batch / pieces)


def kept_by_an_image(config: Config, spec: ImageSpec) -> int:
    """Peak number of bytes stored per image for the backward pass on the last, finest grid, not counting the weights.

    Measured for backpropagation; the other modes store only some of the states, see `sdeweights.gradients`.
    """
    method = config.system.flow.method(config.system.process.gradient)
    model = Classifier(config.replace(gradient="backprop", hidden_method=method, compile=False), spec)
    weights = _copies(model.draw(config.training.samples, torch.Generator().manual_seed(0)))
    one, two = (_kept(model, torch.zeros(n, spec.channels, spec.height, spec.width), weights) for n in (1, 2))
    steps: int = config.system.flow.finest
    root = max(1, math.isqrt(steps))
    kept = {"backprop": steps, "checkpoint": root + math.ceil(steps / root), "adjoint": 2}
    return math.ceil((two - one) * min(1.0, kept[config.system.process.gradient] / steps))


def _kept(model: Classifier, images: Tensor, weights: Weights) -> int:
    """Bytes stored in the graph of the logits, counting each block of memory once."""
    sizes: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        logits = model.logits(images, weights)
    return sum(sizes.values()) if logits.requires_grad else 0


def _copies(weights: Weights) -> Weights:
    """Copies of the weights that are leaves of the autograd graph."""
    paths = tuple(
        replace(path, w=_leaf(path.w), after_reset=None if path.after_reset is None else _leaf(path.after_reset))
        for path in weights.paths
    )
    return Weights(paths, HeadWeights(_leaf(weights.head.weight), _leaf(weights.head.bias)))


def _leaf(x: Tensor) -> Tensor:
    return x.detach().requires_grad_(x.requires_grad)


def _tensors(weights: Weights) -> list[Tensor]:
    found = [path.w for path in weights.paths]
    found += [path.after_reset for path in weights.paths if path.after_reset is not None]
    return [*found, *weights.head]
