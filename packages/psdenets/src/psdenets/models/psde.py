"""Image classifiers of infinite depth:  x -> normalise, squeeze, pad -> blocks  dh = f_h(t, h; w_t) dt -> W h + b.

``draw`` samples the weight paths of all blocks, ``logits`` carries images along them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from psdenets.errors import BadInput
from psdenets.models.base import ImageClassifier
from psdenets.models.likelihoods import outputs_of
from psdenets.models.priors import prior_of
from psdenets.models.windows import cuts_of, grid_of
from psdenets.nn.fast.layout import channels_last, gradient_channels_last
from psdenets.nn.heads import HeadWeights, head_of
from psdenets.nn.hidden_drifts import hidden_drift
from psdenets.nn.scales import block_shapes, first_of_scales, lifted
from psdenets.nn.space_to_depth import space_to_depth
from psdenets.seeds import generator as generator_at
from sdeweights import (
    PriorPlus,
    WeightPath,
    WeightProcess,
    agreeing,
    bottleneck,
    flatten,
    flow,
    sample_together,
)
from sdeweights.solvers import ode_solver, sde_solver

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.data.spec import ImageSpec
    from sdeweights import Cut


_GROUP_NUMBERS = 2**27  # half a gigabyte of weight paths


class Weights(NamedTuple):
    """The weights of S samples: a path for each block, and the head's."""

    paths: tuple[WeightPath, ...]
    head: HeadWeights

    @property
    def kl(self) -> Tensor:
        """1/2 int |u|^2 of each sample, summed over blocks, (S,)."""
        return torch.stack([path.kl for path in self.paths]).sum(0)


class Hidden(NamedTuple):
    """A hidden state (N, ...), how many steps of its block it has behind it, and which block that is.

    Where a block is the first of its scale, h is squeezed already.
    """

    h: Tensor
    steps: int
    block: int


@final
class DeepBlock(nn.Module):
    """One interval of depth: hidden drift f_h, and the process its weights follow."""

    def __init__(self, config: Config, channels: int, cut: Cut, generator: torch.Generator) -> None:
        super().__init__()
        flow, width = config.system.flow, config.system.net.width
        net = hidden_drift(flow.block, channels, width, flow.activation, generator, fuse=flow.compile)
        w0, self.f_h = flatten(net)
        self.process = _process(config, flow.gain * w0, cut, generator)
        self.grid = grid_of(config, cut)
        self.method, self.gradient = flow.hidden_method, config.system.process.gradient
        self.solver = sde_solver(config.system.process.solver)
        self.ode_solver = ode_solver(config.system.process.ode_solver)

    @property
    def noisy(self) -> bool:
        """Whether samples differ in this block."""
        return not self.process.cut.deterministic

    def draw(self, samples: int, generator: torch.Generator | None) -> WeightPath:
        """Weight paths of so many samples; without noise they are one, seen many times."""
        return draw_together([self], samples, [generator])[0]

    def forward(self, h: Tensor, path: WeightPath, first: int = 0) -> Tensor:
        """h at the end of the block: (N, ...) while all samples agree, (S, N, ...) once they do not.

        Samples that agree are carried once; where h differs but the weights do not, all go as one batch.

        Args:
            h: (N, ...) or (S, N, ...), at the grid point ``first``.
            path: weights of S samples.
            first: number of steps that h has behind it.
        """
        if first == path.steps:
            return h
        together = h.ndim == 4
        if path.shared == path.steps:
            batch = h if together else h.flatten(0, 1)
            return self._flow(batch, path[:1], first)[0].reshape(h.shape)
        if together:
            return self._flow(h, path, first)
        return torch.cat([self._flow(h[i], path[i], first) for i in range(path.samples)])

    def together(self, h: Tensor, path: WeightPath) -> tuple[Tensor, int]:
        """h after the steps that all samples take together, and how many these are."""
        steps = 0 if self.method == "reversible_heun" else agreeing(path, self.method)
        return (self._flow(h, path[:1], 0, steps)[0] if steps else h), steps

    def _flow(self, h: Tensor, path: WeightPath, first: int, last: int | None = None) -> Tensor:
        last = path.steps if last is None else last
        between = None if (first, last) == (0, path.steps) else (first, last)
        start = channels_last(h)
        end = flow(self.f_h, start, path, self.method, self.gradient, per_sample=False, between=between)
        return gradient_channels_last(end)


def draw_together(
    blocks: Sequence[DeepBlock], samples: int, generators: Sequence[torch.Generator | None]
) -> list[WeightPath]:
    """Weight paths of all blocks, those of one shape in one computation; see `DeepBlock.draw`."""
    paths: dict[int, WeightPath] = {}
    for noisy, count in ((True, samples), (False, 1)):
        which = [b for b, block in enumerate(blocks) if block.noisy is noisy]
        drawn = sample_together(
            [blocks[b].process for b in which],
            [blocks[b].grid for b in which],
            count,
            generators=[generators[b] for b in which],
            solver=blocks[0].solver,
            ode_solver=blocks[0].ode_solver,
        )
        paths |= zip(which, drawn, strict=True)
    return [_repeated(paths[b], samples) for b in range(len(blocks))]


