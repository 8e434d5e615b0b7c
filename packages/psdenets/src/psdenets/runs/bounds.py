"""Lower bounds on the log evidence of a trained network: log p(labels | images) under its prior, see sdeweights.bounds.

The images are those the network was trained on. Weights outside the weight processes are point estimates, and part of
the model.
"""

from typing import NamedTuple

import torch

from psdenets.data import Images
from psdenets.errors import BadInput
from psdenets.models.base import ImageClassifier
from psdenets.models.psde import Classifier
from psdenets.nn.heads import DeterministicHead, FixedHead
from psdenets.runs.predictions import Batches
from sdeweights import importance_bound


class EvidenceBounds(NamedTuple):
    """Bounds on the log evidence in nats, from `samples` weight samples and `images` images."""

    elbo: float
    importance: float
    samples: int
    images: int

    def __str__(self) -> str:
        n = self.images
        return (
            f"log evidence of {n} training images from {self.samples} weight samples, per image: "
            f"ELBO {self.elbo / n:.4f}, importance-weighted bound {self.importance / n:.4f} nats"
        )


@torch.no_grad()
def evidence_bounds(model: ImageClassifier, images: Images, samples: int, generator: torch.Generator) -> EvidenceBounds:
    """ELBO and importance-weighted bound of a PSDE-BNN with a deterministic head; raises BadInput for other systems."""
    if not isinstance(model, Classifier) or not isinstance(model.head, DeterministicHead | FixedHead):
        raise BadInput(
            "expected --bounds with a network of --model psde or sde-bnn and a deterministic head, got another"
        )
    likelihoods, ratios, kls = [], [], []
    batches = Batches(images.pixels, model.mean.device)
    for weights in model.draw_in_groups(samples, generator):
        total = torch.zeros(len(weights.kl), dtype=torch.float64)
        for x, labels in zip(batches, torch.split(images.labels, batches.size), strict=True):
            nll = model.likelihood.nll(model.logits(x, weights).double(), labels.to(x.device))
            total -= nll.sum(-1).cpu()
        likelihoods.append(total)
        ratios.append(torch.stack([path.log_ratio.double().cpu() for path in weights.paths]).sum(0))
        kls.append(weights.kl.double().cpu())
    likelihood, ratio = torch.cat(likelihoods), torch.cat(ratios)
    elbo = float((likelihood - torch.cat(kls)).mean())
    return EvidenceBounds(elbo, float(importance_bound(likelihood, ratio)), samples, len(images))
