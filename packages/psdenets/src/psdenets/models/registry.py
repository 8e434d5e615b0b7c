"""From a name or a run directory to a classifier."""

from __future__ import annotations

from torch import nn

from psdenets.config import Config
from psdenets.data.spec import SPECS, ImageSpec
from psdenets.errors import BadInput
from psdenets.models.base import ImageClassifier
from psdenets.models.ensemble import Ensemble, member_config
from psdenets.models.hmc.model import HMC
from psdenets.models.laplace import LastLayerLaplace
from psdenets.models.meanfield import MeanField, is_of_the_head, is_weight_or_bias_of_a_layer
from psdenets.models.nets.convnet import ConvNet
from psdenets.models.nets.odenet import HyperODENet, ODENet
from psdenets.models.nets.resnet import ResNet
from psdenets.models.point import PointEstimate
from psdenets.models.psde import Classifier
from psdenets.presets import preset
from psdenets.seeds import seeded


def build(what: str | Config, spec: ImageSpec | None = None) -> ImageClassifier:
    """A fresh classifier from a preset's name or a config; ``spec`` where the data set does not fix the images.

    Example:
        >>> model = build("mnist-ode-first")
        >>> logits, kl = model(torch.zeros(2, 1, 28, 28))
        >>> logits.shape, kl.ndim
        (torch.Size([2, 10]), 0)
    """
    config = preset(what) if isinstance(what, str) else what
    if spec is None:
        if config.dataset not in SPECS:
            raise BadInput(f"expected a spec for --dataset {config.dataset}, whose images and classes vary, got none")
        spec = SPECS[config.dataset]
    return classifier_of(config, spec)


def classifier_of(config: Config, spec: ImageSpec) -> ImageClassifier:
    """The system that ``config.model`` names, as it is after training."""
    if config.model == "ensemble":
        members = [classifier_of(member_config(config, k, ""), spec) for k in range(config.members)]
        return Ensemble(config, spec, members)
    if config.model == "resnet32-laplace":
        return LastLayerLaplace(config, spec, resnet_of(config, spec))
    if config.model == "hmc":
        return HMC(config, spec)
    return trainable_of(config, spec)


def trainable_of(config: Config, spec: ImageSpec) -> ImageClassifier:
    """What gradient descent trains: the network before its Laplace approximation, else the system itself."""
    if config.model in ("psde", "sde-bnn"):
        return Classifier(config, spec)
    net = network_of(config, spec)
    if config.model.startswith("mfvi"):
        return MeanField(config, spec, net, is_weight_or_bias_of_a_layer(net))
    if config.model == "vbll":
        return MeanField(config, spec, net, is_of_the_head)
    return PointEstimate(config, spec, net)


def network_of(config: Config, spec: ImageSpec) -> nn.Module:
    """The network of a baseline, with fresh weights: normalised images -> logits."""
    if config.model in ("odenet", "mfvi-odenet"):
        with seeded(config.seed, "network"):
            return ODENet(config, spec)
    if config.model == "mfvi-hyperodenet":
        return HyperODENet(config, spec)
    if config.model == "mfvi":
        with seeded(config.seed, "network"):
            shape = (spec.channels, spec.height, spec.width)
            return ConvNet(shape, len(spec.classes), config.scales, config.width)
    return resnet_of(config, spec)


def resnet_of(config: Config, spec: ImageSpec) -> ResNet:
    """ResNet32, or as many blocks as the config says."""
    with seeded(config.seed, "network"):
        return ResNet(spec.channels, len(spec.classes), config.scales, config.width, config.norm)
