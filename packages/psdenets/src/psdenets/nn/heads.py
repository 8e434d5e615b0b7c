"""The last layer, features (N, d) -> logits (N, C): y = W h + b; W, b are trained, fixed or independent Gaussians."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple, final

import torch
from torch import Tensor, nn

from psdenets.errors import BadInput
from psdenets.nn.gaussian import gaussian_kl, normal_like

if TYPE_CHECKING:
    from psdenets.options.process import HeadOptions


class HeadWeights(NamedTuple):
    """W (S, C, d) and b (S, C) of S samples; S = 1 if all samples share them."""

    weight: Tensor
    bias: Tensor

    def sample(self, i: int) -> HeadWeights:
        """The weights of sample i, with S = 1."""
        return self if len(self.weight) == 1 else HeadWeights(self.weight[i : i + 1], self.bias[i : i + 1])

    def logits(self, features: Tensor) -> Tensor:
        """(N, d) or (S, N, d) -> (S, N, C)."""
        return features @ self.weight.mT + self.bias[:, None]


class Head(nn.Module, ABC):
    """A last layer; its weights are drawn first, then applied."""

    def __init__(self, d: int, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.rand((classes, d), generator=generator) * 2 - 1) / math.sqrt(d))
        self.bias = nn.Parameter(torch.zeros(classes))

    @abstractmethod
    def draw(self, samples: int, generator: torch.Generator | None) -> HeadWeights:
        """Draw weights for `samples` samples."""

    @abstractmethod
    def kl(self) -> Tensor:
        """KL of the weights from their prior, a scalar."""

    def extra_repr(self) -> str:
        """Features in, classes out."""
        classes, features = self.weight.shape
        return f"{features}, {classes}"


@final
class DeterministicHead(Head):
    """A last layer with deterministic W and b."""

    def draw(self, samples: int, generator: torch.Generator | None) -> HeadWeights:  # noqa: ARG002 - nothing to draw
        return HeadWeights(self.weight[None], self.bias[None])

    def kl(self) -> Tensor:
        return self.weight.new_zeros(())


@final
class FixedHead(Head):
    """Output k is the sum of features k, k + C, k + 2 C, ... divided by the root of their number; nothing is trained.

    Only the last `used` features are read: those that the blocks add to the columns of a table.

    A trained last layer can shrink the noise of all functions at once, which the KL does not price. With a fixed one,
    sigma alone sets how wide the prior is.
    """

    def __init__(self, d: int, classes: int, generator: torch.Generator, used: int) -> None:
        super().__init__(d, classes, generator)
        if used < classes:
            raise BadInput(f"expected --augment-channels at least {classes} with --head fixed, got {used}")
        place = torch.arange(d) - (d - used)
        own = (place >= 0) & (place % classes == torch.arange(classes)[:, None])
        self.weight = nn.Parameter(own / own.sum(1, keepdim=True).sqrt(), requires_grad=False)
        self.bias.requires_grad_(False)

    def draw(self, samples: int, generator: torch.Generator | None) -> HeadWeights:  # noqa: ARG002 - nothing to draw
        return HeadWeights(self.weight[None], self.bias[None])

    def kl(self) -> Tensor:
        return self.weight.new_zeros(())


@final
class MeanFieldHead(Head):
    """A last layer whose W and b are independent N(mean, std^2) with the prior N(0, prior_std^2).

    The defaults, prior_std 0.1 and initial std e^-4, are those of the published code.
    """

    def __init__(
        self, d: int, classes: int, generator: torch.Generator, prior_std: float = 0.1, log_std: float = -4.0
    ) -> None:
        super().__init__(d, classes, generator)
        self.prior_std = prior_std
        self.weight_log_std = nn.Parameter(torch.full((classes, d), log_std))
        self.bias_log_std = nn.Parameter(torch.full((classes,), log_std))

    def draw(self, samples: int, generator: torch.Generator | None) -> HeadWeights:
        # one sample at a time, so sample i depends only on the generator and on i
        pairs = [(normal_like(self.weight, generator), normal_like(self.bias, generator)) for _ in range(samples)]
        weight = self.weight + self.weight_log_std.exp() * torch.stack([w for w, _ in pairs])
        bias = self.bias + self.bias_log_std.exp() * torch.stack([b for _, b in pairs])
        return HeadWeights(weight, bias)

    def kl(self) -> Tensor:
        return gaussian_kl(self.weight, self.weight_log_std, self.prior_std) + gaussian_kl(
            self.bias, self.bias_log_std, self.prior_std
        )


def head_of(options: HeadOptions, d: int, classes: int, generator: torch.Generator, added: int = 0) -> Head:
    """The last layer that the options describe; `added` of its d features are not from the input."""
    if options.head == "meanfield":
        return MeanFieldHead(d, classes, generator, options.prior_std, options.log_std)
    if options.head == "fixed":
        return FixedHead(d, classes, generator, added)
    return DeterministicHead(d, classes, generator)
