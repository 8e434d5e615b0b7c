"""Hamiltonian Monte Carlo from a density over R^d, by pyro.

    H(w, r) = -log density(w) + 1/2 r^T M^{-1} r,     M diagonal

A transition draws a momentum r ~ N(0, M), follows H for some leapfrog steps, and accepts where it ends with probability
min(1, exp(H before - H after)).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from psdenets.errors import BadInput
from psdenets.models.hmc.diagnostics import pyro_module

LogDensity = Callable[[Tensor], Tensor]

_TARGET_ACCEPT = 0.8


def nothing() -> None:
    """What is done after a draw where nothing is to be done."""


class Chain(NamedTuple):
    """One chain: draws (draws, d), mean acceptance probability after warm-up, and what it took.

    All but ``seconds``, the wall time, is a function of density, start and seed.
    """

    draws: Tensor
    accept: float
    step_size: float
    divergences: int
    gradients: int
    seconds: float


def sample_chain(
    log_density: LogDensity,
    w0: Tensor,
    *,
    warmup: int,
    draws: int,
    leapfrog: int,
    seed: int,
    after_draw: Callable[[], None] = nothing,
) -> Chain:
    """Draws of one chain of HMC from a density over (d,), begun at w0; step size and M adapt during warm-up.

    A trajectory has ``leapfrog`` steps whatever their size; pyro alone would hold the length it computed from its first
    guess of the step size, and take another number of steps after every adaptation. With number and size fixed, a
    direction hardly moves whose period is the trajectory's length, and its square where half the period is: a low
    effective sample size shows it, another ``leapfrog`` mends it. The same seed gives the same bits, and torch's global
    generator is left as it was.

    Args:
        log_density: differentiable, (d,) -> scalar; need not be normalised.
        w0: (d,), float64 on the CPU.
        warmup: transitions that adapt and are not kept.
        draws: transitions that are kept.
        leapfrog: steps, and so gradients, of a transition.
        seed: of momenta and acceptances.
        after_draw: called after every transition, warm-up included; what it raises ends the chain.
    """
    if warmup < 0 or draws < 1 or leapfrog < 1:
        raise BadInput(f"expected warmup >= 0, draws and leapfrog >= 1, got {warmup}, {draws} and {leapfrog}")
    _check_start(log_density, w0)
    potential, kept, started = _Potential(log_density), [], time.perf_counter()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.default_generator.manual_seed(seed)  # pyro has no generator of its own; torch.manual_seed seeds GPUs too
        kernel = pyro_module("infer.mcmc").HMC(potential_fn=potential, target_accept_prob=_TARGET_ACCEPT)
        state = kernel.initial_params = {"w": w0.detach().clone()}
        kernel.setup(warmup)
        for k in range(warmup + draws):
            kernel.trajectory_length = (leapfrog + 0.5) * kernel.step_size  # pyro takes int(length / step_size) steps
            state = kernel.sample(state)
            if k >= warmup:
                kept.append(state["w"].detach().clone())
            after_draw()
    accept = kernel._mean_accept_prob  # public is the share of accepted proposals alone, which says less
    divergences = len(kernel.diagnostics()["divergences"])
    seconds = time.perf_counter() - started
    return Chain(torch.stack(kept), accept, kernel.step_size, divergences, potential.gradients, seconds)


def _check_start(log_density: LogDensity, w0: Tensor) -> None:
    if w0.ndim != 1 or w0.dtype != torch.float64 or w0.device.type != "cpu":
        raise BadInput(f"expected w0 (d,) in float64 on the CPU, got {tuple(w0.shape)} in {w0.dtype} on {w0.device}")
    with torch.no_grad():
        value = log_density(w0).item()
    if not math.isfinite(value):
        raise BadInput(f"expected a finite log density at w0, got {value}")


class _Potential:
    """U(w) = -log density. Counts gradients: pyro has w require one wherever it takes one."""

    def __init__(self, log_density: LogDensity) -> None:
        self.log_density, self.gradients = log_density, 0

    def __call__(self, state: dict[str, Tensor]) -> Tensor:
        w = state["w"]
        self.gradients += w.requires_grad
        return -self.log_density(w)
