"""Deterministic layers around the blocks: a fixed stem, learned transitions between scales, and pooling.

    x -> stem -> [enter -> blocks of a scale -> leave] for every scale -> pool -> head
    enter   3 x 3 convolution, max-pool by 2, normalise
    leave   normalise, activation

All of them accept images (N, C, H, W), or (S, N, C, H, W) for S weight samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from psdenets.nn.activations import Activation

_EPSILON = 5e-4  # added to the variances of patches, which are near 0 for fine patterns


def over_images(f: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    """Apply a function of (N, C, H, W) to all samples as one batch."""
    if h.ndim == 4:
        return f(h)
    out = f(h.flatten(0, 1))
    return out.view(*h.shape[:2], *out.shape[1:])


@final
class Whitening(nn.Module):
    """Project 2 x 2 patches on their principal directions, scaled to variance 1, with both signs: C -> 8 C channels.

    The directions are those of the training images, see `adapt`, and are not trained; only a bias is.
    """

    kernel: Tensor

    def __init__(self, channels: int, activation: Activation) -> None:
        super().__init__()
        self.register_buffer("kernel", torch.eye(4 * channels).view(-1, channels, 2, 2))
        self.bias = nn.Parameter(torch.zeros(8 * channels))
        self.activation = activation

    @torch.no_grad()
    def adapt(self, h: Tensor) -> None:
        """Compute the directions from normalised images (N, C, H, W)."""
        patches = F.unfold(h, 2).transpose(1, 2).flatten(0, 1).double()
        variances, directions = torch.linalg.eigh(patches.t() @ patches / len(patches))
        self.kernel.copy_((directions / (variances + _EPSILON).sqrt()).t().reshape(self.kernel.shape))

    def forward(self, h: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, 8 C, H - 1, W - 1)."""
        kernel = torch.cat([self.kernel, -self.kernel]).to(h.dtype)
        return self.activation(F.conv2d(h, kernel, self.bias.to(h.dtype)))


@final
class LinearStem(nn.Module):
    """A trained linear map of the channels of each pixel, or of the columns of a row."""

    def __init__(self, c_in: int, c_out: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(c_in)
        self.weight = nn.Parameter((torch.rand((c_out, c_in, 1, 1), generator=generator) * 2 - 1) * bound)
        self.bias = nn.Parameter((torch.rand(c_out, generator=generator) * 2 - 1) * bound)

    def forward(self, h: Tensor) -> Tensor:
        """(N, C, H, W) -> (N, C', H, W)."""
        return F.conv2d(h, self.weight.to(h.dtype), self.bias.to(h.dtype))

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, {self.weight.shape[0]}"


class Statistics(NamedTuple):
    """Mean and variance of every channel, (S, C) for S weight samples, or (1, C) if all samples share them."""

    mean: Tensor
    var: Tensor

    def sample(self, i: int) -> Statistics:
        """Those of sample i."""
        return self if len(self.mean) == 1 else Statistics(self.mean[i : i + 1], self.var[i : i + 1])


class Norms(NamedTuple):
    """Where layers that normalise take their statistics from: those of their batch, or given ones, by layer."""

    given: tuple[Statistics, ...] | None = None
    seen: list[Statistics] | None = None  # if there is a list, the statistics of the batch are appended

    def sample(self, i: int) -> Norms:
        """Those of sample i."""
        return self if self.given is None else Norms(tuple(of.sample(i) for of in self.given))


OF_THE_BATCH = Norms()


@final
class SampleNorm(nn.Module):
    """Normalisation of every channel, in which every weight sample is a network with statistics of its own.

    In training these are the statistics of the batch, as in batch normalisation. There are no running averages: those
    would be averages over weight samples, and would leave in every sample the shift of its channels that training
    removes. `psdenets.models.psde.Classifier` measures the statistics of each sample that predicts.

    Args:
        channels: number of channels.
        layer: index of this layer among those of the network that normalise.
    """

    def __init__(self, channels: int, layer: int = 0) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.layer = layer

    def forward(self, h: Tensor, norms: Norms = OF_THE_BATCH) -> Tensor:
        """h, normalised per sample and channel."""
        if norms.given is not None:
            return self._scaled(h, norms.given[self.layer])
        samples = [h] if h.ndim == 4 else torch.split(h.flatten(0, 1), h.shape[1])  # unbind would change their layout
        means, variances = (torch.zeros(len(samples), len(self.weight), device=h.device) for _ in range(2))
        rows = zip(samples, means, variances, strict=True)
        out = [F.batch_norm(x, mean, var, self.weight, self.bias, True, 1.0) for x, mean, var in rows]
        if norms.seen is not None:
            norms.seen.append(Statistics(means, variances))
        return (out[0] if len(out) == 1 else torch.cat(out)).view(h.shape)

    def _scaled(self, h: Tensor, of: Statistics) -> Tensor:
        scale = self.weight * (of.var + 1e-5).rsqrt()
        scale, shift = (v.to(h.dtype)[:, None, :, None, None] for v in (scale, self.bias - of.mean * scale))
        return torch.addcmul(shift, h, scale) if h.ndim == 5 else torch.addcmul(shift[0], h, scale[0])

    def extra_repr(self) -> str:
        return f"{len(self.weight)}"


@final
class Enter(nn.Module):
    """The start of a scale: 3 x 3 convolution, max-pool by 2 (sides are halved, rounding down), normalise."""

    def __init__(self, c_in: int, c_out: int, layer: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(9 * c_in)
        kernel = (torch.rand((c_out, c_in, 3, 3), generator=generator) * 2 - 1) * bound
        self.kernel = nn.Parameter(kernel.contiguous(memory_format=torch.channels_last))
        self.norm = SampleNorm(c_out, layer)

    def forward(self, h: Tensor, norms: Norms = OF_THE_BATCH) -> Tensor:
        """(..., C, H, W) -> (..., C', H // 2, W // 2)."""
        kernel = self.kernel.to(h.dtype)
        out: Tensor = self.norm(over_images(lambda x: F.max_pool2d(F.conv2d(x, kernel, padding=1), 2), h), norms)
        return out

    def extra_repr(self) -> str:
        return f"{self.kernel.shape[1]}, {self.kernel.shape[0]}"


@final
class Leave(nn.Module):
    """The end of a scale: normalise, activation."""

    def __init__(self, channels: int, layer: int, activation: Activation) -> None:
        super().__init__()
        self.norm, self.activation = SampleNorm(channels, layer), activation

    def forward(self, h: Tensor, norms: Norms = OF_THE_BATCH) -> Tensor:
        """h, with the same shape."""
        return self.activation(self.norm(h, norms))


@final
class InTurn(nn.Sequential):
    """Layers applied in turn; those that normalise, and no others, take `norms`."""

    def forward(self, h: Tensor, norms: Norms = OF_THE_BATCH) -> Tensor:
        """The result of the last layer; h itself if there are no layers."""
        for layer in self:
            h = layer(h, norms) if isinstance(layer, Enter | Leave) else layer(h)
        return h


def pooled(h: Tensor, how: str) -> Tensor:
    """Features of the head: (..., C, H, W) -> (..., C H W), or (..., C) if pooled over the image."""
    if how == "none":
        return h.flatten(-3)
    return h.amax((-2, -1)) if how == "max" else h.mean((-2, -1))
