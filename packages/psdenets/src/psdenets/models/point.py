"""Networks with deterministic weights, for which all weight samples are equal."""

from typing import final

import torch
from torch import Tensor, nn

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.models.base import ImageClassifier, Noiseless
from psdenets.models.nets.odenet import odenet_of
from psdenets.models.nets.resnet import resnet_of


@final
class PointEstimate(ImageClassifier):
    """A classifier made of one network with deterministic weights, `net`: normalised images -> logits."""

    def __init__(self, config: Config, spec: ImageSpec, net: nn.Module) -> None:
        super().__init__(config, spec)
        self.net = net

    def draw(self, samples: int = 1, generator: torch.Generator | None = None) -> Noiseless:  # noqa: ARG002 - no noise
        return Noiseless(self.mean.new_zeros(samples))

    def mean_weights(self) -> Noiseless:
        """The weights themselves."""
        return self.draw(1)

    def logits(self, x: Tensor, weights: Noiseless) -> Tensor:
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
