"""Options of the other systems of the paper's Table 1."""

from typing import Literal

from psdenets.options.fields import Group, above, at_least, option


class MeanFieldOptions(Group, group="other systems"):
    """Independent Gaussians for the weights of a network."""

    prior_std: float = option(0.1, "prior N(0, std^2) of mean-field and HMC weights", above(0))
    log_std: float = option(-4.0, "initial log standard deviation of mean-field weights")
    noise: Literal["local", "weights"] = option(
        "local", "mean-field linear layers during training: draw outputs per image (local) or weights"
    )


class EnsembleOptions(Group, group="other systems"):
    """Networks trained with different seeds."""

    member: Literal["resnet32", "odenet"] = option("resnet32", "the system of each ensemble member")
    members: int = option(3, "number of ensemble members", at_least(1))


class LaplaceOptions(Group, group="other systems"):
    """Laplace approximation of the last layer."""

    hessian: Literal["full", "kron", "diag"] = option("kron", "structure of the last layer's Laplace approximation")
    predictive: Literal["sampled", "probit"] = option(
        "sampled", "Laplace: average over samples, or the probit approximation"
    )
    laplace_of: str | None = option(None, "use the network of this finished resnet32 run instead of training one")


class HmcOptions(Group, group="other systems"):
    """Hamiltonian Monte Carlo over a small perceptron."""

    prior_std: float = option(0.1, "prior N(0, std^2) of mean-field and HMC weights", above(0))
    chains: int = option(4, "number of HMC chains", at_least(1))
    warmup: int = option(200, "HMC transitions per chain that adapt step size and mass, and are discarded", at_least(1))
    draws: int = option(200, "HMC transitions per chain that are kept", at_least(1))
    leapfrog: int = option(50, "leapfrog steps per HMC transition", at_least(1))
