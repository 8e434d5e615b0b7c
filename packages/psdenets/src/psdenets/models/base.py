"""The interface of every classifier, PSDE-BNN or baseline.

    p(y | x) = E_w softmax(logits(x, w)),     w ~ q, or a single w if the weights are deterministic

Weights do not depend on images, so prediction takes two steps: `draw` samples weights, and `logits` applies them.
`forward` and `predict_proba` do both.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput
from psdenets.models.likelihoods import likelihood_of

_MOST = 10**6  # weight samples; more would take days, and are a mistake


class Drawn(Protocol):
    """S samples of the weights."""

    @property
    def kl(self) -> Tensor:
        """KL from posterior to prior, one estimate per sample, (S,); the objective weights it by 2 kappa."""
        ...


class Noiseless(NamedTuple):
    """S samples of deterministic weights; their KL is zero."""

    kl: Tensor


def require_count(value: object, name: str) -> None:
    """Raise `BadInput` unless the value is a whole number from 1 to a million."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST:
        raise BadInput(f"expected {name} to be a whole number from 1 to {_MOST:,}, got {value!r}")


def require_generator(value: object) -> None:
    """Raise `BadInput` unless the value is a `torch.Generator` or None."""
    if value is not None and not isinstance(value, torch.Generator):
        raise BadInput(f"expected a torch.Generator, got {type(value).__name__}")


