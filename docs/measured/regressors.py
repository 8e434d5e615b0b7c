"""Regressors to compare: ours, two of scikit-learn, and two of plain torch that train for the same time as ours.

A regressor is a function (x, y, x_test, seed, seconds) -> means and stds of S Gaussians per test row, (S, N) each.
Columns and target are standardised by the caller.
"""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from psdenets import PSDERegressor

Array = NDArray[np.float64]
Predictions = tuple[Array, Array]
WIDTH, DROPOUT, MEMBERS, PASSES = 50, 0.1, 5, 50
LR, CHECK = 3e-3, 20  # learning rate, and steps between two looks at the validation rows


def psde(cut: str) -> Callable[..., Predictions]:
    """A partially stochastic network with the defaults of tables."""

    def predict(x: Array, y: Array, x_test: Array, seed: int, seconds: float) -> Predictions:  # noqa: ARG001
        return PSDERegressor(cut=cut, random_state=seed).fit(x, y).predict_mixture(x_test)

    return predict


def bayesian_ridge(x: Array, y: Array, x_test: Array, seed: int, seconds: float) -> Predictions:  # noqa: ARG001
    """Linear regression with a Gaussian prior whose width is estimated."""
    from sklearn.linear_model import BayesianRidge

    mean, std = BayesianRidge().fit(x, y).predict(x_test, return_std=True)
    return mean[None], std[None]


def gaussian_process(x: Array, y: Array, x_test: Array, seed: int, seconds: float) -> Predictions:  # noqa: ARG001
    """A Gaussian process with an RBF kernel, a length per column, and noise, all estimated."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(1.0) * RBF(np.full(x.shape[1], 3.0), (0.1, 1e3)) + WhiteKernel(0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the length of a column that does not matter is at its bound
        model = GaussianProcessRegressor(kernel, n_restarts_optimizer=0, random_state=seed).fit(x, y)
    mean, std = model.predict(x_test, return_std=True)
    return mean[None], std[None]


def _perceptron(columns: int, outputs: int, dropout: float) -> nn.Sequential:
    layers: list[nn.Module] = []
    for width_in in (columns, WIDTH):
        layers += [nn.Linear(width_in, WIDTH), nn.ReLU(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear(WIDTH, outputs))


def _train(net: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, seconds: float) -> None:
    """Adam with batches of 32 for the given time; the weights with the lowest loss on a tenth of the rows are kept."""
    optimizer = torch.optim.Adam(net.parameters(), lr=LR, weight_decay=1e-4)
    val, train = torch.randperm(len(x)).tensor_split([len(x) // 10])
    best, kept, step, started = math.inf, copy.deepcopy(net.state_dict()), 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        chosen = train[torch.randint(len(train), (32,))]
        optimizer.zero_grad()
        loss(net(x[chosen]), y[chosen]).backward()
        optimizer.step()
        step += 1
        if step % CHECK == 0:
            with torch.no_grad():
                now = float(loss(net.eval()(x[val]), y[val]))
            net.train()
            if now < best:
                best, kept = now, copy.deepcopy(net.state_dict())
    net.load_state_dict(kept)


def mc_dropout(x: Array, y: Array, x_test: Array, seed: int, seconds: float) -> Predictions:
    """A perceptron with dropout in training and prediction, and one trained noise level."""
    torch.manual_seed(seed)
    net = _perceptron(x.shape[1], 1, DROPOUT)
    net.log_std = nn.Parameter(torch.zeros(()))  # type: ignore[assignment]

    def loss(out: Tensor, target: Tensor) -> Tensor:
        log_std = net.log_std
        return (0.5 * ((target - out[:, 0]) / log_std.exp()) ** 2 + log_std).mean()

    _train(net, loss, *_tensors(x, y), seconds)
    with torch.no_grad():
        means = torch.stack([net(_tensors(x_test)[0])[:, 0] for _ in range(PASSES)]).double().numpy()
        std = float(net.log_std.exp())
    return means, np.full_like(means, std)


def deep_ensemble(x: Array, y: Array, x_test: Array, seed: int, seconds: float) -> Predictions:
    """Five perceptrons with a predicted noise level, each trained for a fifth of the time."""
    means, stds = [], []
    for member in range(MEMBERS):
        torch.manual_seed(MEMBERS * seed + member)
        net = _perceptron(x.shape[1], 2, 0.0)

        def loss(out: Tensor, target: Tensor) -> Tensor:
            std = F.softplus(out[:, 1]) + 1e-3
            return (0.5 * ((target - out[:, 0]) / std) ** 2 + std.log()).mean()

        _train(net, loss, *_tensors(x, y), seconds / MEMBERS)
        with torch.no_grad():
            out = net(_tensors(x_test)[0]).double()
        means.append(out[:, 0].numpy())
        stds.append((F.softplus(out[:, 1]) + 1e-3).numpy())
    return np.stack(means), np.stack(stds)


def _tensors(*arrays: Array) -> list[Tensor]:
    return [torch.tensor(array, dtype=torch.float32) for array in arrays]


REGRESSORS: dict[str, Callable[..., Predictions]] = {
    "ODE-first": psde("vertical"),
    "fully stochastic": psde("full"),
    "Bayesian ridge (scikit-learn)": bayesian_ridge,
    "Gaussian process (scikit-learn)": gaussian_process,
    "MC dropout, equal time": mc_dropout,
    "deep ensemble, equal time": deep_ensemble,
}
