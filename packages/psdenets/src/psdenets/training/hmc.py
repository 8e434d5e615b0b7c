"""Sample with HMC as a run: prints the estimated cost, then samples one chain after the other into chains/.

Chain k depends only on (seed, k), so a run that is killed and resumed produces the same bytes.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from psdenets.config import Config
from psdenets.data.images import to_unit
from psdenets.errors import BadInput
from psdenets.models.hmc import diagnostics
from psdenets.models.hmc.diagnostics import Cost, Mixing
from psdenets.models.hmc.hamiltonian import Chain, sample_chain
from psdenets.models.hmc.model import HMC
from psdenets.models.nets.resnet import ResNet
from psdenets.options.baselines import HmcOptions
from psdenets.runs.checksums import Folder
from psdenets.runs.directory import RunDir
from psdenets.runs.forms import CHAIN
from psdenets.runs.results import History, write_results
from psdenets.runs.weights import Form, TensorFile, save_weights
from psdenets.seeds import generator, seed_of
from psdenets.training.session import begin
from psdenets.training.stopping import Stop, Stopped, stoppable
from psdenets.training.watch import Watch
from sdeweights import flatten

_TIMED = 500  # images on which a gradient is timed
_HELD_OUT = 50  # validation images used to check mixing in function space


def fit(config: Config, run: RunDir, watch: Watch) -> None:
    """Sample all unfinished chains, print their mixing, write the results."""
    diagnostics.pyro_module("infer.mcmc")  # raises before anything is written
    torch.set_num_threads(config.threads or 1)
    splits = watch.splits(config)
    model = HMC(config, splits.spec)
    x, labels = to_unit(splits.train.pixels[:]), splits.train.labels
    cost = estimate(model, x[:_TIMED], labels[:_TIMED], len(x))
    diagnostics.refusal(config.dataset, cost)
    begin(run, config, splits)
    full_size = diagnostics.full_size_cost(_seconds_of_a_resnet())
    watch.say(
        f"{config.data_name}: {len(x)} training, {len(splits.val)} validation, {len(splits.test)} test images of "
        f"{splits.spec.size}\n"
        f"hmc over {model.network.size:,} weights: {cost}; run directory {run.path}\n"
        f"a full-size one, as Izmailov et al. (2021) ran it on CIFAR-10: {full_size}\n"
    )
    with stoppable() as stop:
        try:
            chains = run_chains(model, x, labels, _chains_of(run), _progress(config.system.hmc, stop, watch))
        except Stopped:
            resume = watch.resume_with(run.path)
            raise stop.interrupted(f"stopped, finished chains are saved; resume with: {resume}") from None
    model.keep(chains)
    mixing = model.mixing(x, labels, to_unit(splits.val.pixels[:_HELD_OUT]))
    watch.say(mixing_table(chains, mixing))
    # one line per chain; other systems have one line per epoch
    run.folder.write_lines("metrics.jsonl", [{"chain": k, **chain.statistics()} for k, chain in enumerate(chains)])
    hmc = config.system.hmc
    facts: dict[str, Any] = {
        "transitions": hmc.chains * (hmc.warmup + hmc.draws),
        "accept": [chain.accept for chain in chains],
        "divergences": [chain.divergences for chain in chains],
        "mixing": {name: values._asdict() for name, values in mixing.items()},
    }
    history = History([], sum(chain.seconds for chain in chains), facts)
    watch.say(write_results(run, config, model, splits.test, history, val=splits.val))


def _chains_of(run: RunDir) -> Folder:
    """The folder of the chains of a run."""
    return Folder(run.file("chains"), run.folder.id)


def estimate(model: HMC, x: Tensor, labels: Tensor, images: int) -> Cost:
    """Estimate the cost of sampling with `images` images, by timing gradients on the few images in x."""
    w = model.draws.new_zeros(model.network.size)
    seconds = diagnostics.seconds_per_gradient(model.log_density(x, labels), w)
    return diagnostics.cost_of(model.config.system.hmc, images, seconds / len(x))


def run_chains(
    model: HMC, x: Tensor, labels: Tensor, folder: Folder, after_draw: Callable[[], None] = lambda: None
) -> list[Chain]:
    """All chains of a run. Chains found in `folder` are loaded; the others are sampled and saved there once complete.

    Each chain starts at a draw from the prior, because R-hat requires different starting points.
    """
    c, hmc = model.config, model.config.system.hmc
    log_density = model.log_density(x, labels)
    chains = []
    for k in range(hmc.chains):
        name, origin = f"chain-{k}", _origin(c, k, len(x))
        if not (folder.path / f"{name}.safetensors").exists():
            g, seed = generator(c.seed, "chain-start", k), seed_of(c.seed, "chain", k)
            w0 = hmc.prior_std * torch.randn(model.network.size, generator=g, dtype=torch.float64)
            lengths = {"warmup": hmc.warmup, "draws": hmc.draws, "leapfrog": hmc.leapfrog}
            chain = sample_chain(log_density, w0, **lengths, seed=seed, after_draw=after_draw)
            _save_chain(folder, name, chain, origin)
        chains.append(_load_chain(folder, name, origin, Form((hmc.draws, model.network.size), "F64")))
    return chains


def _origin(config: Config, k: int, images: int) -> dict[str, Any]:
    """Everything that determines a chain, except the pixels."""
    names = ("dataset", "width", "prior_std", "warmup", "draws", "leapfrog", "seed")
    values = config.as_dict()
    return {"chain": k, "images": images, **{name: values[name] for name in names}}


def _save_chain(folder: Folder, name: str, chain: Chain, origin: dict[str, Any]) -> None:
    """Save the draws as safetensors and the rest as JSON. Draws are written last, so a chain with draws is complete."""
    folder.write_json(f"{name}.json", {**chain.statistics(), "origin": origin})
    folder.write(f"{name}.safetensors", lambda path: save_weights({"draws": chain.draws}, path))


def _load_chain(folder: Folder, name: str, origin: dict[str, Any], form: Form) -> Chain:
    values = folder.read_json(f"{name}.json", {**CHAIN, "origin": dict})
    found = values.pop("origin")
    file = TensorFile.open(folder, f"{name}.safetensors")
    if found != origin:
        raise BadInput(f"expected a chain of {origin} in {file.path}, got one of {found}")
    file.require({"draws": form})
    return Chain(file.read()["draws"], **values)


def _progress(hmc: HmcOptions, stop: Stop, watch: Watch) -> Callable[[], None]:
    """A function to call after each transition, which stops if requested and reports progress now and then."""
    done, total, said = 0, hmc.chains * (hmc.warmup + hmc.draws), time.perf_counter()

    def after_draw() -> None:
        nonlocal done, said
        done += 1
        stop.check()
        if time.perf_counter() - said > 15:
            said = time.perf_counter()
            watch.say(f"{done} of {total} transitions\n")

    return after_draw


def mixing_table(chains: list[Chain], mixing: dict[str, Mixing]) -> str:
    """A table of acceptance rates, and of R-hat and effective sample size in function space and of the weights."""
    accepted = ", ".join(f"{chain.accept:.2f}" for chain in chains)
    divergent = sum(chain.divergences for chain in chains)
    lines = [f"acceptance {accepted}; {divergent} divergent transitions"]
    lines += [
        f"  {name:<14} R-hat {m.median_rhat:.3f} (largest {m.max_rhat:.3f})   "
        f"effective draws {m.median_ess:.0f} (fewest {m.min_ess:.0f})"
        for name, m in mixing.items()
    ]
    return "\n".join(lines) + "\n"


def _seconds_of_a_resnet() -> float:
    """Seconds for a forward and backward pass of ResNet32 on one CIFAR-10 image, measured on this machine."""
    w, net = flatten(ResNet(3, 10))
    x, labels = torch.zeros(32, 3, 32, 32), torch.zeros(32, dtype=torch.int64)

    def log_density(w: Tensor) -> Tensor:
        return -F.cross_entropy(net(torch.zeros(()), x, w), labels)

    return diagnostics.seconds_per_gradient(log_density, w, repeats=3) / len(x)
