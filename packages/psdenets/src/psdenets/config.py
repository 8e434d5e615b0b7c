"""Everything a run can be told, in one frozen value. Each field is a flag of the same name (`at_t2` is `--at-t2`).

Nothing here imports torch, so that `--help` answers at once.
"""

# ruff: noqa: RUF009 - `_flag` is `dataclasses.field` with a help text

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal

from psdenets.errors import BadInput
from psdenets.systems import BASELINES, RESNETS, ModelName, cut_of

CutName = Literal["none", "full", "vertical", "horizontal", "both"]
Order = Literal["ode-first", "sde-first"]
AtT2 = Literal["continue", "fixed", "learned"]
Scope = Literal["block", "network"]
BlockName = Literal["strided", "3-1-3", "3-3"]
Activation = Literal["softplus", "tanh", "elu", "swish", "rbf"]
Head = Literal["deterministic", "meanfield"]
DatasetName = Literal["digits", "mnist", "fashion-mnist", "kmnist", "cifar10", "svhn", "omniglot", "imagefolder"]
Augmentation = Literal["none", "jitter", "crop-flip"]
Schedule = Literal["constant", "one-cycle", "cosine"]
Gradient = Literal["backprop", "checkpoint", "adjoint"]
HiddenMethod = Literal["euler", "midpoint", "rk4", "reversible_heun", "bosh3", "dopri5", "dopri8"]
Select = Literal["last", "best"]
Norm = Literal["batch", "group", "none"]
Noise = Literal["local", "weights"]
Member = Literal["resnet32", "odenet"]
Hessian = Literal["full", "kron", "diag"]
Predictive = Literal["sampled", "probit"]

ADAPTIVE = ("bosh3", "dopri5", "dopri8")


