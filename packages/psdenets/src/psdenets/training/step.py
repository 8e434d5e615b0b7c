"""One training step as a module: (images, labels, generator, kappa) -> losses.

Everything from the images to the loss happens inside `forward`, so it can be wrapped in DistributedDataParallel.
"""

from typing import NamedTuple, final

import torch
from torch import Tensor, nn

from psdenets.models.base import ImageClassifier
from psdenets.models.likelihoods import Likelihood
from psdenets.models.psde import Classifier
from psdenets.training.micro_batches import in_pieces
from psdenets.training.objective import mean_nll, objective


class Losses(NamedTuple):
    """The loss, its unweighted parts (scalars), and the outputs (S, N, K) of the batch."""

    loss: Tensor
    nll: Tensor
    kl: Tensor
    head_kl: Tensor
    logits: Tensor


@final
class TrainingStep(nn.Module):
    """Draw weights, apply them to a batch, and compute its loss.

    Args:
        model: the network to train.
        likelihood: the likelihood of the labels given the outputs.
        n_train: number of training images.
        samples: weight samples per step.
        of: "elbo" or "mixture", see `psdenets.training.objective`.
        class_weights: weight of the NLL of each class, (classes,); by default 1.
        piece: images per micro-batch; by default the whole batch. Only batches of a PSDE-BNN are split.
    """

    def __init__(
        self,
        model: ImageClassifier,
        likelihood: Likelihood,
        n_train: int,
        samples: int = 1,
        piece: int | None = None,
        of: str = "elbo",
        class_weights: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.class_weights = class_weights
        self.model, self.likelihood = model, likelihood
        self.n_train, self.samples, self.piece, self.of = n_train, samples, piece, of

    def forward(self, images: Tensor, labels: Tensor, generator: torch.Generator | None, kappa: float) -> Losses:
        """Losses of a batch: images (N, C, H, W) in [0, 1], labels (N,)."""
        weights = self.model.draw(self.samples, generator)
        if isinstance(self.model, Classifier) and self.piece is not None and self.piece < len(images):
            logits, nll = in_pieces(self.model, self._nll, images, labels, weights, self.piece)
        else:
            logits = self.model.logits(images, weights)
            nll = self._nll(logits, labels)
        action = self.model.action(weights)
        return Losses(*objective(nll, weights.kl, self.model.head_kl(), kappa, self.n_train, action), logits)

    def _nll(self, logits: Tensor, labels: Tensor) -> Tensor:
        weights = 1.0 if self.class_weights is None else self.class_weights[labels]
        return mean_nll(self.likelihood.nll(logits, labels), self.of, weights)
