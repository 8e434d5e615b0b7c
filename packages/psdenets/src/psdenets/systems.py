"""The systems of the paper's Table 1, one per value of `--model`: how to build and train them, and their options.

To add a system, add a `System` to `SYSTEMS`. Its options are composed of the groups in `psdenets.options`; all other
flags are rejected. Nothing here imports torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from psdenets.options.baselines import EnsembleOptions
from psdenets.options.systems import (
    EnsembleSystemOptions,
    HmcSystemOptions,
    LaplaceResnetOptions,
    MfviHyperOdenetOptions,
    MfviOdenetOptions,
    MfviOptions,
    MfviResnetOptions,
    OdenetOptions,
    PsdeOptions,
    Resnet32Options,
    SdeBnnOptions,
    SystemOptions,
)
from psdenets.references import Reference


@dataclass(frozen=True)
class System:
    """One value of `--model`.

    Args:
        name: the value of `--model`.
        summary: a one-line description.
        build: reference to a function (config, spec) -> ImageClassifier, with the structure it has after training.
        fit: reference to a function (config, run directory) -> exit status.
        options: its class of options, a `SystemOptions`.
        defaults: values that differ from the defaults of the options.
        per_dataset: further such values for particular data sets.
    """

    name: str
    summary: str
    build: Reference
    fit: Reference
    options: type[SystemOptions]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    per_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def takes(self, flat: Mapping[str, Any]) -> set[str]:
        """The flat names of its options; for an ensemble, also those of the member given in `flat`."""
        own = {name for part in self.options.parts.values() for name in part.open}
        return own | self._member(flat).takes(flat) if self._has_members else own

    def configured(self, flat: Mapping[str, Any], dataset: str) -> SystemOptions:
        """Its options, with the given flat values and defaults for the rest."""
        values = {**self.defaults, **self.per_dataset.get(dataset, {}), **flat}
        groups = self.options.groups(values)
        if self._has_members:
            groups["of"] = self._member(flat).configured(flat, dataset)
        return self.options(**groups)

    @property
    def _has_members(self) -> bool:
        return self.options is EnsembleSystemOptions

    def _member(self, flat: Mapping[str, Any]) -> System:
        return SYSTEMS[EnsembleOptions(member=flat.get("member", EnsembleOptions.member)).member]


def _at(place: str) -> Reference:
    return Reference(f"psdenets.models.{place}")


def _fit(place: str) -> Reference:
    return Reference(f"psdenets.training.{place}")


_DESCEND = _fit("session:descend")
_RESNET: dict[str, Any] = {"blocks": "5-5-5", "width": 16, "lr": 3e-3, "batch_size": 128}
_SMALL_RESNET: dict[str, Any] = {"digits": {"blocks": "1-1-1", "batch_size": 64}}  # 5-5-5 blocks are too deep for 8 x 8
# At kappa = 1/2, the ELBO itself, mean-field networks of this size barely learn: the KL of 10^5 weights outweighs
# 1,300 images. On the digits 0.05 is still too warm (ODENet: 94 % instead of 98 %).
_COLD = 5e-3
_CONVNET = {"blocks": "2-2", "width": 32, "lr": 3e-3, "kappa": _COLD}

_ALL = (
    System("psde", "weights follow an SDE inside the cut and an ODE elsewhere",
           _at("psde:Classifier"), _DESCEND, PsdeOptions),
    System("sde-bnn", "the fully stochastic network, --cut full",
           _at("psde:Classifier"), _DESCEND, SdeBnnOptions),
    System("odenet", "an ODENet: the same weights at every depth",
           _at("point:odenet"), _DESCEND, OdenetOptions),
    System("resnet32", "the residual network for small images",
           _at("point:resnet"), _DESCEND, Resnet32Options, _RESNET, _SMALL_RESNET),
    System("mfvi", "a convolutional network with independent Gaussian weights",
           _at("meanfield:convnet"), _DESCEND, MfviOptions, _CONVNET),
    System("mfvi-resnet32", "a ResNet with independent Gaussian weights",
           _at("meanfield:resnet"), _DESCEND, MfviResnetOptions, {**_RESNET, "kappa": _COLD}, _SMALL_RESNET),
    System("mfvi-odenet", "an ODENet with independent Gaussian weights",
           _at("meanfield:odenet"), _DESCEND, MfviOdenetOptions, {"kappa": _COLD}),
    System("mfvi-hyperodenet", "an ODENet whose weights change with depth, with independent Gaussians for w0 and drift",
           _at("meanfield:hyper_odenet"), _DESCEND, MfviHyperOdenetOptions, {"kappa": 1e-3}),
    System("vbll", "a ResNet with independent Gaussians in its last layer",
           _at("meanfield:last_layer"), _DESCEND, MfviResnetOptions, {**_RESNET, "kappa": 0.5}, _SMALL_RESNET),
    System("resnet32-laplace", "a ResNet with a Laplace approximation of its last layer",
           _at("laplace:unfitted"), _fit("laplace:fit"), LaplaceResnetOptions, _RESNET, _SMALL_RESNET),
    System("ensemble", "several networks trained with different seeds (--member, --members)",
           _at("ensemble:untrained"), _fit("ensemble:fit"), EnsembleSystemOptions),
    System("hmc", "Hamiltonian Monte Carlo over a small perceptron",
           _at("hmc.model:HMC"), _fit("hmc:fit"), HmcSystemOptions, {"width": 20, "prior_std": 4.0}),
)  # fmt: skip
SYSTEMS: dict[str, System] = {system.name: system for system in _ALL}