def _flag(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Config:
    """One run; checks itself when built.

    Example:
        >>> Config(cut="vertical", order="sde-first", ratio=0.25).window
        (0.0, 0.25)
    """

    preset: str | None = _flag(None, "take the values of this preset where no flag says otherwise (--list-presets)")
    # which weights are noisy, and when
    cut: CutName = _flag("vertical", "which weights are noisy, and when")
    order: Order = _flag("ode-first", "noisy depth last (ode-first) or first (sde-first)")
    ratio: float = _flag(0.1, "stochastic share of depth of a vertical cut")
    share: float = _flag(0.5, "stochastic share of the weights of a horizontal cut")
    t1: float | None = _flag(None, "start of the stochastic depth, in place of --order and --ratio")
    t2: float | None = _flag(None, "end of the stochastic depth, in place of --order and --ratio")
    at_t2: AtT2 = _flag("continue", "what the noisy weights become at t2")
    scope: Scope = _flag("block", "take the vertical cut in every block, or once over the whole network's depth")
    # the network
    model: ModelName = _flag("psde", "the PSDE-BNN, or another system of the paper's Table 1")
    block: BlockName = _flag("strided", "hidden drift f_h")
    blocks: str = _flag("1", 'blocks of each scale, e.g. "2-2-2"; space-to-depth lies between scales')
    width: int = _flag(32, "channels inside f_h")
    activation: Activation = _flag("swish", "activation of f_h")
    gain: float = _flag(1.0, "scale of the initial weights of f_h, uniform in +-gain / sqrt(fan-in)")
    augment_channels: int = _flag(4, "zero channels added to the image")
    squeeze_input: int = _flag(1, "space-to-depth steps before the first block")
    drift: str = _flag("2-128-2", "hidden sizes of f_q (of its stochastic half on a horizontal cut)")
    drift_deterministic: str | None = _flag(None, "hidden sizes of the deterministic half, where not the same")
    head: Head = _flag("deterministic", "the last linear layer")
    sigma: float = _flag(0.05, "diffusion of the Ornstein-Uhlenbeck prior")
    theta: float = _flag(1.0, "mean reversion of the Ornstein-Uhlenbeck prior")
    steps: int = _flag(6, "solver steps a block")
    sde_steps: int | None = _flag(
        None, "steps of the stochastic depth (default: in proportion to it, two at least where --steps allows)"
    )
    hidden_method: HiddenMethod = _flag("euler", "scheme of the hidden state; bosh3, dopri5, dopri8 choose their steps")
    rtol: float = _flag(1e-3, "relative tolerance of an adaptive scheme")
    atol: float = _flag(1e-3, "absolute tolerance of an adaptive scheme")
    gradient: Gradient = _flag("backprop", "what is kept for the backward pass")
    compile: bool = _flag(False, "compile the activations: needs a C++ compiler, and seconds for every shape of images")
    # other systems
    norm: Norm = _flag("batch", "normalisation layers of a ResNet")
    prior_std: float = _flag(0.1, "prior N(0, std^2) of mean-field and HMC weights")
    log_std: float = _flag(-4.0, "log standard deviation with which mean-field weights begin")
    noise: Noise = _flag("local", "noise of mean-field linear layers in training: for each image, or of the weights")
    member: Member = _flag("resnet32", "what an ensemble consists of")
    members: int = _flag(3, "how many members an ensemble has")
    hessian: Hessian = _flag("kron", "structure of the last layer's Laplace approximation")
    predictive: Predictive = _flag("sampled", "Laplace: average over samples, or the probit approximation")
    laplace_of: str | None = _flag(None, "take the network of this finished resnet32 run instead of training one")
    chains: int = _flag(4, "chains of HMC")
    warmup: int = _flag(200, "transitions of each chain that adapt step size and mass, and are dropped")
    draws: int = _flag(200, "transitions of each chain that are kept")
    leapfrog: int = _flag(50, "leapfrog steps a transition")
    # the data
    dataset: DatasetName = _flag("digits", "what to classify")
    data_root: str | None = _flag(None, "where data sets lie (default: $PSDENETS_DATA, then ./data)")
    download: bool = _flag(False, "fetch a data set that is missing")
    augment: Augmentation = _flag("jitter", "random changes to training images")
    val_share: float = _flag(0.1, "share of the training images kept for validation")
    split_seed: int = _flag(0, "seed of the split, apart from --seed so that seeds share a test set")
    limit_train: int | None = _flag(None, "use so many training images")
    limit_test: int | None = _flag(None, "use so many test images")
    # training
    epochs: int = _flag(30, "passes over the training images")
    batch_size: int = _flag(64, "images a step")
    piece: int | None = _flag(
        None, "images that go forth and back at once, with the same gradient (default: as many as keep 2 GB of states)"
    )
    samples: int = _flag(1, "weight paths a training step; losses are averaged")
    test_samples: int = _flag(16, "weight paths of the final evaluation")
    epoch_samples: int = _flag(1, "weight paths of the evaluation after each epoch")
    lr: float = _flag(0.01, "learning rate of Adam; the highest one under a schedule")
    drift_lr: float = _flag(
        1.0, "learning rate of f_q as a share of --lr; f_q reads all weights at once and needs less"
    )
    schedule: Schedule = _flag("one-cycle", "course of the learning rate")
    clip: float | None = _flag(1.0, "largest norm of the gradient")
    ema: float = _flag(0.0, "decay of the averaged weights that are evaluated; 0 evaluates the weights themselves")
    kappa: float | None = _flag(
        None, "weight of int |u|^2; 1/2 is the exact ELBO (default: --kappa-base / noisy share)"
    )
    kappa_base: float = _flag(1e-3, "kappa of a fully stochastic network")
    kappa_warmup: float = _flag(0.0, "epochs over which kappa rises from 0")
    select: Select = _flag("last", "keep the last weights, or those of the best validation accuracy")
    seed: int = _flag(0, "seed of weights, order and noise")
    # the run
    out: str | None = _flag(None, "run directory (default: a new one under ./runs)")
    device: str = _flag("auto", "cpu, cuda, cuda:1, mps; auto takes an accelerator where there is one")
    threads: int | None = _flag(None, "CPU threads (default: one for small images, else torch's choice)")
    max_seconds: float | None = _flag(None, "stop training after so long, whatever --epochs says")
    max_seconds_of: str | None = _flag(None, "stop training after as long as this finished run took")
    checkpoint_seconds: float = _flag(30.0, "time between checkpoints inside an epoch; 0 writes one every step")

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            _check_number(item.name, getattr(self, item.name))
        _check_cut(self)
        _check_network(self)
        _check_systems(self)
        _check_training(self)

    @property
    def scales(self) -> tuple[int, ...]:
        """Blocks of each scale: "2-2-2" is (2, 2, 2)."""
        return tuple(int(part) for part in self.blocks.split("-"))

    @property
    def window(self) -> tuple[float, float]:
        """(t1, t2) of the stochastic depth; the whole of it where the cut is not vertical."""
        if self.cut not in ("vertical", "both"):
            return (0.0, 1.0)
        if self.t1 is not None and self.t2 is not None:
            return (self.t1, self.t2)
        return (1 - self.ratio, 1.0) if self.order == "ode-first" else (0.0, self.ratio)

    @property
    def noisy_share(self) -> float:
        """Share of weights times depth that is noisy, 0 without noise."""
        if self.cut == "none":
            return 0.0
        by_depth = 1.0 if self.cut in ("full", "horizontal") else self.ratio
        if self.t1 is not None and self.t2 is not None:
            by_depth = self.t2 - self.t1
        return by_depth * (self.share if self.cut in ("horizontal", "both") else 1.0)

    @property
    def kl_weight(self) -> float:
        """kappa: that of the flag, or base / noisy share as in the paper's Table 5."""
        if self.kappa is not None:
            return self.kappa
        return self.kappa_base / self.noisy_share if self.noisy_share > 0 else self.kappa_base

    @property
    def final_samples(self) -> int:
        """Samples of the final evaluation: those of the flag, or all members of an ensemble."""
        return self.members if self.model == "ensemble" else self.test_samples

    def replace(self, **changes: Any) -> Config:
        """A copy with some values changed, checked again."""
        return dataclasses.replace(self, **changes)

    def as_dict(self) -> dict[str, Any]:
        """Plain values by field name."""
        return dataclasses.asdict(self)


def flag(name: str) -> str:
    """The command-line spelling of a field: at_t2 is --at-t2."""
    return "--" + name.replace("_", "-")


def _require(holds: bool, expected: str, name: str, value: object) -> None:
    if not holds:
        raise BadInput(f"expected {flag(name)} {expected}, got {value}")


def _check_number(name: str, value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"expected a finite {flag(name)}, got {value}")


def _check_cut(c: Config) -> None:
    vertical = c.cut in ("vertical", "both")
    for name in ("t1", "t2"):
        if getattr(c, name) is not None and not vertical:
            raise BadInput(f"expected {flag(name)} with --cut vertical or both only, got it with --cut {c.cut}")
    if (c.t1 is None) != (c.t2 is None):
        raise BadInput(f"expected --t1 and --t2 together, got t1={c.t1}, t2={c.t2}")
    _require(0 < c.ratio <= 1, "in (0, 1]", "ratio", c.ratio)
    _require(0 < c.share < 1, "in (0, 1)", "share", c.share)
    t1, t2 = c.window
    if not 0 <= t1 < t2 <= 1:
        raise BadInput(f"expected 0 <= t1 < t2 <= 1, got t1={t1}, t2={t2}")
    if c.at_t2 != "continue" and (not vertical or t2 == 1):
        raise BadInput(f"expected --at-t2 {c.at_t2} with depth left after t2 < 1, got --cut {c.cut} with t2={t2:g}")
    if c.model in BASELINES and c.cut != cut_of(c.model):
        raise BadInput(f"expected no --cut with the baseline --model {c.model}, got {c.cut}")
    if c.scope == "network" and not vertical:
        raise BadInput(f"expected --scope network with --cut vertical or both only, got it with --cut {c.cut}")


def _check_network(c: Config) -> None:
    for name in ("blocks", "drift", "drift_deterministic"):
        sizes = getattr(c, name)
        good = sizes is None or all(part.isdecimal() and int(part) >= 1 for part in sizes.split("-"))
        _require(good, 'like "2-2-2", every number at least 1', name, repr(sizes))
    _require(c.width >= 1, "at least 1", "width", c.width)
    _require(c.gain > 0, "above 0", "gain", c.gain)
    _require(c.augment_channels >= 0, "at least 0", "augment_channels", c.augment_channels)
    _require(c.squeeze_input >= 0, "at least 0", "squeeze_input", c.squeeze_input)
    _require(c.sigma > 0, "above 0", "sigma", c.sigma)
    _require(c.theta >= 0, "at least 0", "theta", c.theta)
    t1, t2 = c.window
    phases = 1 if c.cut == "none" else (t1 > 0) + 1 + (t2 < 1)
    _require(c.steps >= phases, f"at least {phases}, one for each phase of the cut", "steps", c.steps)
    if c.sde_steps is not None:
        if phases == 1:
            raise BadInput(f"expected --sde-steps with part of depth stochastic only, got it with --cut {c.cut}")
        most = c.steps - phases + 1
        _require(1 <= c.sde_steps <= most, f"from 1 to {most}, one step left for every phase", "sde_steps", c.sde_steps)


def _check_systems(c: Config) -> None:
    for name in ("members", "chains", "warmup", "draws", "leapfrog"):
        _require(getattr(c, name) >= 1, "at least 1", name, getattr(c, name))
    for name in ("prior_std", "rtol", "atol"):
        _require(getattr(c, name) > 0, "above 0", name, getattr(c, name))
    constant = c.model in ("odenet", "mfvi-odenet") or (c.model == "ensemble" and c.member == "odenet")
    if c.hidden_method in ADAPTIVE and not constant:
        raise BadInput(
            f"expected --hidden-method {c.hidden_method} with weights that do not change in depth "
            f"(--model odenet or mfvi-odenet), got --model {c.model}"
        )
    if c.hidden_method == "reversible_heun" and constant:
        raise BadInput(f"expected a --hidden-method of torchdiffeq with --model {c.model}, got reversible_heun")


def _check_training(c: Config) -> None:
    for name in ("epochs", "batch_size", "samples", "test_samples", "epoch_samples"):
        _require(getattr(c, name) >= 1, "at least 1", name, getattr(c, name))
    for name in ("limit_train", "limit_test", "threads", "piece"):
        value = getattr(c, name)
        _require(value is None or value >= 1, "at least 1", name, value)
    for name in ("clip", "max_seconds"):
        value = getattr(c, name)
        _require(value is None or value > 0, "above 0", name, value)
    for name in ("kappa", "kappa_base", "kappa_warmup", "checkpoint_seconds", "seed", "split_seed"):
        value = getattr(c, name)
        _require(value is None or value >= 0, "at least 0", name, value)
    for name in ("lr", "drift_lr"):
        _require(getattr(c, name) > 0, "above 0", name, getattr(c, name))
    _require(0 <= c.ema < 1, "in [0, 1)", "ema", c.ema)
    _require(0 < c.val_share < 1, "in (0, 1)", "val_share", c.val_share)
    if (
        c.batch_size < 2
        and c.norm == "batch"
        and (c.model in RESNETS or (c.model, c.member) == ("ensemble", "resnet32"))
    ):
        raise BadInput(f"expected --batch-size of 2 or more with --norm batch, got {c.batch_size}")
