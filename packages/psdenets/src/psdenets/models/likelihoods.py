"""Likelihoods: from the outputs of a network to the NLL of a target, the predictive distribution, and the metrics.

    Categorical:   p(y | logits) = softmax(logits)_y,     NLL = -log p(y | logits),  in nats

Those of numbers are in `psdenets.models.regression`.

Metrics are computed from float64 probabilities, and this is the only place that computes them: in float32 a probability
underflows to 0 at a logit gap of 104, which makes its NLL infinite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, final, runtime_checkable

import torch
from torch import Tensor
from torch.nn import functional as F

from bnneval import accuracy, brier, ece, mean_probs, nll, predictive_entropy
from psdenets.errors import BadInput
from psdenets.references import made
from psdenets.registries import LIKELIHOODS, OF_NUMBERS
from sdeweights import NonFiniteState

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from psdenets.config import Config
    from psdenets.data.spec import ImageSpec


@runtime_checkable
class Likelihood(Protocol):
    """A likelihood p(target | outputs), for S weight samples, N images and K outputs per image."""

    @property
    def name(self) -> str:
        """The value of `--likelihood`."""
        ...

    def outputs(self, targets: int) -> int:
        """Number of outputs of the head, given the number of classes (or of regression targets)."""
        ...

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """NLL in nats of every weight sample and image, (S, N), used for training; outputs (S, N, K)."""
        ...

    def predictive(self, outputs: Tensor) -> Tensor:
        """Parameters of the predictive distribution of each weight sample, (S, N, ...), float64 on the CPU.

        Raises:
            NonFiniteState: if an output is NaN or infinite.
        """
        ...

    def metrics(self, predictive: NDArray[np.float64], targets: NDArray[Any]) -> dict[str, float]:
        """Metrics of the mixture over weight samples, by name."""
        ...


@final
@dataclass(frozen=True)
class Categorical:
    """The categorical likelihood: the outputs are C logits, and the predictive distribution is C probabilities."""

    name: str = "categorical"

    def outputs(self, targets: int) -> int:
        """One logit per class."""
        return targets

    def nll(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Cross-entropy of logits (S, N, C) and labels (N,)."""
        return F.cross_entropy(outputs.flatten(0, 1), targets.repeat(len(outputs)), reduction="none").view(
            outputs.shape[:2]
        )

    def predictive(self, outputs: Tensor) -> Tensor:
        """Probabilities (S, N, C), computed on the CPU because not every accelerator supports float64."""
        logits = outputs.detach().cpu().to(torch.float64)
        if not torch.isfinite(logits).all():
            raise NonFiniteState("expected finite logits, got NaN or infinity")
        return logits.softmax(-1)

    def metrics(self, predictive: NDArray[np.float64], targets: NDArray[Any]) -> dict[str, float]:
        """Accuracy, ECE, NLL, Brier score and mean entropy of the averaged probabilities; fractions and nats."""
        mean = mean_probs(predictive)
        return {
            "accuracy": accuracy(mean, targets),
            "ece": ece(mean, targets),
            "nll": nll(mean, targets),
            "brier": brier(mean, targets),
            "entropy": float(predictive_entropy(mean).mean()),
        }


CATEGORICAL: Likelihood = Categorical()


def likelihood_of(config: Config, spec: ImageSpec) -> Likelihood:
    """The likelihood given by `--likelihood`; raises BadInput if it is not one of the classes or numbers to predict."""
    options = config.system.prediction
    name, numbers = options.likelihood, spec.target is not None
    if numbers != (name in OF_NUMBERS) and name in ("categorical", *OF_NUMBERS):
        wanted = " or ".join(OF_NUMBERS) if numbers else "categorical"
        predicted = f"the numbers of --dataset {config.dataset}" if numbers else f"{len(spec.classes)} classes"
        raise BadInput(f"expected --likelihood {wanted} for {predicted}, got {name} of --model {config.model}")
    target = (spec.target, options.spread == "predicted") if name in OF_NUMBERS else ()
    likelihood = made(LIKELIHOODS, name, *target)
    if not isinstance(likelihood, Likelihood):
        raise BadInput(f"expected {name} to make a Likelihood, got {type(likelihood).__name__}: see its protocol")
    return likelihood


def outputs_of(config: Config, spec: ImageSpec) -> int:
    """Number of outputs of a network with this likelihood on these images."""
    return likelihood_of(config, spec).outputs(len(spec.classes) or 1)
