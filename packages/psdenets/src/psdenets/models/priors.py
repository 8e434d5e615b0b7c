"""Build the prior on weight paths from the options of a run."""

import math

import torch
from torch import Tensor, nn

from psdenets.errors import BadInput
from psdenets.options.process import ProcessOptions
from psdenets.references import made
from psdenets.registries import PRIORS
from sdeweights import Brownian, Prior


def prior_of(options: ProcessOptions, net: nn.Module) -> Prior:
    """Build the prior of the weights of f_h = net: a name in `PRIORS`, or a custom `module:attribute`."""
    sigma = options.sigma if options.noise_scale == "absolute" else options.sigma * layer_scales(net)
    prior = made(PRIORS, options.prior, sigma=sigma, theta=options.theta)
    if not isinstance(prior, Prior):
        raise BadInput(f"expected the prior {options.prior} to make an sdeweights.Prior, got {type(prior).__name__}")
    return prior


def layer_scales(net: nn.Module) -> Tensor:
    """1 / sqrt(fan-in) of the layer of each weight, in the order of `net.parameters()`: (d,).

    An Ornstein-Uhlenbeck prior with g = diag(s / sqrt(fan-in)) has the stationary variance s^2 / (2 theta fan-in). For
    theta = 1 and s = sqrt(2/3) that is the variance of the initial weights, uniform in +-1 / sqrt(fan-in).
    The fan-in of a layer is its attribute `fan_in`, or the number of inputs per row of its largest parameter.
    """
    scales: dict[nn.Parameter, float] = {}
    for layer in net.modules():
        own = list(layer.parameters(recurse=False))
        rows = [p.numel() // len(p) for p in own if p.ndim > 1]
        fan_in = getattr(layer, "fan_in", max(rows, default=1))
        scales |= dict.fromkeys(own, 1 / math.sqrt(fan_in))
    return torch.cat([torch.full((p.numel(),), scales[p]) for p in net.parameters()])


def brownian(*, sigma: float | Tensor, theta: float) -> Prior:  # noqa: ARG001 - called like every prior
    """dw = sigma dB."""
    return Brownian(sigma=sigma)
