"""Sample the chains of an HMC run; chain k depends only on (seed, k), and is saved once complete."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from psdenets.config import Config
from psdenets.errors import BadInput
from psdenets.models.hmc.diagnostics import Cost, cost_of, seconds_per_gradient
from psdenets.models.hmc.hamiltonian import Chain, sample_chain
from psdenets.models.hmc.model import HMC
from psdenets.runs.files import atomically, read_json, write_json
from psdenets.seeds import generator, seed_of


def estimate(model: HMC, x: Tensor, labels: Tensor, images: int) -> Cost:
    """Estimate the cost of sampling with `images` images, by timing gradients on the few images in x."""
    w = model.draws.new_zeros(model.network.size)
    return cost_of(model.config.system.hmc, images, seconds_per_gradient(model.log_density(x, labels), w) / len(x))


def run_chains(
    model: HMC, x: Tensor, labels: Tensor, folder: Path, after_draw: Callable[[], None] = lambda: None
) -> list[Chain]:
    """All chains of a run. Chains found in `folder` are loaded; the others are sampled and saved there once complete.

    Chain k depends only on (seed, k), so a run that is killed and resumed produces the same bytes. Each chain starts at
    a draw from the prior, because R-hat requires different starting points.
    """
    c, hmc = model.config, model.config.system.hmc
    log_density = model.log_density(x, labels)
    chains = []
    for k in range(hmc.chains):
        path, origin = folder / f"chain-{k}.safetensors", _origin(c, k, len(x))
        if not path.exists():
            g, seed = generator(c.seed, "chain-start", k), seed_of(c.seed, "chain", k)
            w0 = hmc.prior_std * torch.randn(model.network.size, generator=g, dtype=torch.float64)
            lengths = {"warmup": hmc.warmup, "draws": hmc.draws, "leapfrog": hmc.leapfrog}
            chain = sample_chain(log_density, w0, **lengths, seed=seed, after_draw=after_draw)
            _save_chain(path, chain, origin)
        chains.append(_load_chain(path, origin))
    return chains


def _origin(config: Config, k: int, images: int) -> dict[str, Any]:
    """Everything that determines a chain, except the pixels."""
    names = ("dataset", "width", "prior_std", "warmup", "draws", "leapfrog", "seed")
    values = config.as_dict()
    return {"chain": k, "images": images, **{name: values[name] for name in names}}


def _save_chain(path: Path, chain: Chain, origin: dict[str, Any]) -> None:
    """Save the draws as safetensors and the rest as JSON. Draws are written last, so a chain with draws is complete."""
    write_json(path.with_suffix(".json"), {**chain.statistics(), "origin": origin})
    atomically(path, lambda temporary: save_file({"draws": chain.draws}, temporary))


def _load_chain(path: Path, origin: dict[str, Any]) -> Chain:
    values = read_json(path.with_suffix(".json"))
    found = values.pop("origin")
    if found != origin:
        raise BadInput(f"expected a chain of {origin} in {path}, got one of {found}")
    return Chain(load_file(path)["draws"], **values)
