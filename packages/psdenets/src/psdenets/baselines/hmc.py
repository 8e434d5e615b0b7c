"""Hamiltonian Monte Carlo over all weights of a small network: draws of the posterior itself, not of a family near it.

    log p(w | D) = sum_n log softmax(y(x_n, w))[label_n] + log N(w; 0, prior_std^2 I) - log p(D)
    y(x, w) = W2 tanh(W1 x / sqrt(p) + b1) / sqrt(H) + b2,     p pixels, H hidden units
    H(w, r) = -log p(w | D) + 1/2 r^T M^{-1} r,     M diagonal

Every weight and bias has the prior N(0, prior_std^2), since the roots of the fan-in stand in the network: prior_std is
a number near 1, and HMC meets one scale. A gradient is a pass over all images, hence small data sets only.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from psdenets.baselines.diagnostics import Cost, Mixing, cost_of, mixing, pyro_module, seconds_per_gradient
from psdenets.errors import BadInput
from psdenets.interface import ImageClassifier
from psdenets.rundir import atomically, write_json
from psdenets.seeds import generator as generator_at
from psdenets.seeds import seed_of

if TYPE_CHECKING:
    from psdenets.config import Config
    from psdenets.spec import ImageSpec

LogDensity = Callable[[Tensor], Tensor]

_TARGET_ACCEPT = 0.8


def _nothing() -> None:
    pass


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
    after_draw: Callable[[], None] = _nothing,
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


class Layers(NamedTuple):
    """W1 (..., H, p), b1 (..., H), W2 (..., C, H), b2 (..., C)."""

    W1: Tensor
    b1: Tensor
    W2: Tensor
    b2: Tensor

    def flat(self) -> Tensor:
        """As one vector w (..., d)."""
        return torch.cat([self.W1.flatten(-2), self.b1, self.W2.flatten(-2), self.b2], dim=-1)


@final
@dataclass(frozen=True)
class Perceptron:
    """y(x, w) = W2 tanh(W1 x / sqrt(p) + b1) / sqrt(H) + b2, a pure function of a flat w.

    Example:
        >>> Perceptron(inputs=64, hidden=10, classes=10).size
        760
    """

    inputs: int
    hidden: int
    classes: int

    @property
    def size(self) -> int:
        """d, how many weights and biases there are."""
        return sum(map(math.prod, self._shapes))

    def layers(self, w: Tensor) -> Layers:
        """The inverse of `Layers.flat`, (..., d) -> layers."""
        parts = torch.split(w, [math.prod(shape) for shape in self._shapes], dim=-1)
        return Layers(*(p.reshape(*w.shape[:-1], *shape) for p, shape in zip(parts, self._shapes, strict=True)))

    def __call__(self, w: Tensor, x: Tensor) -> Tensor:
        """Logits (..., N, C) of images (N, p) under weights (..., d)."""
        W1, b1, W2, b2 = self.layers(w)
        h = torch.tanh(W1 / math.sqrt(self.inputs) @ x.mT + b1[..., None])
        return (W2 / math.sqrt(self.hidden) @ h + b2[..., None]).mT

    @property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.hidden, self.inputs), (self.hidden,), (self.classes, self.hidden), (self.classes,))


def log_posterior(w: Tensor, x: Tensor, labels: Tensor, network: Perceptron, prior_std: float) -> Tensor:
    """sum_n log softmax(y(x_n, w))[label_n] + log N(w; 0, prior_std^2 I), for w (d,) and images x (N, p); a scalar."""
    log_likelihood = -F.cross_entropy(network(w, x).mT[None], labels[None], reduction="sum")  # (1, C, N): as computed
    log_prior = -0.5 * (w / prior_std).square().sum() - len(w) * math.log(prior_std * math.sqrt(2 * math.pi))
    return log_likelihood + log_prior


class Draws(NamedTuple):
    """Weights (S, d) of S draws of the posterior."""

    weights: Tensor

    @property
    def kl(self) -> Tensor:
        """Zeros (S,): nothing is fitted, so nothing is penalised."""
        return self.weights.new_zeros(len(self.weights))


@final
class HMC(ImageClassifier):
    """A perceptron of ``width`` hidden units whose weights are draws of the posterior.

    A fresh one has draws of zero; `run_chains` makes them and `keep` takes them.
    """

    draws: Tensor

    def __init__(self, config: Config, spec: ImageSpec) -> None:
        super().__init__(config, spec)
        self.network = Perceptron(spec.channels * spec.height * spec.width, config.width, len(spec.classes))
        self.register_buffer("draws", torch.zeros(config.chains, config.draws, self.network.size, dtype=torch.float64))

    def keep(self, chains: Sequence[Chain]) -> None:
        """Predict with these chains from now on."""
        self.draws.copy_(torch.stack([chain.draws for chain in chains]))

    def draw(self, samples: int = 1, generator: torch.Generator | None = None) -> Draws:  # noqa: ARG002 - drawn before
        """Draws kept of the posterior, spread evenly over chains and time.

        Sample i is of chain i mod chains; times follow in the order of their reversed binary digits, 0, 1/2, 1/4, 3/4
        of a chain and so on: the first S samples are spread for every S, and sample i depends on i alone.
        """
        chains, times, _ = self.draws.shape
        if not 1 <= samples <= chains * times:
            raise BadInput(f"expected 1 to {chains * times} samples, {times} draws of {chains} chains, got {samples}")
        bits = (times - 1).bit_length()
        order = sorted(range(times), key=lambda t: f"{t:0{bits}b}"[::-1])
        pairs = [(i % chains, order[i // chains]) for i in range(samples)]
        return Draws(torch.stack([self.draws[chain, t] for chain, t in pairs]))

    def logits(self, x: Tensor, weights: Draws) -> Tensor:
        """Images (N, C, H, W) in [0, 1] -> logits (S, N, classes)."""
        return self.network(weights.weights, self.features(x))

    def features(self, x: Tensor) -> Tensor:
        """Normalised pixels (N, p), as precise as the draws; laid out by pixel: gradients are a third faster so."""
        return self.normalised(x.to(self.draws.dtype)).flatten(1).mT.contiguous().mT

    def census(self) -> dict[str, int]:
        """How many weights each draw has."""
        return {"weights": self.network.size}

    def log_density(self, x: Tensor, labels: Tensor) -> LogDensity:
        """w -> log posterior of w given these images, up to log p(D)."""
        features, prior_std = self.features(x), self.config.prior_std
        return lambda w: log_posterior(w, features, labels, self.network, prior_std)

    @torch.no_grad()
    def mixing(self, x: Tensor, labels: Tensor, held_out: Tensor) -> dict[str, Mixing]:
        """Mixing of the log posterior given the training images, of log-probabilities of others, and of the weights.

        The first two are of function space and have to mix. The weights need not, see `psdenets.baselines.diagnostics`.
        """
        log_density, features = self.log_density(x, labels), self.features(held_out)
        shape = (*self.draws.shape[:2], -1)
        values = [log_density(w) for w in self.draws.flatten(0, 1)]
        log_probs = [self.network(w, features).log_softmax(-1) for w in self.draws.flatten(0, 1)]
        return {
            "log_posterior": mixing(torch.stack(values).reshape(shape)),
            "log_probs": mixing(torch.stack(log_probs).reshape(shape)),
            "weights": mixing(self.draws),
        }


def estimate(model: HMC, x: Tensor, labels: Tensor, images: int) -> Cost:
    """What sampling given so many images would take, from gradients timed on those few in x."""
    w = model.draws.new_zeros(model.network.size)
    return cost_of(model.config, images, seconds_per_gradient(model.log_density(x, labels), w) / len(x))


def run_chains(
    model: HMC, x: Tensor, labels: Tensor, folder: Path, after_draw: Callable[[], None] = _nothing
) -> list[Chain]:
    """All chains of a run. One that ``folder`` holds is read, the others are sampled and saved there as they end.

    Chain k is a function of (seed, k), so that a run killed between or within chains ends with the same bytes. It
    begins at a draw of the prior: chains begun apart are what R-hat asks for.
    """
    c = model.config
    log_density = model.log_density(x, labels)
    chains = []
    for k in range(c.chains):
        path, origin = folder / f"chain-{k}.safetensors", _origin(c, k, len(x))
        if not path.exists():
            w0 = c.prior_std * torch.randn(
                model.network.size, generator=generator_at(c.seed, "chain-start", k), dtype=torch.float64
            )
            seed = seed_of(c.seed, "chain", k)
            chain = sample_chain(
                log_density, w0, warmup=c.warmup, draws=c.draws, leapfrog=c.leapfrog, seed=seed, after_draw=after_draw
            )
            _save_chain(path, chain, origin)
        chains.append(_load_chain(path, origin))
    return chains


def _origin(config: Config, k: int, images: int) -> dict[str, Any]:
    """What a chain is a function of, beside the pixels."""
    names = ("dataset", "width", "prior_std", "warmup", "draws", "leapfrog", "seed")
    return {"chain": k, "images": images, **{name: getattr(config, name) for name in names}}


def _save_chain(path: Path, chain: Chain, origin: dict[str, Any]) -> None:
    """Draws as safetensors, the rest as JSON beside them. The draws come last: a chain that has them is whole."""
    values = chain._asdict()
    draws = values.pop("draws")
    write_json(path.with_suffix(".json"), {**values, "origin": origin})
    atomically(path, lambda beside: save_file({"draws": draws}, beside))


def _load_chain(path: Path, origin: dict[str, Any]) -> Chain:
    values = json.loads(path.with_suffix(".json").read_text())
    found = values.pop("origin")
    if found != origin:
        raise BadInput(f"expected a chain of {origin} in {path}, got one of {found}")
    return Chain(load_file(path)["draws"], **values)
