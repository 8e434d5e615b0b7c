"""The residual network for small images of He et al. (2016):  conv 3x3 -> three scales of blocks -> mean -> W h + b.

    block:   h -> relu(s(h) + norm(conv(relu(norm(conv(h))))))

Each scale after the first halves height and width and doubles the channels. There, s(h) takes every second pixel and
pads with zero channels, so shortcuts have no weights. With 5-5-5 blocks there are 32 layers: ResNet32.
"""

from typing import final

from torch import Tensor, nn
from torch.nn import functional as F

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.models.likelihoods import outputs_of
from psdenets.nn.fast.layout import channels_last
from psdenets.seeds import seeded

_GROUPED = 8  # channels per group in group normalisation


@final
class ResNet(nn.Module):
    """Normalised images (N, C, H, W) -> logits (N, classes); the first scale has `width` channels.

    `norm` is "batch", "group" or "none". Without normalisation the second convolution of a block is initially zero, so
    blocks start as the identity; this makes 32 layers trainable.

    Example:
        >>> sum(p.numel() for p in ResNet(3, 10).parameters())
        464154
    """

    def __init__(
        self, channels: int, classes: int, blocks: tuple[int, ...] = (5, 5, 5), width: int = 16, norm: str = "batch"
    ) -> None:
        super().__init__()
        self.first = _conv(channels, width, 1, norm)
        self.norm = _norm(width, norm)
        layers = []
        c_in = width
        for scale, count in enumerate(blocks):
            c_out = width * 2**scale
            for k in range(count):
                layers.append(Residual(c_in, c_out, 2 if scale and k == 0 else 1, norm))
                c_in = c_out
        self.blocks = nn.Sequential(*layers)
        self.head = nn.Linear(c_in, classes)

    def features(self, x: Tensor) -> Tensor:
        """Input of the last layer, (N, width * 2^(scales - 1))."""
        h = channels_last(x)
        out: Tensor = self.blocks(F.relu(self.norm(self.first(h))))
        return out.mean((-2, -1))

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        out: Tensor = self.head(self.features(x))
        return out


def resnet_of(config: Config, spec: ImageSpec) -> ResNet:
    """Build the ResNet of a config, with random weights."""
    net = config.system.net
    with seeded(config.seed, "network"):
        return ResNet(spec.channels, outputs_of(config, spec), net.scales, net.width, config.system.resnet.norm)


@final
class Residual(nn.Module):
    """One block of two convolutions and a shortcut."""

    def __init__(self, c_in: int, c_out: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(c_in, c_out, stride, norm), _norm(c_out, norm)
        self.conv2, self.norm2 = _conv(c_out, c_out, 1, norm), _norm(c_out, norm)
        self.stride, self.padded = stride, c_out - c_in
        if norm == "none":
            nn.init.zeros_(self.conv2.weight)

    def forward(self, h: Tensor) -> Tensor:
        """relu(shortcut + residual)."""
        r = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(h)))))
        if self.stride > 1:
            h = h[..., :: self.stride, :: self.stride]
        if self.padded:
            before = self.padded // 2
            h = F.pad(h, (0, 0, 0, 0, before, self.padded - before))
        return F.relu(h + r)


def _conv(c_in: int, c_out: int, stride: int, norm: str) -> nn.Conv2d:
    """A 3x3 convolution, initialised as in He et al. (2015); it has no bias if normalisation would cancel it."""
    conv = nn.Conv2d(c_in, c_out, 3, stride, 1, bias=norm == "none")
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)
    return conv


def _norm(channels: int, norm: str) -> nn.Module:
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "group":
        return nn.GroupNorm(max(1, channels // _GROUPED), channels)
    return nn.Identity()
