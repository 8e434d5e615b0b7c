"""Independent Gaussians:  KL(N(m, s^2) || N(0, p^2)) = log(p / s) + (s^2 + m^2) / (2 p^2) - 1/2  per coordinate."""

import math

import torch
from torch import Tensor


def normal_like(x: Tensor, generator: torch.Generator | None) -> Tensor:
    """Independent N(0, 1) numbers with the shape, dtype and device of x."""
    return torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device)


def gaussian_kl(mean: Tensor, log_std: Tensor, prior_std: float) -> Tensor:
    """The KL divergence summed over coordinates, a scalar.

    Example: the KL of equal distributions is zero.
        >>> gaussian_kl(torch.zeros(3), torch.zeros(3), prior_std=1.0)
        tensor(0.)
    """
    ratio = ((2 * log_std).exp() + mean.square()) / (2 * prior_std**2)
    return (math.log(prior_std) - log_std + ratio - 0.5).sum()
