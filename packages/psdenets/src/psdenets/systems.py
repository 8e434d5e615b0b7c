"""The systems of the paper's Table 1, one per value of `--model`: how to build and train them, and their options.

To add a system, add a `System` to `SYSTEMS`. Its options are composed of the groups in `psdenets.options`; all other
flags are rejected. Nothing here imports torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from psdenets.options.baselines import EnsembleOptions, HmcOptions, LaplaceOptions, MeanFieldOptions
from psdenets.options.cut import CutOptions
from psdenets.options.fields import Part, filled, part
from psdenets.options.network import FeatureOptions, FlowOptions, NetOptions, ResnetOptions
from psdenets.options.process import HeadOptions, ProcessOptions
from psdenets.options.systems import SystemOptions
from psdenets.options.training import PredictionOptions, TrainingOptions
from psdenets.references import Reference


@dataclass(frozen=True)
class System:
    """One value of `--model`."""

    name: str  # the value of `--model`
    summary: str  # one line
    build: Reference  # to a function (config, spec) -> ImageClassifier, with the structure it has after training
    fit: Reference  # to a function (config, run directory) -> exit status
    options: Mapping[str, Part]  # groups of options by their name in `SystemOptions`; other options are rejected
    defaults: Mapping[str, Any] = field(default_factory=dict)  # values that differ from the defaults of the options
    per_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # further ones for some data sets

    def takes(self, flat: Mapping[str, Any]) -> set[str]:
        """The flat names of its options; for an ensemble, also those of the member given in `flat`."""
        return {name for part in self._with_member(flat).options.values() for name in part.open}

    def configured(self, flat: Mapping[str, Any], dataset: str) -> SystemOptions:
        """Its options, with the given flat values and defaults for the rest."""
        system = self._with_member(flat)
        values = {**system.defaults, **system.per_dataset.get(dataset, {}), **flat}
        return SystemOptions(system.options, **filled(system.options, values))

    def _with_member(self, flat: Mapping[str, Any]) -> "System":
        """The system itself; an ensemble with the options and defaults of the member given in `flat`."""
        if "ensemble" not in self.options:
            return self
        member = SYSTEMS[EnsembleOptions(member=flat.get("member", EnsembleOptions.member)).member]
        return replace(member, options={**self.options, **member.options})


def _at(place: str) -> Reference:
    return Reference(f"psdenets.models.{place}")


def _fit(place: str) -> Reference:
    return Reference(f"psdenets.training.{place}")


def groups(**parts: Part) -> dict[str, Part]:
    """Groups of options, including those that every system has unless they are given."""
    return {"net": part(NetOptions), "prediction": part(PredictionOptions), **parts}


_KL = ("samples", "objective", "epoch_samples", "kappa", "kappa_warmup")
_PROCESS = ("drift_lr", "kappa_base", "piece")


def _training(*extra: str) -> Part:
    """The options of gradient descent, including only the given ones of those for a KL or a weight process."""
    return part(TrainingOptions, without=[name for name in (*_KL, *_PROCESS) if name not in extra])


_POINT = part(PredictionOptions, only=("likelihood",), test_samples=1)
_ONLY_SAMPLES = part(PredictionOptions, only=("test_samples",))
_CONSTANT_WEIGHTS = part(FlowOptions, without=("compile",))
_NORM, _GAUSSIANS = part(ResnetOptions), part(MeanFieldOptions)
_PSDE = groups(
    training=_training(*_KL, *_PROCESS),
    cut=part(CutOptions),
    flow=part(FlowOptions, without=("rtol", "atol")),
    features=part(FeatureOptions),
    process=part(ProcessOptions),
    head=part(HeadOptions),
)
_GAUSSIAN_RESNET = groups(training=_training(*_KL), resnet=_NORM, mean_field=_GAUSSIANS)
_HYPER = groups(
    training=_training(*_KL, "drift_lr"),
    cut=part(CutOptions, only=(), cut="none"),
    flow=part(FlowOptions, without=("rtol", "atol", "compile")),
    mean_field=_GAUSSIANS,
    process=part(ProcessOptions, only=("theta", "drift", "prior", "ode_solver")),
    head=part(HeadOptions, only=()),
)

_DESCEND = _fit("session:descend")
# Networks that learn on one CPU core: a fixed stem, learned transitions, one convolution per step, and noise relative
# to each layer and to the cut.
LEARNED: dict[str, Any] = {
    "block": "pre-3", "activation": "relu", "stem": "whiten", "transition": "learned", "pool": "max",
    "squeeze_input": 0, "augment_channels": 0, "lr": 3e-3, "clip": None, "weight_decay": 0.01, "noise_scale": "effect",
}  # fmt: skip
_DIGITS = {"digits": {**LEARNED, "blocks": "1-1", "steps": 4, "sigma": 6.0}}
_RESNET: dict[str, Any] = {"blocks": "5-5-5", "width": 16, "lr": 3e-3, "batch_size": 128}
_SMALL_RESNET: dict[str, Any] = {"digits": {"blocks": "1-1-1", "batch_size": 64}}  # 5-5-5 blocks are too deep for 8 x 8
# At kappa = 1/2, the ELBO itself, mean-field networks of this size barely learn: the KL of 10^5 weights outweighs
# 1,300 images. On the digits 0.05 is still too warm (ODENet: 94 % instead of 98 %).
_COLD = 5e-3
_CONVNET = {"blocks": "2-2", "width": 32, "lr": 3e-3, "kappa": _COLD}

_ALL = (
    System("psde", "weights follow an SDE inside the cut and an ODE elsewhere",
           _at("psde:Classifier"), _DESCEND, _PSDE, {}, _DIGITS),
    System("sde-bnn", "the fully stochastic network, --cut full",
           _at("psde:Classifier"), _DESCEND, {**_PSDE, "cut": part(CutOptions, only=(), cut="full")}, {}, _DIGITS),
    System("odenet", "an ODENet: the same weights at every depth",
           _at("point:odenet"), _DESCEND, groups(prediction=_POINT, training=_training(), flow=_CONSTANT_WEIGHTS)),
    System("resnet32", "the residual network for small images",
           _at("point:resnet"), _DESCEND, groups(prediction=_POINT, training=_training(), resnet=_NORM),
           _RESNET, _SMALL_RESNET),
    System("mfvi", "a convolutional network with independent Gaussian weights",
           _at("meanfield:convnet"), _DESCEND, groups(training=_training(*_KL), mean_field=_GAUSSIANS), _CONVNET),
    System("mfvi-resnet32", "a ResNet with independent Gaussian weights",
           _at("meanfield:resnet"), _DESCEND, _GAUSSIAN_RESNET, {**_RESNET, "kappa": _COLD}, _SMALL_RESNET),
    System("mfvi-odenet", "an ODENet with independent Gaussian weights",
           _at("meanfield:odenet"), _DESCEND,
           groups(training=_training(*_KL), flow=_CONSTANT_WEIGHTS, mean_field=_GAUSSIANS), {"kappa": _COLD}),
    System("mfvi-hyperodenet", "an ODENet whose weights change with depth, with independent Gaussians for w0 and drift",
           _at("meanfield:hyper_odenet"), _DESCEND, _HYPER, {"kappa": 1e-3}),
    System("vbll", "a ResNet with independent Gaussians in its last layer",
           _at("meanfield:last_layer"), _DESCEND, _GAUSSIAN_RESNET, {**_RESNET, "kappa": 0.5}, _SMALL_RESNET),
    System("resnet32-laplace", "a ResNet with a Laplace approximation of its last layer",
           _at("laplace:unfitted"), _fit("laplace:fit"),
           groups(prediction=_ONLY_SAMPLES, training=_training(), resnet=_NORM, laplace=part(LaplaceOptions)),
           _RESNET, _SMALL_RESNET),
    System("ensemble", "several networks trained with different seeds (--member, --members)",
           _at("ensemble:untrained"), _fit("ensemble:fit"), {"ensemble": part(EnsembleOptions)}),
    System("hmc", "Hamiltonian Monte Carlo over a small perceptron",
           _at("hmc.model:HMC"), _fit("hmc:fit"),
           groups(net=part(NetOptions, only=("width",)), prediction=_ONLY_SAMPLES, hmc=part(HmcOptions)),
           {"width": 20, "prior_std": 4.0}),
)  # fmt: skip
SYSTEMS: dict[str, System] = {system.name: system for system in _ALL}
