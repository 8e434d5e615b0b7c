"""The prior on weight paths that the options of a run describe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from psdenets.errors import BadInput
from psdenets.references import made
from psdenets.registries import PRIORS
from sdeweights import Brownian, Prior

if TYPE_CHECKING:
    from psdenets.options.process import ProcessOptions


def prior_of(options: ProcessOptions) -> Prior:
    """The prior of that name in `PRIORS`, or the one that `module:attribute` makes, with sigma and theta."""
    prior = made(PRIORS, options.prior, sigma=options.sigma, theta=options.theta)
    if not isinstance(prior, Prior):
        raise BadInput(f"expected the prior {options.prior} to make an sdeweights.Prior, got {type(prior).__name__}")
    return prior


def brownian(*, sigma: float, theta: float) -> Prior:  # noqa: ARG001 - called like every prior
    """dw = sigma dB."""
    return Brownian(sigma=sigma)