class ImageClassifier(nn.Module, ABC):
    """Images (N, C, H, W) in [0, 1] -> class probabilities; `spec` holds the size and classes of the images."""

    mean: Tensor
    std: Tensor

    def __init__(self, config: Config, spec: ImageSpec) -> None:
        super().__init__()
        self.config, self.spec = config, spec
        self.likelihood = likelihood_of(config, spec)
        self.register_buffer("mean", torch.tensor(spec.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(spec.std)[:, None, None], persistent=False)

    @abstractmethod
    def draw(self, samples: int = 1, generator: torch.Generator | None = None) -> Any:
        """Sample weights and return a `Drawn`. Sample i depends only on the state of the generator and on i."""

    @abstractmethod
    def logits(self, x: Tensor, weights: Any) -> Tensor:
        """Images (N, C, H, W) in [0, 1] -> logits (S, N, classes)."""

    @abstractmethod
    def parameter_counts(self) -> dict[str, int]:
        """Number of trainable parameters by kind."""

    def mean_weights(self) -> Any:
        """One sample with the noise switched off; None if the system has no such weights."""
        return None

    def draw_in_groups(self, samples: int, generator: torch.Generator | None = None) -> Iterator[Any]:
        """Yield the samples of `draw` in groups that fit in memory."""
        yield self.draw(samples, generator)

    def shared(self, x: Tensor, weights: Any) -> Any:  # noqa: ARG002 - nothing is shared by default
        """The part of the forward pass that all weight samples share; it is the same for every group of samples."""
        return x

    def rest(self, state: Any, weights: Any) -> Tensor:
        """The rest of the forward pass, from the result of `shared` to logits (S, N, classes)."""
        return self.logits(state, weights)

    def shared_views(self, x: Tensor, weights: Any) -> list[Any]:
        """`shared` of the images and, with `--mirror`, of their mirror images."""
        views = (x, x.flip(-1)) if self.config.system.prediction.mirror else (x,)
        return [self.shared(view, weights) for view in views]

    def over_views(self, states: Sequence[Any], weights: Any) -> Tensor:
        """The predictive distribution of each weight sample, (S, N, ...), averaged over the views of an image."""
        return torch.stack([self.likelihood.predictive(self.rest(state, weights)) for state in states]).mean(0)

    def extra_repr(self) -> str:
        """System, image size and number of classes."""
        outputs = f"{len(self.spec.classes)} classes" if self.spec.target is None else "a number"
        return f"{self.config.model}, {self.spec.things} {self.spec.size}, {outputs}"

    def head_kl(self) -> Tensor:
        """KL of a Gaussian last layer, a scalar; not included in `Drawn.kl`, and not weighted by kappa."""
        return self.mean.new_zeros(())

    def action(self, weights: Any) -> Tensor:
        """Price of the deterministic part of the weights under their prior, (S,); weighted like the KL."""
        return torch.zeros_like(weights.kl)

    def adapt(self, x: Tensor) -> None:
        """Set what is computed from training images before training, rather than trained."""

    def normalised(self, x: Tensor) -> Tensor:
        """(x - mean) / std; raise BadInput if x is not a batch of images in [0, 1], or of rows, of the right size."""
        s = self.spec
        if not isinstance(x, Tensor):
            raise BadInput(f"expected a tensor of {s.things}, got {type(x).__name__}")
        if x.ndim != 4 or x.shape[1:] != (s.channels, s.height, s.width):
            shape = f"(N, {s.channels}, {s.height}, {s.width})"
            raise BadInput(f"expected {s.things} of shape {shape}, got {tuple(x.shape)}")
        if not x.is_floating_point() or len(x) == 0:
            raise BadInput(f"expected at least one image of floating-point numbers, got {len(x)} of {x.dtype}")
        low, high = torch.aminmax(x)
        if s.columns and not (torch.isfinite(low) and torch.isfinite(high)):
            raise BadInput("expected rows of finite numbers, got NaN or infinity")
        if not s.columns and not (low >= 0 and high <= 1):
            raise BadInput(f"expected images in [0, 1], got values from {float(low):g} to {float(high):g}")
        return (x - self.mean) / self.std

    def forward(self, x: Tensor, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """(logits (N, classes), kl) of one weight sample."""
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

        With `return_samples`, returns those of each sample, (S, N, classes). The average is over probabilities, as in
        the definition of p(y | x), not over logits or log-probabilities.
        """
        if self.spec.target is not None:
            raise BadInput(
                "expected classes for predict_proba, got a network that predicts a number: use predict_batches"
            )
        require_count(samples, "samples")
        require_count(batch_size, "batch_size")
        if not isinstance(x, Tensor):
            raise BadInput(f"expected a tensor of {self.spec.things}, got {type(x).__name__}")
        probs, _ = self.predict_batches(torch.split(x, batch_size), samples, generator)
        return probs if return_samples else probs.mean(0)

    @torch.no_grad()
    def predict_stream(self, batches: Iterable[Tensor], samples: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield the predictions (S, N, ...) of one batch after the other, with the same weight samples.

        Samples that do not fit in memory at once are drawn again for every batch.
        """
        state = generator.get_state()
        drawn: list[Any] = []  # all samples, if they fit
        for x in batches:
            generator.set_state(state)
            states: list[Any] = []
            found = []
            for weights in drawn or self.draw_in_groups(samples, generator):
                states = states or self.shared_views(x, weights)
                found.append(self.over_views(states, weights))
                drawn = [weights] if len(weights.kl) == samples else []
            yield torch.cat(found)

    @torch.no_grad()
    def predict_batches(
        self,
        batches: Sequence[Tensor],
        samples: int,
        generator: torch.Generator | None = None,
        after_batch: Callable[[], None] = lambda: None,
    ) -> tuple[Tensor, Tensor]:
        """Probabilities (S, N, classes) and kl (S,) of many images with the same weight samples, in bounded memory.

        For numbers, location and scale (S, N, 2) instead of probabilities.

        The part that all samples share is computed once per batch, for any number of groups. Probabilities are float64
        on the CPU. With `--mirror`, those of a sample are its average over an image and its mirror image.
        """
        require_count(samples, "samples")
        require_generator(generator)
        if len(batches) == 0:
            raise BadInput("expected at least one batch, got an empty sequence")
        states: list[list[Any]] = []
        probs, kl = [], []
        for weights in self.draw_in_groups(samples, generator):
            group = []
            kl.append(weights.kl)
            for b, x in enumerate(batches):
                shared = states[b] if b < len(states) else self.shared_views(x, weights)
                group.append(self.over_views(shared, weights))
                if len(states) <= b and len(kl[-1]) < samples:
                    states.append(shared)
                after_batch()
            probs.append(torch.cat(group, dim=1))
        return torch.cat(probs), torch.cat(kl)
