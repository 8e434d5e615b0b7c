"""Elementwise activations used between the layers of f_h."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Activation = Callable[[Tensor], Tensor]


def rbf(z: Tensor) -> Tensor:
    """exp(-z^2)."""
    return torch.exp(-z.square())


ACTIVATIONS: dict[str, Activation] = {
    "softplus": F.softplus,
    "tanh": torch.tanh,
    "elu": F.elu,
    "swish": F.silu,
    "rbf": rbf,
    "relu": F.relu,
    "gelu": F.gelu,
}
