"""Image classifiers of infinite depth:  x -> normalise, lift, stem -> blocks  dh = f_h(t, h; w_t) dt -> W h + b.

`draw` samples the weight paths of all blocks, and `logits` applies them to images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast, final

import torch
from torch import Tensor, nn

from psdenets.data.images import to_unit
from psdenets.errors import BadInput
from psdenets.models.base import ImageClassifier
from psdenets.models.priors import prior_of
from psdenets.models.windows import cuts_of, grid_of
from psdenets.nn.fast.layout import channels_last, gradient_channels_last
from psdenets.nn.features import Norms, Statistics, Whitening, pooled
from psdenets.nn.heads import HeadWeights, head_of
from psdenets.nn.hidden_drifts import hidden_drift
from psdenets.nn.scales import around, block_shapes, lifted
from psdenets.options.process import ProcessOptions
from psdenets.registries import PRIORS
from psdenets.seeds import generator as generator_at
from sdeweights import (
    NonFiniteState,
    Prefix,
    Prior,
    PriorPlus,
    WeightPath,
    WeightProcess,
    bottleneck,
    flatten,
    flow,
    path_action,
    shared_prefix,
)

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.data.spec import ImageSpec
    from sdeweights import Cut


_GROUP_NUMBERS = 2**27  # half a gigabyte of weight paths in float32
_REFERENCE = 1000  # images; a thousand measure statistics with half the error of a batch of 250


class Weights(NamedTuple):
    """The weights of S samples: a path for each block, and the weights of the head."""

    paths: tuple[WeightPath, ...]
    head: HeadWeights
    norms: Norms = Norms()  # in prediction, the statistics of each sample in the layers that normalise

    def sample(self, i: int) -> Weights:
        """Sample i alone."""
        return Weights(tuple(path[i] for path in self.paths), self.head.sample(i), self.norms.sample(i))

    @property
    def kl(self) -> Tensor:
        """1/2 int |u|^2 of each sample, summed over blocks, (S,)."""
        return torch.stack([path.kl for path in self.paths]).sum(0)


class Shared(NamedTuple):
    """The part of the forward pass that all weight samples share: the blocks before `block`, and a prefix of `block`.

    If all blocks are deterministic, `block` is their number and `prefix` holds the last hidden state.
    """

    prefix: Prefix
    block: int


@final
class DeepBlock(nn.Module):
    """One interval of depth: a hidden drift f_h and the process of its weights."""

    def __init__(self, config: Config, channels: int, cut: Cut, generator: torch.Generator) -> None:
        super().__init__()
        flow, width = config.system.flow, config.system.net.width
        net = hidden_drift(flow.block, channels, width, flow.activation, generator, fuse=flow.compile)
        w0, self.f_h = flatten(net)
        self._prior = partial(prior_of, config.system.process, net, cut)
        _require_stable(config, cut)
        self.process = _process(config, flow.gain * w0, self._prior(), cut, generator)
        self.config, self.channels, self.grid = config, channels, grid_of(config, cut)
        self.gradient = config.system.process.gradient
        self.method = flow.method(self.gradient)
        self.solvers = {name: getattr(config.system.process, name) for name in ("solver", "ode_solver")}
        self.quiet = False

    def extra_repr(self) -> str:
        """Channels of h, and the steps and scheme that integrate it."""
        return f"channels={self.channels}, steps={self.grid.steps}, hidden_method={self.method}"

    def set_steps(self, steps: int) -> None:
        """Integrate in this many steps from now on; weights are continuous in depth, so they do not change."""
        self.grid = grid_of(self.config, self.process.cut, steps)

    def set_quiet(self, quiet: bool) -> None:
        """Switch the noise off, so that weights follow their mean path, or on again."""
        self.quiet = quiet

    def set_sigma(self, factor: float) -> None:
        """Multiply the sigma of the options by a factor, in the prior and so in the posterior."""
        self.process.prior = cast("PriorPlus", self.process.drift).prior = self._prior(factor).to(self.process.w0)

    @property
    def noisy(self) -> bool:
        """Whether samples differ in this block."""
        return not (self.quiet or self.process.cut.deterministic)

    @property
    def sees_noise(self) -> bool:
        """Whether h depends on the noise; not if euler ends, or w is reset, at the end of the only noisy step."""
        phase, resets = self.grid.sde, self.process.cut.resets
        if phase is None or self.method != "euler" or phase.steps > 1:
            return phase is not None
        return phase.last < self.grid.steps and not resets

    def draw(self, samples: int, generator: torch.Generator | None) -> WeightPath:
        """Sample weight paths; without noise, a single path is repeated."""
        if self.noisy:
            return self.process.sample(self.grid, samples, generator=generator, **self.solvers)
        path = self.mean_path()
        after = None if path.after_reset is None else path.after_reset.expand(samples, -1)
        w, kl = path.w.expand(samples, -1, -1), path.kl.expand(samples)
        return replace(path, w=w, kl=kl, after_reset=after, shared=path.steps)

    def mean_path(self) -> WeightPath:
        """The path with the noise switched off: all Brownian increments are zero."""
        return self.process.mean_path(self.grid, **self.solvers)

    def forward(self, h: Tensor | Prefix, path: WeightPath) -> Tensor:
        """h at the end of the block: (N, ...) if all samples agree, else (S, N, ...).

        Samples that agree are computed once. If h differs between samples but the weights do not, all samples are
        processed as one batch.

        Args:
            h: (N, ...) or (S, N, ...) at the start of the block, or the prefix that all samples share.
            path: weights of S samples.
        """
        if isinstance(h, Prefix):
            return self._flow(h, path)
        if path.shared == path.steps:
            batch = h if h.ndim == 4 else h.flatten(0, 1)
            return self._flow(batch, path[:1]).reshape(h.shape)
        if h.ndim == 4:
            return self._flow(h, path)
        # unbind would stack the gradients, which changes their layout
        starts = torch.split(h.flatten(0, 1), h.shape[1])
        ends = [self._flow(start, path[i]).squeeze(0) for i, start in enumerate(starts)]
        return torch.cat(ends).view(h.shape)

    def shared(self, h: Tensor, path: WeightPath) -> Prefix:
        """The steps of this block that all samples share."""
        return shared_prefix(self.f_h, channels_last(h), path, self.method, self.gradient)

    def _flow(self, h: Tensor | Prefix, path: WeightPath) -> Tensor:
        start = channels_last(h) if isinstance(h, Tensor) else h
        end = flow(self.f_h, start, path, self.method, self.gradient, per_sample=False)
        return end if self.config.system.features.learned else gradient_channels_last(end)


def _process(config: Config, w0: Tensor, prior: Prior, cut: Cut, generator: torch.Generator) -> WeightProcess:
    """The weight process with f_q = f_p + net, where the net is initially zero."""
    options, deterministic = config.system.process, config.system.cut.drift_deterministic
    knots = options.knots if options.drift_family == "diagonal" else 0
    net = bottleneck(
        len(w0), cut, options.drift, deterministic, knots=knots, hold=options.hold, at=w0, generator=generator
    )
    return WeightProcess(w0, PriorPlus(prior, net), prior, cut)


def _require_stable(config: Config, cut: Cut) -> None:
    """Raise `BadInput` if the weights are held with a rate at which the first grid of training diverges."""
    if not config.system.process.hold:
        return
    phases = grid_of(config, cut, config.system.flow.counts[0]).phases
    most = 2 / max((phase.stop - phase.start) / phase.steps for phase in phases)
    if config.system.process.hold >= most:
        raise BadInput(
            f"expected --hold below {most:g}, 2 / the longest step, got {config.system.process.hold:g}; "
            "choose more --steps or a smaller --hold"
        )


def _applied(layers: nn.Module, h: Tensor, weights: Weights) -> Tensor:
    """What comes before a block or after the last, with the statistics of each sample; often nothing."""
    return layers(h, weights.norms) if len(cast("nn.Sequential", layers)) else h


def require_seen_noise(model: Classifier) -> None:
    """Raise `BadInput` if there is noise, but no step of h in any block depends on it."""
    noisy = [block for block in model.deep_blocks if block.noisy]
    if noisy and not any(block.sees_noise for block in noisy):
        raise BadInput(
            "expected noise that affects the hidden state: euler takes the weights at the left end of a step, before "
            "the noise of that step; use --hidden-method euler-mean, or more --steps or --sde-steps"
        )


@torch.no_grad()
def _try_solvers(config: Config, blocks: Sequence[DeepBlock]) -> None:
    """Draw once if the prior or a scheme is not the default, to report an unsuitable scheme early."""
    options = config.system.process
    if options.prior in PRIORS and options.solver == options.ode_solver == ProcessOptions.solver:
        return
    for block in blocks:
        with suppress(NonFiniteState):  # the first training step reports it
            block.draw(1, torch.Generator().manual_seed(0))


@final
class Classifier(ImageClassifier):
    """A multi-scale classifier: scales of blocks with transitions between them, and a linear head.

    `forward` returns kl = sum over blocks of 1/2 int |u|^2, plus the KL of the head.

    Learned transitions normalise by the statistics of a batch in training. In prediction, every weight sample uses the
    statistics that it has on `reference`, a thousand training images that are saved with the network.

    `sigma_factor` multiplies sigma: 1 in training, then that of `--tune-sigma`. It is saved with the network, and
    `psdenets.load` applies it with `set_sigma`.
    """

    reference: Tensor
    sigma_factor: Tensor

    def __init__(self, config: Config, spec: ImageSpec) -> None:
        super().__init__(config, spec)
        shapes = block_shapes(config, spec)
        cuts = cuts_of(config)
        try:
            self.blocks = nn.ModuleList(
                DeepBlock(config, shape[0], cut, generator_at(config.seed, "block", b))
                for b, (shape, cut) in enumerate(zip(shapes, cuts, strict=True))
            )
            _try_solvers(config, self.deep_blocks)
        except ValueError as error:  # a share of less than one weight, or a scheme that cannot solve the equation
            hint = "; choose --solver euler --ode-solver euler" if "fused-euler" in str(error) else ""
            raise BadInput(f"{error}{hint}") from None
        self.register_buffer("sigma_factor", torch.ones(()))
        self.stem, self.before, self.after = around(config, spec, shapes)
        if self.learned:
            size = (_REFERENCE, spec.channels, spec.height, spec.width)
            noise = torch.randint(256, size, dtype=torch.uint8, generator=generator_at(config.seed, "reference"))
            self.register_buffer("reference", noise)  # until `adapt`
        features = shapes[-1][0] if config.system.features.pool != "none" else math.prod(shapes[-1])
        outputs = self.likelihood.outputs(len(spec.classes) or 1)
        added = config.system.flow.augment_channels
        self.head = head_of(config.system.head, features, outputs, generator_at(config.seed, "head"), added)

    def set_sigma(self, factor: float) -> None:
        """Multiply the sigma of the options by a factor in all blocks."""
        self.sigma_factor.fill_(factor)
        for block in self.deep_blocks:
            block.set_sigma(factor)

    @property
    def learned(self) -> bool:
        """Whether there are learned transitions, which normalise."""
        learned: bool = self.config.system.features.learned
        return learned

    @property
    def deep_blocks(self) -> list[DeepBlock]:
        """The blocks, from the input to the output."""
        return [cast("DeepBlock", block) for block in self.blocks]

    def draw(self, samples: int = 1, generator: torch.Generator | None = None) -> Weights:
        """Sample weights. Sample i depends only on the state of the generator and on i."""
        return self._drawn(samples, self._streams(generator))

    def mean_weights(self) -> Weights:
        """The paths with the noise switched off, and the means of the head."""
        head = HeadWeights(self.head.weight[None], self.head.bias[None])
        return self._measured(Weights(tuple(block.mean_path() for block in self.deep_blocks), head))

    def draw_in_groups(self, samples: int, generator: torch.Generator | None = None) -> Iterator[Weights]:
        """Yield the samples of `draw` in groups whose paths take at most half a gigabyte, or one sample at a time."""
        streams = self._streams(generator)
        numbers = sum((b.grid.steps + 1) * len(b.process.w0) for b in self.deep_blocks if b.noisy)
        size = max(1, min(samples, _GROUP_NUMBERS // max(1, numbers)))
        for first in range(0, samples, size):
            yield self._drawn(min(size, samples - first), streams)

    def _streams(self, generator: torch.Generator | None) -> list[torch.Generator]:
        """A generator for each block and for the head.

        With a single generator, the noise of the second block would depend on how many samples the first one drew.
        """
        at = "cpu" if generator is None else generator.device
        seeds = torch.randint(2**62, (len(self.blocks) + 1,), generator=generator, device=at).tolist()
        return [torch.Generator(self.mean.device).manual_seed(seed) for seed in seeds]

    def _drawn(self, samples: int, streams: list[torch.Generator]) -> Weights:
        paths = tuple(block.draw(samples, g) for block, g in zip(self.deep_blocks, streams[:-1], strict=True))
        return self._measured(Weights(paths, self.head.draw(samples, streams[-1])))

    @torch.no_grad()
    def _measured(self, weights: Weights) -> Weights:
        """In prediction, the weights with the statistics of each sample on the reference images."""
        if self.training or not self.learned:
            return weights
        before: list[Statistics] = []
        state = self.shared(to_unit(self.reference), weights._replace(norms=Norms(seen=before)))
        each: list[list[Statistics]] = [[] for _ in (weights.kl[:1] if state.block == len(self.blocks) else weights.kl)]
        for i, seen in enumerate(each):
            self.rest(state, weights.sample(i)._replace(norms=Norms(seen=seen)))
        after = (Statistics(*map(torch.cat, zip(*layer, strict=True))) for layer in zip(*each, strict=True))
        return weights._replace(norms=Norms(given=(*before, *after)))

    def logits(self, x: Tensor, weights: Weights) -> Tensor:
        """Images (N, C, H, W) in [0, 1] -> logits (S, N, classes)."""
        return self.from_hidden(self.prepare(x), weights)

    def prepare(self, x: Tensor) -> Tensor:
        """h_0 = a(x): normalise, apply space-to-depth, pad with zero channels, and apply the stem."""
        h = channels_last(lifted(self.normalised(x), self.config).to(self.dtype))
        out: Tensor = self.stem(h)
        return out

    @torch.no_grad()
    def adapt(self, x: Tensor) -> None:
        if isinstance(self.stem, Whitening):
            self.stem.adapt(lifted(self.normalised(x), self.config))
        if self.learned:
            some = x[torch.arange(_REFERENCE, device=x.device) % len(x)]
            self.reference.copy_((255 * some).round())

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of hidden states: that of the weights, or bfloat16 with --precision bfloat16."""
        return torch.bfloat16 if self.config.system.features.precision == "bfloat16" else self.head.weight.dtype

    def from_hidden(self, h: Tensor, weights: Weights) -> Tensor:
        """h_0 (N, C, H, W) -> logits (S, N, classes)."""
        return self._through(0, h, weights)

    def shared(self, x: Tensor, weights: Weights) -> Shared:
        """All blocks before the first noise, and the steps of the next block that all samples share."""
        h = self.prepare(x)
        for b, (block, path) in enumerate(zip(self.deep_blocks, weights.paths, strict=True)):
            h = _applied(self.before[b], h, weights)
            if block.noisy:
                return Shared(block.shared(h, path), b)
            h = block(h, path)
        return Shared(Prefix((h,), 0), len(self.blocks))

    def rest(self, state: Shared, weights: Weights) -> Tensor:
        """From the shared part to logits (S, N, classes)."""
        prefix, b = state
        if b == len(self.blocks):
            return self._through(b, prefix.state[0], weights)
        return self._through(b + 1, self.deep_blocks[b](prefix, weights.paths[b]), weights)

    def features(self, x: Tensor, weights: Weights) -> Tensor:
        """Images (N, C, H, W) in [0, 1] -> inputs of the head (S, N, d)."""
        found = self._features(0, self.prepare(x), weights)
        return found if found.ndim == 3 else found[None]

    def _through(self, first: int, h: Tensor, weights: Weights) -> Tensor:
        """The blocks from `first` on, and the head."""
        return weights.head.logits(self._features(first, h, weights)).expand(len(weights.kl), -1, -1)

    def _features(self, first: int, h: Tensor, weights: Weights) -> Tensor:
        """The blocks from `first` on, and pooling: (N, d) if all samples agree, else (S, N, d)."""
        for b in range(first, len(self.blocks)):
            h = self.deep_blocks[b](_applied(self.before[b], h, weights), weights.paths[b])
        last = _applied(self.after, h, weights)
        return pooled(last, self.config.system.features.pool).to(weights.head.weight.dtype)

    def head_kl(self) -> Tensor:
        """KL of the last layer."""
        return self.head.kl()

    def action(self, weights: Weights) -> Tensor:
        if self.config.system.process.deterministic_prior == "none":
            return super().action(weights)
        pairs = zip(self.deep_blocks, weights.paths, strict=True)
        return torch.stack([path_action(b.process.prior, path, b.process.cut) for b, path in pairs]).sum(0)

    def parameter_counts(self) -> dict[str, int]:
        """Number of trainable parameters: w0 and theta (and w_t2), and those outside the weight process."""
        blocks = [block.process for block in self.deep_blocks]
        return {
            "w0": sum(p.w0.numel() for p in blocks),
            "w_t2": sum(p.w_t2.numel() for p in blocks if isinstance(p.w_t2, nn.Parameter)),
            "theta": sum(q.numel() for p in blocks if isinstance(p.drift, nn.Module) for q in p.drift.parameters()),
            "head": sum(q.numel() for q in self.head.parameters() if q.requires_grad),
            "features": sum(q.numel() for m in (self.stem, self.before, self.after) for q in m.parameters()),
        }

    def stochastic_share(self) -> float:
        """Share of the network's weights that are noisy in part of the depth; f_q is not counted."""
        counts, processes = self.parameter_counts(), [block.process for block in self.deep_blocks]
        noisy = sum(len(process.S) for process in processes)
        return noisy / (counts["w0"] + counts["head"] + counts["features"])
