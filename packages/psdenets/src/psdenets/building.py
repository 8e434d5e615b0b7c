"""From a name or a run directory to a classifier."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import nn

from psdenets.baselines.convnet import ConvNet
from psdenets.baselines.ensemble import Ensemble, member_config
from psdenets.baselines.hmc import HMC
from psdenets.baselines.laplace import LastLayerLaplace
from psdenets.baselines.meanfield import MeanField, is_of_the_head, is_weight_or_bias_of_a_layer
from psdenets.baselines.odenet import HyperODENet, ODENet
from psdenets.baselines.point import PointEstimate
from psdenets.baselines.resnet import ResNet
from psdenets.checkpoint import load_weights
from psdenets.config import Config
from psdenets.errors import BadInput
from psdenets.interface import ImageClassifier
from psdenets.models import Classifier
from psdenets.presets import preset
from psdenets.seeds import seeded
from psdenets.spec import SPECS, ImageSpec


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


def load(run_dir: str | Path, device: str | torch.device = "cpu") -> ImageClassifier:
    """The trained classifier of a run directory, ready to predict."""
    config, spec = read_config(run_dir)
    weights = Path(run_dir) / "model.safetensors"
    if not weights.is_file():
        raise BadInput(f"expected a finished run with model.safetensors in {run_dir}, got none; --resume finishes it")
    model = classifier_of(config.replace(compile=False), spec)  # which may lie on a machine without a compiler
    model.load_state_dict(load_weights(weights))
    return model.to(device).eval().requires_grad_(False)


def read_config(run_dir: str | Path) -> tuple[Config, ImageSpec]:
    """What a run was told, and what its images are like."""
    try:
        values = json.loads((Path(run_dir) / "config.json").read_text())
        data = json.loads((Path(run_dir) / "data.json").read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"expected a run directory with config.json and data.json, got {run_dir}") from None
    return Config(**values), ImageSpec.from_dict(data["images"])