def _repeated(path: WeightPath, samples: int) -> WeightPath:
    """One sample seen many times; a path of as many as it is."""
    if path.samples == samples:
        return path
    return replace(path, w=path.w.expand(samples, -1, -1), kl=path.kl.expand(samples))


def _process(config: Config, w0: Tensor, cut: Cut, generator: torch.Generator) -> WeightProcess:
    """f_q = f_p + net with the net's last layer zero."""
    prior = prior_of(config.system.process)
    drift, deterministic = config.system.process.drift, config.system.cut.drift_deterministic
    net = bottleneck(len(w0), cut, drift, deterministic, generator=generator)
    return WeightProcess(w0, PriorPlus(prior, net), prior, cut)


@final
class Classifier(ImageClassifier):
    """A multi-scale classifier: scales of blocks with space-to-depth between them, and a linear head.

    ``forward`` gives kl = sum over blocks of 1/2 int |u|^2, plus the head's KL.
    """

    def __init__(self, config: Config, spec: ImageSpec) -> None:
        super().__init__(config, spec)
        shapes = block_shapes(config, spec)
        cuts = cuts_of(config)
        try:
            self.blocks = nn.ModuleList(
                DeepBlock(config, shape[0], cut, generator_at(config.seed, "block", b))
                for b, (shape, cut) in enumerate(zip(shapes, cuts, strict=True))
            )
        except ValueError as error:  # a share of less than one weight, say
            raise BadInput(str(error)) from None
        self.squeezed_before = first_of_scales(config)
        channels, height, width = shapes[-1]
        features = channels * height * width
        self.head = head_of(config.system.head, features, outputs_of(config, spec), generator_at(config.seed, "head"))

    @property
    def deep_blocks(self) -> list[DeepBlock]:
        """The blocks, from the input to the output."""
        return [cast("DeepBlock", block) for block in self.blocks]

    def draw(self, samples: int = 1, generator: torch.Generator | None = None) -> Weights:
        """Weights of so many samples. Sample i depends on the generator's state and on i alone."""
        return self._drawn(samples, self._streams(generator))

    def draw_in_groups(self, samples: int, generator: torch.Generator | None = None) -> Iterator[Weights]:
        """The weights that ``draw`` gives, in groups whose paths take half a gigabyte or are one sample."""
        streams = self._streams(generator)
        numbers = sum((block.grid.steps + 1) * block.process.d for block in self.deep_blocks if block.noisy)
        size = max(1, min(samples, _GROUP_NUMBERS // max(1, numbers)))
        for first in range(0, samples, size):
            yield self._drawn(min(size, samples - first), streams)

    def _streams(self, generator: torch.Generator | None) -> list[torch.Generator]:
        """A generator for each block and for the head.

        With a single one the second block's noise would depend on how many samples the first had drawn.
        """
        at = "cpu" if generator is None else generator.device
        seeds = torch.randint(2**62, (len(self.blocks) + 1,), generator=generator, device=at).tolist()
        return [torch.Generator(self.mean.device).manual_seed(seed) for seed in seeds]

    def _drawn(self, samples: int, streams: list[torch.Generator]) -> Weights:
        paths = tuple(draw_together(self.deep_blocks, samples, streams[:-1]))
        return Weights(paths, self.head.draw(samples, streams[-1]))

    def logits(self, x: Tensor, weights: Weights) -> Tensor:
        """Images (N, C, H, W) in [0, 1] -> logits (S, N, classes)."""
        return self.rest(Hidden(self.prepare(x), 0, 0), weights)

    def prepare(self, x: Tensor) -> Tensor:
        """h_0 = a(x): normalised, squeezed, padded with zero channels."""
        return lifted(self.normalised(x), self.config)

    def shared(self, x: Tensor, weights: Weights) -> Hidden:
        """The hidden state where samples part: after the blocks without noise, and the first steps of the next."""
        h = self.prepare(x)
        for b, (block, path) in enumerate(zip(self.deep_blocks, weights.paths, strict=True)):
            if b in self.squeezed_before:
                h = space_to_depth(h)
            if block.noisy:
                return Hidden(*block.together(h, path), b)
            h = block(h, path)
        return Hidden(h, 0, len(self.blocks))

    def rest(self, state: Hidden, weights: Weights) -> Tensor:
        """From any place in depth to logits (S, N, classes)."""
        h, first, begun = state
        for b in range(begun, len(self.blocks)):
            if b != begun and b in self.squeezed_before:
                h = space_to_depth(h)
            h = self.deep_blocks[b](h, weights.paths[b], first if b == begun else 0)
        out = weights.head.logits(h.flatten(-3))
        return out.expand(len(weights.kl), -1, -1)

    def head_kl(self) -> Tensor:
        """KL of the last layer."""
        return self.head.kl()

    def parameter_counts(self) -> dict[str, int]:
        """How many numbers are trained: w0 and theta (and w_t2), and those outside the weight process."""
        blocks = [block.process for block in self.deep_blocks]
        return {
            "w0": sum(p.w0.numel() for p in blocks),
            "w_t2": sum(p.w_t2.numel() for p in blocks if isinstance(p.w_t2, nn.Parameter)),
            "theta": sum(q.numel() for p in blocks if isinstance(p.drift, nn.Module) for q in p.drift.parameters()),
            "head": sum(q.numel() for q in self.head.parameters()),
        }
