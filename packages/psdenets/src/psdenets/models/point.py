"""Networks with deterministic weights, for which all weight samples are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

import torch
from torch import Tensor, nn

from psdenets.models.base import ImageClassifier
from psdenets.models.nets.odenet import odenet_of
from psdenets.models.nets.resnet import resnet_of

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.data.spec import ImageSpec


class Repeated(NamedTuple):
    """S equal samples; their KL is zero."""

    kl: Tensor


@final
class PointEstimate(ImageClassifier):
    """A classifier made of one network with deterministic weights.

    Args:
        config: describes the network.
        spec: size and classes of the images.
        net: normalised images -> logits.
    """

    def __init__(self, config: Config, spec: ImageSpec, net: nn.Module) -> None:
        super().__init__(config, spec)
        self.net = net

    def draw(self, samples: int = 1, generator: torch.Generator | None = None) -> Repeated:  # noqa: ARG002 - no noise
        return Repeated(self.mean.new_zeros(samples))

    def mean_weights(self) -> Repeated:
        """The weights themselves."""
        return self.draw(1)

    def logits(self, x: Tensor, weights: Repeated) -> Tensor:
        out: Tensor = self.net(self.normalised(x))
        return out.expand(len(weights.kl), -1, -1)

    def parameter_counts(self) -> dict[str, int]:
        return {"weights": sum(p.numel() for p in self.net.parameters())}


def resnet(config: Config, spec: ImageSpec) -> PointEstimate:
    """`--model resnet32`."""
    return PointEstimate(config, spec, resnet_of(config, spec))


def odenet(config: Config, spec: ImageSpec) -> PointEstimate:
    """`--model odenet`."""
    return PointEstimate(config, spec, odenet_of(config, spec))
