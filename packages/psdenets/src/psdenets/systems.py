"""The systems of the paper's Table 1, one per value of `--model`: how to build and train them, and their options.

To add a system, add a `System` to `SYSTEMS`, with its options: a dataclass of groups from `psdenets.options`. All other
flags are rejected. Nothing here imports torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from psdenets.options.baselines import EnsembleOptions, HmcOptions, LaplaceOptions, MeanFieldOptions
from psdenets.options.cut import CutOptions
from psdenets.options.fields import part
from psdenets.options.network import FeatureOptions, FlowOptions, NetOptions, ResnetOptions
from psdenets.options.process import HeadOptions, ProcessOptions
from psdenets.options.systems import SystemOptions
from psdenets.options.training import PredictionOptions, TrainingOptions
from psdenets.references import Reference
from psdenets.registries import REGRESSION_SETS, TABLES


@dataclass(frozen=True)
class System:
    """One value of `--model`."""

    name: str  # the value of `--model`
    summary: str  # one line
    build: Reference  # to a function (config, spec) -> ImageClassifier, with the structure it has after training
    fit: Reference  # to a function (config, run directory, watch) that trains until the run is finished
    options: type[SystemOptions]  # a dataclass of groups; other options are rejected
    defaults: Mapping[str, Any] = field(default_factory=dict)  # values that differ from the defaults of the options
    per_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # further ones for some data sets

    def takes(self, flat: Mapping[str, Any]) -> set[str]:
        """The flat names of its options; for an ensemble, also those of the member given in `flat`."""
        return {name for part in self._with_member(flat).options.parts.values() for name in part.open}

    def configured(self, flat: Mapping[str, Any], dataset: str) -> SystemOptions:
        """Its options, with the given flat values and defaults for the rest."""
        system = self._with_member(flat)
        tables = TABLE | (NUMBERS if dataset in REGRESSION_SETS else {}) if dataset in TABLES else {}
        values = {**system.defaults, **tables, **system.per_dataset.get(dataset, {}), **flat}
        if values.get("cut", "vertical") not in ("vertical", "both") and "scope" not in flat:
            values.pop("scope", None)  # a default for cuts in depth
        return system.options.filled(values)

    def _with_member(self, flat: Mapping[str, Any]) -> "System":
        """The system itself; an ensemble with the options and defaults of the member given in `flat`."""
        if self.options is not MembersOptions:
            return self
        member = SYSTEMS[EnsembleOptions(member=flat.get("member", EnsembleOptions.member)).member]
        return replace(member, options=_of_members(member.options))  # type: ignore[arg-type]


@cache
def _of_members(options: type[SystemOptions]) -> type[SystemOptions]:
    """A dataclass with the options of an ensemble and of its members."""
    return type(f"MembersOf{options.__name__}", (MembersOptions, options), {})


def _at(place: str) -> Reference:
    return Reference(f"psdenets.models.{place}")


def _fit(place: str) -> Reference:
    return Reference(f"psdenets.training.{place}")


_KL = ("samples", "objective", "epoch_samples", "kappa", "kappa_warmup")
_PROCESS = ("drift_lr", "kappa_base", "piece")


def _training(*extra: str) -> Any:
    """The options of gradient descent, including only the given ones of those for a KL or a weight process."""
    return part(TrainingOptions, without=[name for name in (*_KL, *_PROCESS) if name not in extra])


class NetworkOptions(SystemOptions):
    """What every network has."""

    net: NetOptions = part(NetOptions)
    prediction: PredictionOptions = part(PredictionOptions)


class PsdeOptions(NetworkOptions):
    """Weights that follow an SDE inside the cut."""

    training: TrainingOptions = part(TrainingOptions)
    cut: CutOptions = part(CutOptions)
    flow: FlowOptions = part(FlowOptions, without=("rtol", "atol"))
    features: FeatureOptions = part(FeatureOptions)
    process: ProcessOptions = part(ProcessOptions)
    head: HeadOptions = part(HeadOptions)


class SdeBnnOptions(PsdeOptions):
    """The cut is full."""

    cut: CutOptions = part(CutOptions, only=(), cut="full")


class PointOptions(NetworkOptions):
    """A network with a single value for every weight."""

    prediction: PredictionOptions = part(PredictionOptions, only=("likelihood", "spread", "mirror"), test_samples=1)
    training: TrainingOptions = _training()


class OdenetOptions(PointOptions):
    """An ODENet."""

    flow: FlowOptions = part(FlowOptions, without=("compile",))


class Resnet32Options(PointOptions):
    """A ResNet."""

    resnet: ResnetOptions = part(ResnetOptions)


class MfviOptions(NetworkOptions):
    """A network with independent Gaussian weights."""

    training: TrainingOptions = _training(*_KL)
    mean_field: MeanFieldOptions = part(MeanFieldOptions)


class MfviResnet32Options(MfviOptions):
    """A ResNet with independent Gaussian weights."""

    resnet: ResnetOptions = part(ResnetOptions)


class MfviOdenetOptions(MfviOptions):
    """An ODENet with independent Gaussian weights."""

    flow: FlowOptions = part(FlowOptions, without=("compile",))


class MfviHyperOdenetOptions(MfviOptions):
    """An ODENet whose weights change with depth, with independent Gaussians for w0 and drift."""

    training: TrainingOptions = _training(*_KL, "drift_lr")
    cut: CutOptions = part(CutOptions, only=(), cut="none")
    flow: FlowOptions = part(FlowOptions, without=("rtol", "atol", "compile"))
    process: ProcessOptions = part(ProcessOptions, only=("theta", "drift", "prior", "ode_solver"))
    head: HeadOptions = part(HeadOptions, only=())


class VbllOptions(MfviResnet32Options):
    """A ResNet with a Gaussian last layer."""


class LaplaceResnet32Options(Resnet32Options):
    """A ResNet with a Laplace approximation of its last layer."""

    prediction: PredictionOptions = part(PredictionOptions, without=("likelihood", "spread"))
    laplace: LaplaceOptions = part(LaplaceOptions)


class MembersOptions(SystemOptions):
    """Several networks; combined with the options of a member, see `System`."""

    ensemble: EnsembleOptions = part(EnsembleOptions)


class HmcSystemOptions(SystemOptions):
    """Hamiltonian Monte Carlo over a perceptron."""

    net: NetOptions = part(NetOptions, only=("width",))
    prediction: PredictionOptions = part(PredictionOptions, only=("test_samples",))
    hmc: HmcOptions = part(HmcOptions)


# The rows of a table: a perceptron as f_h, after a linear map of the columns. Small tables are soon fitted too closely,
# so the epoch with the best validation score is kept. Values are by validation NLL on three tables, one seed.
TABLE: dict[str, Any] = {
    "block": "1-1", "activation": "swish", "stem": "linear", "squeeze_input": 0, "augment_channels": 0,
    "augment": "none", "epochs": 100, "weight_decay": 0.01, "noise_scale": "effect", "sigma": 1.0, "select": "best",
    "epoch_samples": 4,
}  # fmt: skip
NUMBERS: dict[str, Any] = {"likelihood": "gaussian"}
# Numbers from the rows of a table: a rate and a force per weight, so that data narrow the weights that matter, noise on
# half of the depth, and enough steps for the scale of the noise to be learned from a hundred rows. Values are by
# validation NLL on other tables (400 rows of Friedman's function, 350 of a noisy linear one, 150 irises), one seed.
_ROWS: dict[str, Any] = {
    "drift_family": "diagonal", "hold": 1.5, "ratio": 0.5, "steps": 4, "kappa": 0.02, "weight_decay": 0.1,
    "lr": 0.02, "batch_size": 32, "epochs": 60,
}  # fmt: skip
_TABLES = dict.fromkeys(("diabetes", "csv", "numbers"), _ROWS)
_DESCEND = _fit("session:descend")
# Networks that learn on one CPU core: a fixed stem, learned transitions, one convolution per step, and noise relative
# to each layer and to the cut.
LEARNED: dict[str, Any] = {
    "block": "pre-3", "activation": "relu", "stem": "whiten", "transition": "learned", "pool": "max",
    "squeeze_input": 0, "augment_channels": 0, "lr": 3e-3, "clip": None, "weight_decay": 0.01, "noise_scale": "effect",
}  # fmt: skip
_SMALL_IMAGES: dict[str, Any] = {
    **LEARNED, "blocks": "1-1", "steps": 4, "sigma": 12.0, "samples": 4, "objective": "mixture",
}  # fmt: skip
# Folders of somebody's own pictures, 32 to 64 pixels per side, a few hundred or many of them: three scales, noise in
# the last of three blocks, so that samples share the others. Sigma is not tuned: on pictures that are easy to classify,
# tuning switches the noise off. Pictures are not mirrored, because classes may differ in just that.
OWN_PICTURES: dict[str, Any] = {
    **LEARNED, "blocks": "1-1-1", "channels": "32-64-64", "block": "gain-3", "steps": 2, "scope": "network",
    "ratio": 1 / 3, "sigma": 2.0, "kappa_base": 0.01, "samples": 4, "objective": "mixture",
    "batch_size": 32, "epochs": 16, "epoch_test": False, "test_samples": 10, "augment": "jitter",
}  # fmt: skip
_DIGITS = {name: {**_SMALL_IMAGES, "noise_start": 0.6} for name in ("digits", "arrays")} | {"imagefolder": OWN_PICTURES}
# The fully stochastic network does better with noise from the first step on.
_NOISE_AT_ONCE = {**_DIGITS, "digits": _SMALL_IMAGES, "arrays": _SMALL_IMAGES}
# Toys of one column: local features, a posterior that starts narrow and widens if data say nothing, and a fixed last
# layer, because a trained one shrinks all noise at once. Euler steps cannot narrow the noise of a single step, so there
# are many. The KL prices neither w0 nor the deterministic part; without a price, the mean runs away far from data.
_TOY: dict[str, Any] = {
    "block": "bumps", "stem": "none", "augment_channels": 2, "width": 32, "gain": 0.01, "head": "fixed",
    "steps": 30, "ratio": 0.5, "sigma": 1.0, "theta": 0.1, "noise_scale": "effect",
    "drift": "1-1-1", "drift_family": "diagonal", "knots": 1, "hold": 20.0,
    "kappa": 0.2, "deterministic_prior": "map", "weight_decay": 10.0,
    "lr": 0.03, "drift_lr": 0.5, "clip": None, "epochs": 70, "batch_size": 120, "samples": 2,
    "epoch_test": False, "test_samples": 64,
}  # fmt: skip
_TOYS: dict[str, dict[str, Any]] = dict.fromkeys(("gap", "cos", "bimodal"), _TOY) | {
    "heteroscedastic": {**_TOY, "augment_channels": 4, "spread": "predicted"}
}
_RESNET: dict[str, Any] = {"blocks": "5-5-5", "width": 16, "lr": 3e-3, "batch_size": 128}
_SMALL_RESNET: dict[str, Any] = {"digits": {"blocks": "1-1-1", "batch_size": 64}}  # 5-5-5 blocks are too deep for 8 x 8
# At kappa = 1/2, the ELBO itself, mean-field networks of this size barely learn: the KL of 10^5 weights outweighs
# 1,300 images. On the digits 0.05 is still too warm (ODENet: 94 % instead of 98 %).
_COLD = 5e-3
_CONVNET = {"blocks": "2-2", "width": 32, "lr": 3e-3, "kappa": _COLD}

_ALL = (
    System("psde", "weights follow an SDE inside the cut and an ODE elsewhere",
           _at("psde:Classifier"), _DESCEND, PsdeOptions, {}, _DIGITS | _TABLES | _TOYS),
    System("sde-bnn", "the fully stochastic network, --cut full",
           _at("psde:Classifier"), _DESCEND, SdeBnnOptions, {}, _NOISE_AT_ONCE | _TABLES | _TOYS),
    System("odenet", "an ODENet: the same weights at every depth",
           _at("point:odenet"), _DESCEND, OdenetOptions),
    System("resnet32", "the residual network for small images",
           _at("point:resnet"), _DESCEND, Resnet32Options, _RESNET, _SMALL_RESNET),
    System("mfvi", "a convolutional network with independent Gaussian weights",
           _at("meanfield:convnet"), _DESCEND, MfviOptions, _CONVNET),
    System("mfvi-resnet32", "a ResNet with independent Gaussian weights",
           _at("meanfield:resnet"), _DESCEND, MfviResnet32Options, {**_RESNET, "kappa": _COLD}, _SMALL_RESNET),
    System("mfvi-odenet", "an ODENet with independent Gaussian weights",
           _at("meanfield:odenet"), _DESCEND, MfviOdenetOptions, {"kappa": _COLD}),
    System("mfvi-hyperodenet", "an ODENet whose weights change with depth, with independent Gaussians for w0 and drift",
           _at("meanfield:hyper_odenet"), _DESCEND, MfviHyperOdenetOptions, {"kappa": 1e-3}),
    System("vbll", "a ResNet with independent Gaussians in its last layer",
           _at("meanfield:last_layer"), _DESCEND, VbllOptions, {**_RESNET, "kappa": 0.5}, _SMALL_RESNET),
    System("resnet32-laplace", "a ResNet with a Laplace approximation of its last layer",
           _at("laplace:unfitted"), _fit("laplace:fit"), LaplaceResnet32Options, _RESNET, _SMALL_RESNET),
    System("ensemble", "several networks trained with different seeds (--member, --members)",
           _at("ensemble:untrained"), _fit("ensemble:fit"), MembersOptions),
    System("hmc", "Hamiltonian Monte Carlo over a small perceptron",
           _at("hmc.model:HMC"), _fit("hmc:fit"), HmcSystemOptions, {"width": 20, "prior_std": 4.0}),
)  # fmt: skip
SYSTEMS: dict[str, System] = {system.name: system for system in _ALL}
