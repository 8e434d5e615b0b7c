"""The training objective, eq. (12), per training image:

    loss = mean NLL + kappa / n_train * int |u|^2 + KL_head / n_train,     int |u|^2 = 2 * (1/2 int |u|^2) = 2 KL

The NLL of an image is the mean over S weight samples ("elbo"), or that of the mixture of all samples, which predicts
("mixture"): -log 1/S sum_s p(y | x, w_s), the PAC^m bound of Morningstar et al. (2022). The mixture does not punish
samples for disagreeing about an image; it bounds the predictive risk, and n_train * loss is no longer an ELBO.

With `--deterministic-prior map`, the action of the deterministic part under the prior is added to the KL: the integral
of |u|^2 then runs over the whole depth and all weights.

With `--balance`, the NLL of an image of class c is multiplied by w_c = n_train / (C n_c), with n_c training images of
this class among C classes, so all classes have the same share of the loss and the mean weight is 1.

At kappa = 1/2, n_train * loss is exactly the negative ELBO. At any other kappa, the path KL (or the KL of a mean-field
baseline) is weighted by the temperature 2 kappa. The KL of a mean-field head always has the weight 1 / n_train, as in
the ELBO; the published code weights it by kappa / n_train.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from psdenets.data import Images
    from psdenets.data.spec import ImageSpec


class Loss(NamedTuple):
    """The loss and its parts, all scalars; the KLs are unweighted."""

    loss: Tensor
    nll: Tensor
    kl: Tensor
    head_kl: Tensor


def class_counts(images: Images, spec: ImageSpec) -> list[int]:
    """Number of images of every class."""
    counts: list[int] = images.labels.bincount(minlength=len(spec.classes)).tolist()
    return counts


def class_weights(counts: Sequence[int]) -> Tensor:
    """Weights of the NLL with `--balance`, w_c = n / (C n_c): the n_c images of each of C classes sum to n / C.

    Example: 30 images of one class and 10 of another.
        >>> class_weights([30, 10])
        tensor([0.6667, 2.0000])
    """
    found = torch.tensor(counts, dtype=torch.float64)
    return (found.sum() / (len(counts) * found)).float()


def mean_nll(nll: Tensor, of: str, weights: float | Tensor = 1.0) -> Tensor:
    """Mean NLL over images from that of every sample and image, (S, N): `of` each sample (elbo), or of the mixture.

    Each image counts with its weight, a number or (N,).

    Example: one sample gives the label the probability 0.9, the other 0.1; their mixture 0.5.
        >>> nll = -Tensor([[0.9], [0.1]]).log()
        >>> [round(mean_nll(nll, of).item(), 3) for of in ("elbo", "mixture")]
        [1.204, 0.693]
    """
    return (weights * nll).mean() if of == "elbo" else (weights * (math.log(len(nll)) - (-nll).logsumexp(0))).mean()


def objective(
    nll: Tensor, kl: Tensor, head_kl: Tensor, kappa: float, n_train: int, action: float | Tensor = 0.0
) -> Loss:
    """Loss of a batch from its mean NLL and its KLs.

    Args:
        nll: mean NLL over samples and images.
        kl: 1/2 int |u|^2 of each sample, or the KL of a mean-field baseline, (S,).
        head_kl: KL of the head, weighted by 1 / n_train for every kappa.
        kappa: weight of int |u|^2.
        n_train: number of training images.
        action: price of the deterministic part of the weights, a number or (S,); weighted like the KL.

    Example: over 100 images a path KL of 3 adds 2 * kappa * 3 / 100, and a head KL of 3 adds 3 / 100.
    """
    mean_kl = kl.mean()
    return Loss(nll + (2 * kappa * (kl + action).mean() + head_kl) / n_train, nll, mean_kl, head_kl)


def kappa_at(epoch: float, kappa: float, warmup: float) -> float:
    """kappa after `epoch` epochs: it rises linearly from 0 over the first `warmup` epochs."""
    return kappa * min(1.0, epoch / warmup) if warmup > 0 else kappa
