"""Gradients of a batch, piece by piece: given the weights, images are independent.

    d/dw mean NLL  =  sum over pieces of  d/dw (NLL of the piece / images of the batch)

Each piece goes forth and back before the next one starts, so memory is that of a piece. The weight path is sampled
once: pieces meet at a copy of it, whose gradient then goes on through the path.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from psdenets.models.psde import Classifier, Weights
from psdenets.nn.heads import HeadWeights
from psdenets.training.objective import mean_nll

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.data.spec import ImageSpec

_STATES = 2 * 10**9  # bytes kept for the backward pass; two gigabytes leave room on any machine that trains


class Pieces(NamedTuple):
    """What a batch has to say: its logits (S, N, C) without a graph, and a stand-in for its mean NLL.

    ``nll`` has the value of the mean NLL, and its backward pass carries the gradient that the pieces have gathered.
    """

    logits: Tensor
    nll: Tensor


def in_pieces(model: Classifier, x: Tensor, labels: Tensor, weights: Weights, size: int) -> Pieces:
    """Forward and backward passes of ``size`` images at a time, as far as the weights."""
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
    """Images of a piece, when each image keeps so many bytes: as few pieces as fit, of equal size but for the last.

    Example: 128 images of 27 MB are two pieces.
        >>> size_for(128, 27 * 10**6), size_for(32, 27 * 10**6), size_for(128, 10**10)
        (64, 32, 1)
    """
    pieces = math.ceil(batch / max(1, _STATES // max(1, kept)))
    return math.ceil(batch / pieces)


def kept_by_an_image(config: Config, spec: ImageSpec) -> int:
    """Bytes that the backward pass of one image keeps at its peak, those of the weights aside.

    Counted for backpropagation; the other modes keep that of some steps, see `sdeweights.gradients`.
    """
    model = Classifier(config.replace(gradient="backprop", compile=False), spec)
    weights = _copies(model.draw(config.samples, torch.Generator().manual_seed(0)))
    one, two = (_kept(model, torch.zeros(n, spec.channels, spec.height, spec.width), weights) for n in (1, 2))
    root = max(1, math.isqrt(config.steps))
    steps = {"backprop": config.steps, "checkpoint": root + math.ceil(config.steps / root), "adjoint": 2}
    return math.ceil((two - one) * min(1.0, steps[config.gradient] / config.steps))


def _kept(model: Classifier, images: Tensor, weights: Weights) -> int:
    """Bytes that the graph of the logits holds, each block of memory once."""
    sizes: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        sizes[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        logits = model.logits(images, weights)
    return sum(sizes.values()) if logits.requires_grad else 0


def _copies(weights: Weights) -> Weights:
    """The same numbers as leaves of the graph."""
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
