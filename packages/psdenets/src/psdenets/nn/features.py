"""Deterministic layers around the blocks: a fixed stem, learned transitions between scales, and pooling.

    x -> stem -> [enter -> blocks of a scale -> leave] for every scale -> pool -> head
    enter   3 x 3 convolution, max-pool by 2, normalise
    leave   normalise, activation

All of them accept images (N, C, H, W), or (S, N, C, H, W) for S weight samples.
"""

import math
from collections.abc import Callable
from typing import final

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
class SampleNorm(nn.Module):
    """Batch normalisation in which every weight sample is a network of its own.

    In training, each sample is normalised by its own batch statistics, and the running averages are updated by the mean
    of these over samples: a step with S samples counts as much as a step with one.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, channels: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("var", torch.ones(channels))
        self.momentum = momentum

    def forward(self, h: Tensor) -> Tensor:
        """h, normalised per channel."""
        if not self.training:
            scale = self.weight * (self.var + 1e-5).rsqrt()
            shift = self.bias - self.mean * scale
            return torch.addcmul(shift.to(h.dtype)[:, None, None], h, scale.to(h.dtype)[:, None, None])
        means, variances = (torch.zeros(*h.shape[:-4], len(self.mean), device=h.device) for _ in range(2))
        samples = [h] if h.ndim == 4 else list(h.unbind())
        rows = zip(samples, means.view(-1, len(self.mean)), variances.view(-1, len(self.mean)), strict=True)
        out = [F.batch_norm(x, mean, var, self.weight, self.bias, True, 1.0) for x, mean, var in rows]
        for kept, new in ((self.mean, means), (self.var, variances)):
            kept.lerp_(new.view(-1, len(kept)).mean(0), self.momentum)
        return out[0] if h.ndim == 4 else torch.stack(out)

    def extra_repr(self) -> str:
        return f"{len(self.mean)}"


@final
class Enter(nn.Module):
    """The start of a scale: 3 x 3 convolution, max-pool by 2 (sides are halved, rounding down), normalise."""

    def __init__(self, c_in: int, c_out: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(9 * c_in)
        kernel = (torch.rand((c_out, c_in, 3, 3), generator=generator) * 2 - 1) * bound
        self.kernel = nn.Parameter(kernel.contiguous(memory_format=torch.channels_last))
        self.norm = SampleNorm(c_out)

    def forward(self, h: Tensor) -> Tensor:
        """(..., C, H, W) -> (..., C', H // 2, W // 2)."""
        kernel = self.kernel.to(h.dtype)
        out: Tensor = self.norm(over_images(lambda x: F.max_pool2d(F.conv2d(x, kernel, padding=1), 2), h))
        return out

    def extra_repr(self) -> str:
        return f"{self.kernel.shape[1]}, {self.kernel.shape[0]}"


@final
class Leave(nn.Module):
    """The end of a scale: normalise, activation."""

    def __init__(self, channels: int, activation: Activation) -> None:
        super().__init__()
        self.norm, self.activation = SampleNorm(channels), activation

    def forward(self, h: Tensor) -> Tensor:
        """h, with the same shape."""
        return self.activation(self.norm(h))


def pooled(h: Tensor, how: str) -> Tensor:
    """Features of the head: (..., C, H, W) -> (..., C H W), or (..., C) if pooled over the image."""
    if how == "none":
        return h.flatten(-3)
    return h.amax((-2, -1)) if how == "max" else h.mean((-2, -1))
