"""A small network whose weights are drawn from the exact posterior, not from an approximating family.

    log p(w | D) = sum_n log softmax(y(x_n, w))[label_n] + log N(w; 0, prior_std^2 I) - log p(D)
    y(x, w) = W2 tanh(W1 x / sqrt(p) + b1) / sqrt(H) + b2,     p pixels, H hidden units

Every weight and bias has the prior N(0, prior_std^2), because the network divides by the square root of the fan-in. So
prior_std is of order 1, and all weights have the same scale. A gradient takes a pass over all images, so data sets must
be small.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor
from torch.nn import functional as F

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput
from psdenets.models.base import ImageClassifier
from psdenets.models.hmc.diagnostics import Mixing, mixing
from psdenets.models.hmc.hamiltonian import Chain, LogDensity


class Layers(NamedTuple):
    """W1 (..., H, p), b1 (..., H), W2 (..., C, H), b2 (..., C)."""

    W1: Tensor
    b1: Tensor
    W2: Tensor
    b2: Tensor

    def flat(self) -> Tensor:
        """All layers as one vector w (..., d)."""
        return torch.cat([self.W1.flatten(-2), self.b1, self.W2.flatten(-2), self.b2], dim=-1)


@final
@dataclass(frozen=True)
class Perceptron:
    """y(x, w) = W2 tanh(W1 x / sqrt(p) + b1) / sqrt(H) + b2, a pure function of a flat w.

    Example:
        >>> Perceptron(inputs=64, hidden=10, classes=10).size
        760
    """

    inputs: int
    hidden: int
    classes: int

    @property
    def size(self) -> int:
        """d, the number of weights and biases."""
        return sum(map(math.prod, self._shapes))

    def layers(self, w: Tensor) -> Layers:
        """The inverse of `Layers.flat`, (..., d) -> layers."""
        parts = torch.split(w, [math.prod(shape) for shape in self._shapes], dim=-1)
        return Layers(*(p.reshape(*w.shape[:-1], *shape) for p, shape in zip(parts, self._shapes, strict=True)))

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        """Logits (..., N, C) of images (N, p) under weights (..., d)."""
        W1, b1, W2, b2 = self.layers(w)
        h = torch.tanh(W1 / math.sqrt(self.inputs) @ x.mT + b1[..., None])
        return (W2 / math.sqrt(self.hidden) @ h + b2[..., None]).mT

    @property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.hidden, self.inputs), (self.hidden,), (self.classes, self.hidden), (self.classes,))


def log_posterior(w: Tensor, x: Tensor, labels: Tensor, network: Perceptron, prior_std: float) -> Tensor:
    """sum_n log softmax(y(x_n, w))[label_n] + log N(w; 0, prior_std^2 I), for w (d,) and images x (N, p); a scalar."""
    log_likelihood = -F.cross_entropy(network(w, x).mT[None], labels[None], reduction="sum")  # (1, C, N): as computed
    log_prior = -0.5 * (w / prior_std).square().sum() - len(w) * math.log(prior_std * math.sqrt(2 * math.pi))
    return log_likelihood + log_prior


class Draws(NamedTuple):
    """Weights (S, d) of S draws of the posterior."""

    weights: Tensor

    @property
    def kl(self) -> Tensor:
        """Zeros (S,): there is no variational posterior, so there is no KL."""
        return self.weights.new_zeros(len(self.weights))


@final
class HMC(ImageClassifier):
    """A perceptron with `width` units whose weight samples are posterior draws, zero until `keep` stores some."""

    draws: Tensor

    def __init__(self, config: Config, spec: ImageSpec) -> None:
        super().__init__(config, spec)
        hmc = config.system.hmc
        self.network = Perceptron(spec.channels * spec.height * spec.width, config.system.net.width, len(spec.classes))
        self.register_buffer("draws", torch.zeros(hmc.chains, hmc.draws, self.network.size, dtype=torch.float64))

    def keep(self, chains: Sequence[Chain]) -> None:
        """Use the draws of these chains for prediction."""
        self.draws.copy_(torch.stack([chain.draws for chain in chains]))

    def draw(self, samples: int = 1, generator: torch.Generator | None = None) -> Draws:  # noqa: ARG002 - drawn before
        """Stored posterior draws, spread evenly over chains and time.

        Sample i comes from chain i mod chains. Positions within a chain are in bit-reversed order: 0, 1/2, 1/4, 3/4 of
        the chain, and so on. So the first S samples are spread out for every S, and sample i depends only on i.
        """
        chains, times, _ = self.draws.shape
        if not 1 <= samples <= chains * times:
            raise BadInput(f"expected 1 to {chains * times} samples, {times} draws of {chains} chains, got {samples}")
        bits = (times - 1).bit_length()
        order = sorted(range(times), key=lambda t: f"{t:0{bits}b}"[::-1])
        pairs = [(i % chains, order[i // chains]) for i in range(samples)]
        return Draws(torch.stack([self.draws[chain, t] for chain, t in pairs]))

    def logits(self, x: Tensor, weights: Draws) -> Tensor:
        return self.network(weights.weights, self.features(x))

    def features(self, x: Tensor) -> Tensor:
        """Normalised pixels (N, p) in the dtype of the draws, stored by column: gradients are a third faster."""
        return self.normalised(x.to(self.draws.dtype)).flatten(1).mT.contiguous().mT

    def parameter_counts(self) -> dict[str, int]:
        return {"weights": self.network.size}

    def log_density(self, x: Tensor, labels: Tensor) -> LogDensity:
        """w -> log posterior of w given these images, up to log p(D)."""
        features, prior_std = self.features(x), self.config.system.hmc.prior_std
        return lambda w: log_posterior(w, features, labels, self.network, prior_std)

    @torch.no_grad()
    def mixing(self, x: Tensor, labels: Tensor, held_out: Tensor) -> dict[str, Mixing]:
        """Mixing of the training log posterior, of log-probabilities of held-out images, and of the weights.

        The first two are in function space and must mix. The weights need not: see `diagnostics`.
        """
        log_density, features = self.log_density(x, labels), self.features(held_out)
        shape = (*self.draws.shape[:2], -1)
        values = [log_density(w) for w in self.draws.flatten(0, 1)]
        log_probs = [self.network(w, features).log_softmax(-1) for w in self.draws.flatten(0, 1)]
        return {
            "log_posterior": mixing(torch.stack(values).reshape(shape)),
            "log_probs": mixing(torch.stack(log_probs).reshape(shape)),
            "weights": mixing(self.draws),
        }
