"""Scales of a network: what comes before the first block, and the paper's space-to-depth between scales.

Space-to-depth maps (N, C, 2H, 2W) to (N, 4C, H, W): every 2 x 2 square of pixels becomes four channels. Channel
4c + 2i + j of the result is channel c at rows i, i + 2, ... and columns j, j + 2, ... A plain reshape to the same shape
would mix rows that are not adjacent.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from torch import Tensor, nn
from torch.nn import functional as F

from psdenets.errors import BadInput
from psdenets.nn.activations import ACTIVATIONS
from psdenets.nn.features import Enter, InTurn, Leave, LinearStem, Whitening
from psdenets.seeds import generator

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.data.spec import ImageSpec


def space_to_depth(h: Tensor) -> Tensor:
    """Halve height and width, and multiply the channels by four."""
    if h.shape[-2] % 2 or h.shape[-1] % 2:
        raise ValueError(f"expected even height and width for space-to-depth, got {h.shape[-2]} x {h.shape[-1]}")
    return F.pixel_unshuffle(h, 2)


def depth_to_space(h: Tensor) -> Tensor:
    """The inverse of `space_to_depth`."""
    if h.shape[-3] % 4:
        raise ValueError(f"expected a multiple of 4 channels for depth-to-space, got {h.shape[-3]}")
    return F.pixel_shuffle(h, 2)


@final
class SpaceToDepth(nn.Module):
    """`space_to_depth` as a layer."""

    def forward(self, h: Tensor) -> Tensor:
        """Halve height and width, and multiply the channels by four."""
        return space_to_depth(h)


def lifted(h: Tensor, config: Config) -> Tensor:
    """h after `squeeze_input` space-to-depth steps, padded with `augment_channels` zero channels."""
    for _ in range(config.system.flow.squeeze_input):
        h = space_to_depth(h)
    return F.pad(h, (0, 0, 0, 0, 0, config.system.flow.augment_channels))


def first_of_scales(config: Config) -> frozenset[int]:
    """Indices of the blocks that begin with space-to-depth: the first block of every scale except the first scale."""
    scales = config.system.net.scales
    return frozenset(sum(scales[:k]) for k in range(1, len(scales)))


def block_shapes(config: Config, spec: ImageSpec) -> list[tuple[int, int, int]]:
    """(channels, height, width) of h in every block; raises `BadInput` if a side cannot be halved often enough."""
    net, flow = config.system.net, config.system.flow
    if config.system.features.learned:
        return _learned_shapes(config, spec)
    halvings = flow.squeeze_input + len(net.scales) - 1
    if spec.height % 2**halvings or spec.width % 2**halvings:
        raise BadInput(
            f"expected height and width to be multiples of {2**halvings} for {halvings} halvings "
            f"(--squeeze-input {flow.squeeze_input}, --blocks {net.blocks}), got images of {spec.size}"
        )
    shapes = []
    channels = spec.channels * 4**flow.squeeze_input + flow.augment_channels
    channels = net.width if config.system.features.stem == "linear" else channels
    height, width = spec.height >> flow.squeeze_input, spec.width >> flow.squeeze_input
    for blocks in net.scales:
        shapes += [(channels, height, width)] * blocks
        channels, height, width = channels * 4, height // 2, width // 2
    return shapes


def _learned_shapes(config: Config, spec: ImageSpec) -> list[tuple[int, int, int]]:
    """Shapes if every scale begins with a learned transition, which halves the sides and rounds down."""
    net, features = config.system.net, config.system.features
    sides = [
        (side >> config.system.flow.squeeze_input) - (features.stem == "whiten") for side in (spec.height, spec.width)
    ]
    shapes = []
    for blocks, channels in zip(net.scales, features.widths(len(net.scales)), strict=True):
        sides = [side // 2 for side in sides]
        shapes += [(channels, sides[0], sides[1])] * blocks
    if min(sides) < 1:
        raise BadInput(
            f"expected images that can be halved {len(net.scales)} times (--blocks {net.blocks}, --transition "
            f"learned), got {spec.size}"
        )
    return shapes


def around(
    config: Config, spec: ImageSpec, shapes: Sequence[tuple[int, int, int]]
) -> tuple[nn.Module, nn.ModuleList, InTurn]:
    """What comes before the first block, before each block, and after the last."""
    features, firsts = config.system.features, first_of_scales(config)
    activation = ACTIVATIONS[config.system.flow.activation]
    channels = spec.channels * 4**config.system.flow.squeeze_input + config.system.flow.augment_channels
    stem: nn.Module = nn.Identity()
    if features.stem == "whiten":
        stem, channels = Whitening(channels, activation), 8 * channels
    elif features.stem == "linear":
        width = config.system.net.width
        stem, channels = LinearStem(channels, width, generator(config.seed, "stem")), width
    if not features.learned:
        return stem, nn.ModuleList(InTurn(*[SpaceToDepth()] * (b in firsts)) for b in range(len(shapes))), InTurn()
    layers, before = itertools.count(), []
    for b, shape in enumerate(shapes):
        leave = [Leave(shapes[b - 1][0], next(layers), activation)] if b in firsts else []
        c_in = channels if b == 0 else shapes[b - 1][0]
        enter = [Enter(c_in, shape[0], next(layers), generator(config.seed, "enter", b))] if b in {0, *firsts} else []
        before.append(InTurn(*leave, *enter))
    return stem, nn.ModuleList(before), InTurn(Leave(shapes[-1][0], next(layers), activation))
