"""Gaussian random variables with a Gaussian prior, all coordinates independent:  q = N(m, s^2),  p = N(m_p, s_p^2).

KL(q || p)    sum_i  1/2 ((s_i / s_p,i)^2 - 1) - log (s_i / s_p,i) + 1/2 ((m_i - m_p,i) / s_p,i)^2
log q / p     sum_i  1/2 (z_p,i^2 - z_i^2) - log (s_i / s_p,i),     z = (x - m) / s,  z_p = (x - m_p) / s_p
"""

from typing import NamedTuple

import torch
from torch import Tensor

_HALF = 0.5  # the 1/2 of both formulas


class Gaussian(NamedTuple):
    """The posterior q and the prior p of n independent normal variables.

    Attributes:
        mean, log_std: m and log s of q, (n,).
        prior_mean, prior_log_std: m_p and log s_p of p, (n,).

    Example: shifted by one standard deviation, the KL is 1/2 per coordinate.
        >>> zero = torch.zeros(2)
        >>> Gaussian(zero + 1, zero, zero, zero).kl()
        tensor(1.)
    """

    mean: Tensor
    log_std: Tensor
    prior_mean: Tensor
    prior_log_std: Tensor

    def at(self, z: Tensor) -> Tensor:
        """m + s z, from standard normals z of shape (samples, n)."""
        return self.mean + self.log_std.exp() * z

    def kl(self) -> Tensor:
        """KL(q || p): (). It is exactly 0 if both are equal."""
        log_scale = self.log_std - self.prior_log_std
        shift = (self.mean - self.prior_mean) / self.prior_log_std.exp()
        return (_HALF * (torch.expm1(2 * log_scale) + shift * shift) - log_scale).sum()

    def log_ratio(self, x: Tensor, *, detached: bool = False) -> Tensor:
        """log q(x) / p(x), (samples, n) -> (samples,); with `detached`, gradients flow only through x."""
        mean, log_std = (self.mean.detach(), self.log_std.detach()) if detached else (self.mean, self.log_std)
        z, z_p = (x - mean) / log_std.exp(), (x - self.prior_mean) / self.prior_log_std.exp()
        return (_HALF * (z_p * z_p - z * z) - (log_std - self.prior_log_std)).sum(-1)
