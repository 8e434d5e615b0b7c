"""What a weight path starts from: w_0, fixed or Gaussian, and the random coefficients of the prior.

    q: w_0 ~ N(m, s^2)      p: w_0 ~ N(m_p, s_p^2)      KL of the pair (w_0, path) = KL(q || p) + E_{w_0} path KL

m is the process's w0. Each weight sample draws its own w_0, and its own value of every random coefficient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, final

import torch
from torch import Tensor, nn

from sdeweights.coefficients import checked, in_words, require_finite
from sdeweights.diffusion import Field
from sdeweights.drifts import PriorPlus
from sdeweights.gaussian import Gaussian
from sdeweights.priors import Prior

if TYPE_CHECKING:
    from sdeweights.process import WeightProcess


@dataclass(frozen=True, eq=False)
class GaussianStart:
    """Describes w_0 ~ N(w0, std^2) under the posterior and N(prior_mean, prior_std^2) under the prior.

    Attributes:
        std: initial standard deviation, a number or (d,); it is trained, one value per coordinate.
        prior_mean: mean of the prior, a number or (d,).
        prior_std: standard deviation of the prior, a number or (d,).

    Example: nothing else is random here, so samples differ in w_0 only.
        >>> process = WeightProcess(torch.zeros(3), lambda t, w: -w, Brownian(), Cut.none(), start=GaussianStart(1.0))
        >>> path = process.sample(steps=4, samples=2)
        >>> path.shared, path.kl
        (-1, tensor([0., 0.], grad_fn=...))
    """

    std: float | Tensor = 0.1
    prior_mean: float | Tensor = 0.0
    prior_std: float | Tensor = 1.0

    def __post_init__(self) -> None:
        checked(self.std, "the std of w_0")
        checked(self.prior_std, "the prior_std of w_0")
        require_finite(self.prior_mean, "the prior_mean of w_0")

    @property
    def description(self) -> str:
        """The prior of w_0 in one line, which saved weights carry."""
        mean, std = (in_words(x if isinstance(x, Tensor) else float(x)) for x in (self.prior_mean, self.prior_std))
        return f"GaussianStart(prior_mean={mean}, prior_std={std})"


@final
class StartLaw(nn.Module):
    """The trained standard deviations of w_0, and its prior.

    Attributes:
        log_std: logarithm of the standard deviations, (d,).
    """

    prior_mean: Tensor
    prior_log_std: Tensor

    def __init__(self, start: GaussianStart, w0: Tensor) -> None:
        super().__init__()
        if not isinstance(start, GaussianStart):
            raise ValueError(f"expected start to be a GaussianStart, got {type(start).__name__}")
        parts = {name: torch.as_tensor(getattr(start, name)) for name in ("std", "prior_mean", "prior_std")}
        for name, value in parts.items():
            if value.shape not in ((), w0.shape):
                raise ValueError(f"expected {name} of shape () or {tuple(w0.shape)} like w0, got {tuple(value.shape)}")
        std, mean, prior_std = (value.detach().to(w0).expand_as(w0).clone() for value in parts.values())
        self.log_std = nn.Parameter(std.log())
        self.register_buffer("prior_mean", mean, persistent=False)
        self.register_buffer("prior_log_std", prior_std.log(), persistent=False)
        self.description = start.description

    def gaussian(self, w0: Tensor) -> Gaussian:
        """q and p of w_0."""
        return Gaussian(w0, self.log_std, self.prior_mean, self.prior_log_std)

    def extra_repr(self) -> str:
        return self.description


class Start(NamedTuple):
    """The start of some weight samples, and drift and prior given their random coefficients.

    Attributes:
        w0: (1, d) if all samples start alike and have the same coefficients, else (samples, d).
        drift, prior: f_q, and f_p with g.
        variables: law and value, (samples, n), of everything that was drawn.
        latents: values of the random coefficients, (samples, n) each.
        shared: last grid point at which samples may agree, -1 for none; None if nothing was drawn.
    """

    w0: Tensor
    drift: Field
    prior: Prior
    variables: Sequence[tuple[Gaussian, Tensor]] = ()
    latents: tuple[Tensor, ...] = ()
    shared: int | None = None

    @property
    def kl(self) -> Tensor:
        """The KL of everything that was drawn, ()."""
        return torch.stack([law.kl() for law, _ in self.variables]).sum()

    def log_ratio(self, detached: bool) -> Tensor | float:
        """log q / p of everything that was drawn, (samples,); if detached, minus the KL and only through the values."""
        total: Tensor | float = 0.0
        for law, value in self.variables:
            ratio = law.log_ratio(value, detached=detached)
            total = total + (ratio - law.kl() if detached else ratio)
        return total


def laws_of(process: WeightProcess) -> list[Gaussian]:
    """The laws of w_0, if it is random, and of the logarithms of the random coefficients."""
    first = [] if process.start is None else [process.start.gaussian(process.w0)]
    return [*first, *(latent.gaussian() for latent in process.prior.latents)]


def start_of(process: WeightProcess, normals: Tensor) -> Start:
    """The start given by standard normals, (samples, n) with n the number of random variables."""
    laws = laws_of(process)
    parts = torch.split(normals, [len(law.mean) for law in laws], -1)
    values = [law.at(z) for law, z in zip(laws, parts, strict=True)]
    random_w0 = process.start is not None
    logs = values[1:] if random_w0 else values
    draws = {latent: log.exp() for latent, log in zip(process.prior.latents, logs, strict=True)}
    prior = process.prior.given(draws) if draws else process.prior
    w0 = values[0] if random_w0 else process.w0.expand(len(normals), -1)
    variables, latents = list(zip(laws, values, strict=True)), tuple(draws.values())
    return Start(w0, _given(process.drift, process.prior, prior), prior, variables, latents, -1 if random_w0 else 0)


def _given(drift: Field, prior: Prior, given: Prior) -> Field:
    """The drift with the drawn coefficients if it is built on the prior; any other drift does not depend on them."""
    if given is prior:
        return drift
    if isinstance(drift, PriorPlus) and drift.prior is prior:
        return PriorPlus(given, drift.net)
    return given.drift if drift == prior.drift else drift
