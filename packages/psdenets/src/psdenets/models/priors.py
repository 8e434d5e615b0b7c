"""Build the prior on weight paths from the options of a run."""

import math

import torch
from torch import Tensor, nn

from psdenets.errors import BadInput
from psdenets.options.process import ProcessOptions
from psdenets.references import made
from psdenets.registries import PRIORS
from sdeweights import Brownian, Cut, Prior


def prior_of(options: ProcessOptions, net: nn.Module, cut: Cut, factor: float = 1.0) -> Prior:
    """Build the prior of the weights of f_h = net: a name in `PRIORS`, or a custom `module:attribute`.

    Sigma is that of the options times `factor`.
    """
    sigma: float | Tensor = options.sigma * factor
    if options.noise_scale != "absolute":
        sigma = sigma * layer_scales(net) / (window_effect(cut) if options.noise_scale == "effect" else 1.0)
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


def window_effect(cut: Cut) -> float:
    """Standard deviation of the noise of a weight integrated over depth, relative to that of a fully stochastic weight.

    A Brownian motion B that runs in the window (t1, t2) and is then constant has the integral int (1 - s) dB_s over the
    window, with variance ((1 - t1)^3 - (1 - t2)^3) / 3. If w is reset at t2, the noise ends there, and (t2 - t1)^3 / 3
    remains.

    Example: the last tenth of depth has 0.1^1.5 of the effect of all of it, the first tenth half of the effect.
        >>> [round(window_effect(cut), 3) for cut in (Cut.full(), Cut.ode_first(0.1), Cut.sde_first(0.1))]
        [1.0, 0.032, 0.521]
    """
    if cut.deterministic:
        return 1.0
    end = cut.t2 if cut.resets else 1.0
    return math.sqrt((end - cut.t1) ** 3 - (end - cut.t2) ** 3)


def brownian(*, sigma: float | Tensor, theta: float) -> Prior:  # noqa: ARG001 - called like every prior
    """dw = sigma dB."""
    return Brownian(sigma=sigma)
