"""Images and their gradients channels last in memory, the layout in which convolutions on a CPU are fastest."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from psdenets.nn.fast.switch import enabled


def channels_last(h: Tensor) -> Tensor:
    """Images (N, C, H, W), channels last in memory on a CPU, unchanged on other devices."""
    return h.contiguous(memory_format=torch.channels_last) if enabled() and h.device.type == "cpu" else h


def gradient_channels_last(h: Tensor) -> Tensor:
    """A copy of (..., N, C, H, W) whose gradient arrives channels last on a CPU.

    A head flattens images channels first. Without this its gradient would keep that layout through a whole block and be
    converted at every step.
    """
    if not (enabled() and h.device.type == "cpu" and h.requires_grad):
        return h
    out: Tensor = _ChannelsLastGradient.apply(h)  # type: ignore[no-untyped-call]
    return out


@final
class _ChannelsLastGradient(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(h: Tensor) -> Tensor:
        return h.clone()  # autograd forbids in-place operations on a view that is made here

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Nothing to save."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # noqa: ARG004
        return g.movedim(-3, -1).contiguous().movedim(-1, -3)
