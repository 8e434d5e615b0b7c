"""The objective, eq. (12), a mean over training images:

    loss = mean NLL + kappa / n_train * int |u|^2 + KL_head / n_train,     int |u|^2 = 2 * (1/2 int |u|^2) = 2 KL

n_train * loss is the negative ELBO exactly at kappa = 1/2. At any other kappa the KL is weighted by the temperature
2 kappa; so is the KL of a mean-field baseline.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from psdenets.models.likelihoods import CATEGORICAL


class Loss(NamedTuple):
    """The number to minimise and its parts, all scalars: KLs without any factor."""

    loss: Tensor
    nll: Tensor
    kl: Tensor
    head_kl: Tensor


def objective(logits: Tensor, labels: Tensor, kl: Tensor, head_kl: Tensor, kappa: float, n_train: int) -> Loss:
    """Loss of a batch.

    Args:
        logits: (S, N, C).
        labels: (N,).
        kl: 1/2 int |u|^2 of each sample, or another KL of all weights, (S,).
        head_kl: KL of the head.
        kappa: weight of int |u|^2.
        n_train: number of training images.

    Example: at kappa = 1/2 a KL of 3 over 100 images adds 3 / 100.
    """
    return with_kl(mean_nll(logits, labels), kl, head_kl, kappa, n_train)


def mean_nll(logits: Tensor, labels: Tensor) -> Tensor:
    """Over images and samples, logits (S, N, C) and labels (N,)."""
    return CATEGORICAL.mean_nll(logits, labels)


def with_kl(nll: Tensor, kl: Tensor, head_kl: Tensor, kappa: float, n_train: int) -> Loss:
    """The loss of a batch whose mean NLL is known."""
    mean_kl = kl.mean()
    return Loss(nll + (2 * kappa * mean_kl + head_kl) / n_train, nll, mean_kl, head_kl)


def kappa_at(epoch: float, kappa: float, warmup: float) -> float:
    """kappa after so many epochs: rises linearly from 0 over the first ``warmup`` of them."""
    return kappa * min(1.0, epoch / warmup) if warmup > 0 else kappa
