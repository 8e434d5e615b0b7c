"""What every classifier can do, PSDE-BNN or baseline: draw weights, carry images through them, average probabilities.

    p(y | x) = E_w softmax(logits(x, w)),     w ~ q or, without a posterior, w itself

Weights do not depend on images. So a classifier is used in two steps: ``draw`` samples the weights, ``logits`` applies
them; ``forward`` and ``predict_proba`` do both.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from psdenets.errors import BadInput
from psdenets.models.likelihoods import CATEGORICAL

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.data.spec import ImageSpec


class Drawn(Protocol):
    """Weights of S samples."""

    @property
    def kl(self) -> Tensor:
        """KL of the posterior from the prior as each sample sees it, (S,); the objective weights it by 2 kappa."""
        ...


class ImageClassifier(nn.Module, ABC):
    """Images (N, C, H, W) in [0, 1] -> class probabilities.

    Args:
        config: the network's part of it is used.
        spec: size and classes of the images.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: Config, spec: ImageSpec) -> None:
        super().__init__()
        self.config, self.spec = config, spec
        self.likelihood = CATEGORICAL
        self.register_buffer("mean", torch.tensor(spec.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(spec.std)[:, None, None], persistent=False)

    @abstractmethod
    def draw(self, samples: int = 1, generator: torch.Generator | None = None) -> Any:
        """Weights of so many samples, a `Drawn`. Sample i depends on the generator's state and on i alone."""

    @abstractmethod
    def logits(self, x: Tensor, weights: Any) -> Tensor:
        """Images (N, C, H, W) in [0, 1] -> logits (S, N, classes)."""

    @abstractmethod
    def parameter_counts(self) -> dict[str, int]:
        """Number of trainable parameters by kind."""

    def draw_in_groups(self, samples: int, generator: torch.Generator | None = None) -> Iterator[Any]:
        """The weights that ``draw`` gives, in groups of samples that fit into memory."""
        yield self.draw(samples, generator)

    def shared(self, x: Tensor, weights: Any) -> Any:  # noqa: ARG002 - where samples have nothing in common
        """What all samples have in common of the way from images to logits: it depends on no group in particular."""
        return x

    def rest(self, state: Any, weights: Any) -> Tensor:
        """The rest of that way, to logits (S, N, classes)."""
        return self.logits(state, weights)

    def head_kl(self) -> Tensor:
        """KL of what is Gaussian beside the drawn KL, a scalar; never tempered."""
        return self.mean.new_zeros(())

    def normalised(self, x: Tensor) -> Tensor:
        """(x - mean) / std, after a check of x."""
        self._check(x)
        return (x - self.mean) / self.std

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """(logits (N, classes), kl) of one sample of the weights."""
        weights = self.draw(1, generator)
        return self.logits(x, weights)[0], weights.kl[0] + self.head_kl()

    @torch.no_grad()
    def predict_proba(
        self,
        x: Tensor,
        samples: int = 10,
        generator: torch.Generator | None = None,
        *,
        return_samples: bool = False,
        batch_size: int = 500,
    ) -> Tensor:
        """Class probabilities averaged over weight samples, (N, classes); float64 on the CPU.

        With `return_samples` those of each sample, (S, N, classes).

        Probabilities are averaged, not logits or log-probabilities: only their average is a distribution that the
        posterior predicts.
        """
        probs, _ = self.predict_batches(torch.split(x, batch_size), samples, generator)
        return probs if return_samples else probs.mean(0)

    @torch.no_grad()
    def predict_batches(
        self,
        batches: Sequence[Tensor],
        samples: int,
        generator: torch.Generator | None = None,
        after_batch: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, Tensor]:
        """(probabilities (S, N, classes), kl (S,)) of many images under the same samples, in bounded memory.

        What the samples share is computed once per batch, whatever the number of groups. Probabilities are float64
        on the CPU.
        """
        states: list[Any] = []
        probs, kl = [], []
        for weights in self.draw_in_groups(samples, generator):
            group = []
            for b, x in enumerate(batches):
                state = states[b] if b < len(states) else self.shared(x, weights)
                out = self.rest(state, weights)
                group.append(self.likelihood.predictive(out))
                if len(states) <= b and len(weights.kl) < samples:
                    states.append(state)
                after_batch()
            probs.append(torch.cat(group, dim=1))
            kl.append(weights.kl)
        return torch.cat(probs), torch.cat(kl)

    def _check(self, x: Tensor) -> None:
        s = self.spec
        if x.ndim != 4 or x.shape[1:] != (s.channels, s.height, s.width):
            raise BadInput(f"expected images of shape (N, {s.channels}, {s.height}, {s.width}), got {tuple(x.shape)}")
        if not x.is_floating_point() or len(x) == 0:
            raise BadInput(f"expected one or more images as floating-point numbers, got {len(x)} of {x.dtype}")
        low, high = torch.aminmax(x)
        if not (low >= 0 and high <= 1):
            raise BadInput(f"expected images in [0, 1], got values from {float(low):g} to {float(high):g}")
