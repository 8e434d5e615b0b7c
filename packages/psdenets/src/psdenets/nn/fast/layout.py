"""Convert images and their gradients to channels last, the fastest memory layout for convolutions on a CPU."""

from typing import Any, final

import torch
from torch import Tensor

from psdenets.nn.fast.switch import enabled


def channels_last(h: Tensor) -> Tensor:
    """Convert images (N, C, H, W) to channels last on a CPU; unchanged on other devices."""
    return h.contiguous(memory_format=torch.channels_last) if enabled() and h.device.type == "cpu" else h


def gradient_channels_last(h: Tensor) -> Tensor:
    """Copy (..., N, C, H, W); on a CPU its gradient is converted to channels last.

    The head flattens images channels first. Without this conversion its gradient would keep that layout through a whole
    block, and would be converted at every step.
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
        return h.clone()  # autograd forbids in-place operations on a view created here

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        """Nothing to save."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # noqa: ARG004
        return g.movedim(-3, -1).contiguous().movedim(-1, -3)
