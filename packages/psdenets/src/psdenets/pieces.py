"""Gradients of a batch, piece by piece: given the weights, images are independent.

    d/dw mean NLL  =  sum over pieces of  d/dw (NLL of the piece / images of the batch)

Each piece goes forth and back before the next one starts, so memory is that of a piece. The weight path is sampled
once: pieces meet at a copy of it, whose gradient then goes on through the path.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from psdenets.heads import HeadWeights
from psdenets.models import Classifier, Weights
from psdenets.objective import mean_nll


class Pieces(NamedTuple):
    """What a batch has to say: its logits (S, N, C) without a graph, and a stand-in for its mean NLL.

    ``nll`` has the value of the mean NLL, and its backward pass carries the gradient that the pieces have gathered.
    """

    logits: Tensor
    nll: Tensor


def in_pieces(model: Classifier, x: Tensor, labels: Tensor, weights: Weights, size: int) -> Pieces:
    """Forward and backward passes of ``size`` images at a time, as far as the weights."""
    copies = _copies(weights)
    logits, nll = [], x.new_zeros((), dtype=torch.float64)
    for images, answers in zip(torch.split(x, size), torch.split(labels, size), strict=True):
        out = model.logits(images, copies)
        part = mean_nll(out, answers) * (len(images) / len(x))
        part.backward()  # type: ignore[no-untyped-call]
        logits.append(out.detach())
        nll += part.detach()
    pairs = [(a, b.grad) for a, b in zip(_tensors(weights), _tensors(copies), strict=True) if b.grad is not None]
    carried = sum(((a * grad).sum() for a, grad in pairs), x.new_zeros(()))
    return Pieces(torch.cat(logits, dim=1), nll.to(x.dtype) + (carried - carried.detach()))


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
