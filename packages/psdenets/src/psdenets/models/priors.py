"""Build the prior on weight paths from the options of a run."""

from psdenets.errors import BadInput
from psdenets.options.process import ProcessOptions
from psdenets.references import made
from psdenets.registries import PRIORS
from sdeweights import Brownian, Prior


def prior_of(options: ProcessOptions) -> Prior:
    """Build a prior with sigma and theta: a name in `PRIORS`, or a custom `module:attribute`."""
    prior = made(PRIORS, options.prior, sigma=options.sigma, theta=options.theta)
    if not isinstance(prior, Prior):
        raise BadInput(f"expected the prior {options.prior} to make an sdeweights.Prior, got {type(prior).__name__}")
    return prior


def brownian(*, sigma: float, theta: float) -> Prior:  # noqa: ARG001 - called like every prior
    """dw = sigma dB."""
    return Brownian(sigma=sigma)
