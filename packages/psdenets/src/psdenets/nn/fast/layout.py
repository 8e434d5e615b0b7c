"""Images with their channels last in memory, where convolutions on a CPU are fastest: forth, and back as gradients."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor


def channels_last(h: Tensor) -> Tensor:
    """Images (N, C, H, W) laid out channels last on a CPU, as they are elsewhere."""
    return h.contiguous(memory_format=torch.channels_last) if h.device.type == "cpu" else h


def gradient_channels_last(h: Tensor) -> Tensor:
    """A copy of (..., N, C, H, W); its gradient is laid out channels last on a CPU.

    A head flattens images channels first. Its gradient would go through a block that way, step by step, and be laid
    out anew at each.
    """
    if h.device.type != "cpu" or not h.requires_grad:
        return h
    out: Tensor = _Back.apply(h)  # type: ignore[no-untyped-call]
    return out


@final
class _Back(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(h: Tensor) -> Tensor:
        return h.clone()  # a view that is made here could not be written into

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # noqa: ARG004
        last = g.movedim(-3, -1).contiguous()
        return last.movedim(-1, -3)
