"""Options of the weight process,  dw = f_q(t, w) dt + g dB, and of the head."""

from typing import Literal

from psdenets.options.fields import FROM_0_BELOW_1, SIZES, Group, above, at_least, option
from psdenets.registries import PRIORS


class ProcessOptions(Group, group="weight process"):
    """Prior, posterior drift f_q, solvers and gradient."""

    sigma: float = option(0.05, "diffusion of the prior", above(0))
    noise_scale: Literal["absolute", "layer", "effect"] = option(
        "absolute",
        "diffusion of a weight: sigma, sigma / sqrt(fan-in) of its layer, or this divided by the effect of the window, "
        "so that the hidden state sees the same noise with every cut",
    )
    tune_sigma: Literal["none", "best", "widest"] = option(
        "none",
        "after training, multiply sigma by a factor chosen on validation images: the one with the lowest NLL of "
        "--test-samples samples, or the largest one that is not significantly worse",
    )
    noise_start: float = option(
        0.0,
        "part of training that passes before the noise is switched on; until then weights follow f_q, without a KL",
        FROM_0_BELOW_1,
    )
    theta: float = option(1.0, "mean reversion of the Ornstein-Uhlenbeck prior", at_least(0))
    prior: str = option(
        "ou", "prior of the weights: a name, or module:attribute in your own file, which is executed", registry=PRIORS
    )
    drift: str = option("2-128-2", "hidden sizes of f_q (of its stochastic half on a horizontal cut)", SIZES)
    drift_family: Literal["bottleneck", "diagonal"] = option(
        "bottleneck", "f_q = f_p + net, or f_p + b(t) - a(t) w + net with a rate a and a force b for every weight"
    )
    knots: int = option(2, "values of a and b per weight, over depth, with --drift-family diagonal", at_least(1))
    hold: float = option(
        0.0,
        "initial rate a of every weight, with b = a w0, so that the posterior starts narrow (--drift-family diagonal)",
        at_least(0),
    )
    deterministic_prior: Literal["none", "map"] = option(
        "none", "price of the deterministic depth and weights: nothing, or their action under the prior"
    )
    solver: str = option(
        "fused-euler",
        "scheme of the stochastic phase: fused-euler, euler, heun, midpoint, milstein, sra1, torchsde:METHOD",
    )
    ode_solver: str = option(
        "fused-euler", "scheme of deterministic phases: fused-euler, euler, midpoint, rk4, torchdiffeq:METHOD"
    )
    gradient: Literal["backprop", "checkpoint", "adjoint"] = option(
        "backprop", "the backward pass keeps all states, every few (checkpoint), or the last and recomputes (adjoint)"
    )

    def idle(self) -> dict[str, str]:
        found = {"theta": "expected --theta with --prior ou, got --prior brownian"} if self.prior == "brownian" else {}
        if self.drift_family == "bottleneck":
            for name in ("knots", "hold"):
                found[name] = f"expected --{name} with --drift-family diagonal, got --drift-family bottleneck"
        return found


class HeadOptions(Group, group="head"):
    """The last linear layer."""

    head: Literal["deterministic", "fixed", "meanfield"] = option(
        "deterministic", "the last linear layer: trained, fixed sums of channels, or Gaussian"
    )
    prior_std: float = option(0.1, "prior N(0, std^2) of mean-field and HMC weights", above(0))
    log_std: float = option(-4.0, "initial log standard deviation of mean-field weights")

    def idle(self) -> dict[str, str]:
        message = "expected --prior-std and --log-std with --head meanfield, got another head"
        return {} if self.head == "meanfield" else {"prior_std": message, "log_std": message}
