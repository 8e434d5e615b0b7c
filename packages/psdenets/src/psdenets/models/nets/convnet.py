"""A plain convolutional network for mean-field inference. The paper does not name the network of its row "MFVI".

scales of  [conv 3x3, relu] ... pool 2x2  ->  W h + b,     channels double from scale to scale
"""

from typing import final

from torch import Tensor, nn

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput
from psdenets.models.likelihoods import outputs_of
from psdenets.nn.fast.layout import channels_last
from psdenets.seeds import seeded


@final
class ConvNet(nn.Module):
    """Normalised images (N, *shape) -> logits (N, classes); the first scale has `width` channels."""

    def __init__(self, shape: tuple[int, int, int], classes: int, convolutions: tuple[int, ...], width: int) -> None:
        super().__init__()
        channels, height, columns = shape
        layers: list[nn.Module] = []
        for scale, count in enumerate(convolutions):
            for _ in range(count):
                conv = nn.Conv2d(channels, width * 2**scale, 3, padding=1)
                nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
                layers += [conv, nn.ReLU()]
                channels = width * 2**scale
            layers.append(nn.MaxPool2d(2))
            height, columns = height // 2, columns // 2
        if height == 0 or columns == 0:
            raise BadInput(f"expected images large enough for {len(convolutions)} scales, got {shape[1]} x {shape[2]}")
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(channels * height * columns, classes)

    def features(self, x: Tensor) -> Tensor:
        """Input of the last layer."""
        out: Tensor = self.body(channels_last(x))
        return out.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        out: Tensor = self.head(self.features(x))
        return out


def convnet_of(config: Config, spec: ImageSpec) -> ConvNet:
    """Build the convolutional network of a config, with random weights."""
    net = config.system.net
    with seeded(config.seed, "network"):
        return ConvNet((spec.channels, spec.height, spec.width), outputs_of(config, spec), net.scales, net.width)
