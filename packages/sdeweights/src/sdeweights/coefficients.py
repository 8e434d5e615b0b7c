"""Coefficients of a prior, such as theta and sigma: fixed, trained, or random with one value per weight sample.

Positive     exp(l)                          l is trained
LogNormal    exp(x),  x ~ N(m, s^2)          m and s are trained; the hyper-prior is  x ~ N(log median, spread^2)
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from numbers import Real
from typing import final

import torch
from torch import Tensor, nn

from sdeweights.gaussian import Gaussian


@final
class Positive(nn.Module):
    """A trained coefficient that stays positive: exp(l), where l is the parameter.

    Prior and posterior share it, since the drift `PriorPlus(prior, net)` holds the same prior.

    Args:
        value: initial value, a positive number or one per coordinate, (d,).

    Example:
        >>> prior = OrnsteinUhlenbeck(sigma=Positive(0.25))
        >>> prior, sum(p.numel() for p in prior.parameters())
        (OrnsteinUhlenbeck(theta=1, mu=0, sigma=Positive(0.25)), 1)
    """

    def __init__(self, value: float | Tensor) -> None:
        super().__init__()
        self.log = nn.Parameter(checked(value, "the value of Positive").log())

    def forward(self) -> Tensor:
        """The value, () or (d,)."""
        return self.log.exp()

    def __repr__(self) -> str:
        value = self.log.detach().exp()
        return f"Positive({float(value):g})" if value.ndim == 0 else f"Positive(<{len(value)} values>)"


@final
class LogNormal(nn.Module):
    """A random coefficient: every weight sample draws its own value, which prior and posterior share.

    p: log x ~ N(log median, spread^2), and q: log x ~ N(m, s^2) with trained m and s that start at those of p. Given x,
    the KL of a path is the usual one. Its mean over x, plus KL(q || p), is the KL of the pair (x, path). Code that
    draws nothing uses the median of q.

    Args:
        median: median of the hyper-prior, a positive number or one per coordinate, (d,).
        spread: standard deviation of the logarithm, a positive number or (d,).

    Example:
        >>> prior = OrnsteinUhlenbeck(theta=LogNormal(1.0, 0.5), sigma=0.2)
        >>> process = WeightProcess(torch.ones(3), PriorPlus(prior, bottleneck(3, Cut.full())), prior, Cut.full())
        >>> path = process.sample(steps=4, samples=2)
        >>> path.latents[0].shape, path.kl_start
        (torch.Size([2, 1]), tensor(0., grad_fn=...))
    """

    prior_mean: Tensor
    prior_log_std: Tensor

    def __init__(self, median: float | Tensor = 1.0, spread: float | Tensor = 0.5) -> None:
        super().__init__()
        median, spread = checked(median, "the median of LogNormal"), checked(spread, "the spread of LogNormal")
        if spread.ndim and spread.shape != median.shape:
            raise ValueError(f"expected a spread of shape () or {tuple(median.shape)}, got {tuple(spread.shape)}")
        mean = median.log()
        log_std = spread.to(mean).log().expand_as(mean)
        self.mean, self.log_std = nn.Parameter(mean.clone()), nn.Parameter(log_std.clone())
        self.description = f"LogNormal(median={in_words(median)}, spread={in_words(spread)})"
        self.register_buffer("prior_mean", mean, persistent=False)
        self.register_buffer("prior_log_std", log_std.clone(), persistent=False)

    def forward(self) -> Tensor:
        """The median of q, () or (d,)."""
        return self.mean.exp()

    def gaussian(self) -> Gaussian:
        """q and p of the logarithm, as vectors."""
        return Gaussian(*(x.reshape(-1) for x in (self.mean, self.log_std, self.prior_mean, self.prior_log_std)))

    def __repr__(self) -> str:
        return self.description


Value = float | Tensor | Positive | LogNormal
Draws = Mapping[LogNormal, Tensor]  # the value of each random coefficient in every sample, (samples, n)


def require_finite(value: object, name: str) -> None:
    """Raise ValueError unless the value is a number or a tensor without NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, Real | Tensor):
        raise ValueError(f"expected {name} to be a number or a tensor of shape (d,), got {type(value).__name__}")
    tensor = torch.as_tensor(value).detach()
    bad = ~torch.isfinite(tensor)
    if bool(bad.any()):
        raise ValueError(f"expected {name} to be finite, got {float(tensor[bad][0]):g}")


def checked(value: object, name: str) -> Tensor:
    """A positive number or one per coordinate as a tensor, () or (d,); raises ValueError for anything else."""
    require_finite(value, name)
    tensor = value.detach().clone() if isinstance(value, Tensor) else torch.tensor(float(value))  # type: ignore[arg-type]
    if tensor.ndim > 1 or not tensor.is_floating_point() or tensor.numel() == 0:
        raise ValueError(f"expected {name} of shape () or (d,), got {tuple(tensor.shape)} in {tensor.dtype}")
    if bool((tensor <= 0).any()):
        raise ValueError(f"expected {name} to be positive, got {float(tensor.min()):g}")
    return tensor


def in_words(part: object) -> str:
    """A coefficient or a function, on one line; the values of trained parameters are left out."""
    if isinstance(part, Positive):
        return f"<{part.log.numel()} positive, trainable>"
    if isinstance(part, LogNormal):
        return part.description
    if isinstance(part, nn.Parameter):
        return f"<{part.numel()} trainable>"
    if isinstance(part, Tensor) and part.numel() > 1:
        return f"<{part.numel()} values, {checksum(part)}>"
    if isinstance(part, Tensor | float):
        return f"{float(part):.7g}"
    return str(getattr(part, "__qualname__", type(part).__qualname__))


def checksum(values: Tensor) -> str:
    """A checksum of integers, or of numbers rounded to float32, so it does not depend on their device and precision."""
    exact = values.detach().cpu().float() if values.is_floating_point() else values.cpu()
    return f"{zlib.crc32(exact.contiguous().numpy().tobytes()):08x}"
