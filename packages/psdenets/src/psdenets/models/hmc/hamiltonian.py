"""Sample a density on R^d by Hamiltonian Monte Carlo, using pyro.

    H(w, r) = -log density(w) + 1/2 r^T M^{-1} r,     M diagonal

A transition draws a momentum r ~ N(0, M), takes a number of leapfrog steps, and accepts the end point with probability
min(1, exp(H before - H after)).
"""

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from psdenets.errors import BadInput
from psdenets.models.hmc.diagnostics import pyro_module

LogDensity = Callable[[Tensor], Tensor]

_TARGET_ACCEPT = 0.8


class Chain(NamedTuple):
    """One chain and its cost; everything except the wall time `seconds` depends only on density, start and seed."""

    draws: Tensor  # (draws, d)
    accept: float  # mean acceptance probability after warm-up
    step_size: float
    divergences: int
    gradients: int
    seconds: float

    def statistics(self) -> dict[str, Any]:
        """Everything except the draws."""
        return {name: value for name, value in self._asdict().items() if name != "draws"}


def sample_chain(
    log_density: LogDensity,
    w0: Tensor,
    *,
    warmup: int,
    draws: int,
    leapfrog: int,
    seed: int,
    after_draw: Callable[[], None] = lambda: None,
) -> Chain:
    """Sample one HMC chain from a density on R^d, starting at w0; step size and M adapt during warm-up.

    A trajectory always has `leapfrog` steps. (By default, pyro fixes its length from the first guess of the step size
    and varies the number of steps.) After warm-up both the number and the size of the steps are fixed. A direction
    whose period equals the length of the trajectory then barely moves, and if half its period does, its square barely
    moves; a low effective sample size reveals this, and a different `leapfrog` fixes it. The same seed gives the same
    bits, and torch's global generator is left unchanged.

    The density, (d,) -> scalar, need not be normalised; w0, (d,), is float64 on the CPU. `warmup` transitions are
    discarded and `draws` are kept. `after_draw` is called after every one of them; an exception ends the chain.
    """
    if warmup < 0 or draws < 1 or leapfrog < 1:
        raise BadInput(f"expected warmup >= 0, draws and leapfrog >= 1, got {warmup}, {draws} and {leapfrog}")
    _check_start(log_density, w0)
    potential, kept, started = _Potential(log_density), [], time.perf_counter()
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.default_generator.manual_seed(seed)  # pyro takes no generator; torch.manual_seed would seed GPUs too
        kernel = pyro_module("infer.mcmc").HMC(potential_fn=potential, target_accept_prob=_TARGET_ACCEPT)
        state = kernel.initial_params = {"w": w0.detach().clone()}
        kernel.setup(warmup)
        for k in range(warmup + draws):
            kernel.trajectory_length = (leapfrog + 0.5) * kernel.step_size  # pyro takes int(length / step_size) steps
            state = kernel.sample(state)
            if k >= warmup:
                kept.append(state["w"].detach().clone())
            after_draw()
    accept = kernel._mean_accept_prob  # the public attribute is only the share of accepted proposals
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
    """U(w) = -log density(w). Counts gradients: w requires grad whenever pyro computes one."""

    def __init__(self, log_density: LogDensity) -> None:
        self.log_density, self.gradients = log_density, 0

    def __call__(self, state: dict[str, Tensor]) -> Tensor:
        w = state["w"]
        self.gradients += w.requires_grad
        return -self.log_density(w)
