"""The options of each system, composed of groups; options that a system does not use are left out.

`config.system` is one of these. Groups that a system does not have are None.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from psdenets.errors import BadInput
from psdenets.options.baselines import EnsembleOptions, HmcOptions, LaplaceOptions, MeanFieldOptions
from psdenets.options.cut import CutOptions
from psdenets.options.fields import Composed, part
from psdenets.options.network import FlowOptions, NetOptions, ResnetOptions
from psdenets.options.process import HeadOptions, ProcessOptions
from psdenets.options.training import PredictionOptions, TrainingOptions

_KL = ("samples", "epoch_samples", "kappa", "kappa_warmup")
_PROCESS = ("drift_lr", "kappa_base", "piece")
_ONE_SAMPLE: dict[str, Any] = {"only": ("likelihood",), "test_samples": 1}


def _training(*extra: str) -> Any:
    """The options of gradient descent, including only the given ones of those for a KL or a weight process."""
    return part(TrainingOptions, without=[name for name in (*_KL, *_PROCESS) if name not in extra])


class SystemOptions(Composed):
    """The groups used by generic code, and the rules between groups."""

    net: NetOptions = part(NetOptions)
    prediction: PredictionOptions = part(PredictionOptions)
    training: TrainingOptions | None = None
    cut: CutOptions | None = None
    flow: FlowOptions | None = None
    resnet: ResnetOptions | None = None
    mean_field: MeanFieldOptions | None = None
    process: ProcessOptions | None = None

    def __post_init__(self) -> None:
        if self.flow is not None:
            gradient = "backprop" if self.process is None else self.process.gradient
            self.flow.check_method(gradient, moving_weights=self.cut is not None)
            if self.cut is not None:
                self.cut.check_steps(self.flow.steps)
        batch_norm = self.resnet is not None and self.resnet.norm == "batch"
        if batch_norm and self.training is not None and self.training.batch_size < 2:
            raise BadInput(f"expected --batch-size of 2 or more with --norm batch, got {self.training.batch_size}")

    @property
    def final_samples(self) -> int:
        """Number of weight samples for the final evaluation."""
        return self.prediction.test_samples

    @property
    def kl_weight(self) -> float | None:
        """kappa; None if there is no KL."""
        if self.training is None:
            return None
        if self.mean_field is not None:
            return self.training.kl_weight(0.0)
        noisy_share = 0.0 if self.cut is None else self.cut.noisy_share
        return self.training.kl_weight(noisy_share) if noisy_share > 0 else None

    @property
    def slug(self) -> str | None:
        """A short name for directories, if the name of the system is not specific enough."""
        return None

    @property
    def words(self) -> str | None:
        """A readable description, if the name of the system is not specific enough."""
        return None

    def flat(self) -> dict[str, Any]:
        """All values by flat name."""
        return {name: getattr(getattr(self, group), name) for group, part in self.parts.items() for name in part.open}

    def idle(self) -> dict[str, str]:
        """Options that have no effect given the others, with the message for someone who sets them."""
        return {name: message for group in self.parts for name, message in getattr(self, group).idle().items()}


class PsdeOptions(SystemOptions):
    """Weights that follow an SDE inside the cut and an ODE elsewhere."""

    cut: CutOptions = part(CutOptions)
    flow: FlowOptions = part(FlowOptions, without=("rtol", "atol"))
    process: ProcessOptions = part(ProcessOptions)
    head: HeadOptions = part(HeadOptions)
    training: TrainingOptions = _training(*_KL, *_PROCESS)

    @property
    def slug(self) -> str | None:
        return self.cut.slug

    @property
    def words(self) -> str | None:
        return f"cut {self.cut.cut}: {self.cut.words}"


class SdeBnnOptions(SystemOptions):
    """The fully stochastic network."""

    cut: CutOptions = part(CutOptions, only=(), cut="full")
    flow: FlowOptions = part(FlowOptions, without=("rtol", "atol"))
    process: ProcessOptions = part(ProcessOptions)
    head: HeadOptions = part(HeadOptions)
    training: TrainingOptions = _training(*_KL, *_PROCESS)


class OdenetOptions(SystemOptions):
    """An ODENet with the same weights at every depth."""

    prediction: PredictionOptions = part(PredictionOptions, **_ONE_SAMPLE)
    flow: FlowOptions = part(FlowOptions, without=("compile",))
    training: TrainingOptions = _training()


class Resnet32Options(SystemOptions):
    """A ResNet."""

    prediction: PredictionOptions = part(PredictionOptions, **_ONE_SAMPLE)
    resnet: ResnetOptions = part(ResnetOptions)
    training: TrainingOptions = _training()


class MfviOptions(SystemOptions):
    """A convolutional network with independent Gaussian weights."""

    mean_field: MeanFieldOptions = part(MeanFieldOptions)
    training: TrainingOptions = _training(*_KL)


class MfviResnetOptions(SystemOptions):
    """A ResNet with independent Gaussian weights, in all layers or in the last."""

    resnet: ResnetOptions = part(ResnetOptions)
    mean_field: MeanFieldOptions = part(MeanFieldOptions)
    training: TrainingOptions = _training(*_KL)


class MfviOdenetOptions(SystemOptions):
    """An ODENet with independent Gaussian weights."""

    flow: FlowOptions = part(FlowOptions, without=("compile",))
    mean_field: MeanFieldOptions = part(MeanFieldOptions)
    training: TrainingOptions = _training(*_KL)


class MfviHyperOdenetOptions(SystemOptions):
    """An ODENet whose weights follow an ODE over depth, with independent Gaussians for w0 and the drift."""

    cut: CutOptions = part(CutOptions, only=(), cut="none")
    flow: FlowOptions = part(FlowOptions, without=("rtol", "atol", "compile"))
    process: ProcessOptions = part(ProcessOptions, only=("theta", "drift", "prior", "ode_solver"))
    head: HeadOptions = part(HeadOptions, only=())
    mean_field: MeanFieldOptions = part(MeanFieldOptions)
    training: TrainingOptions = _training(*_KL, "drift_lr")


class LaplaceResnetOptions(SystemOptions):
    """A ResNet with a Laplace approximation of its last layer."""

    prediction: PredictionOptions = part(PredictionOptions, only=("test_samples",))
    resnet: ResnetOptions = part(ResnetOptions)
    laplace: LaplaceOptions = part(LaplaceOptions)
    training: TrainingOptions = _training()


class HmcSystemOptions(SystemOptions):
    """Draws from the exact posterior of a small perceptron."""

    net: NetOptions = part(NetOptions, only=("width",))
    prediction: PredictionOptions = part(PredictionOptions, only=("test_samples",))
    hmc: HmcOptions = part(HmcOptions)


class EnsembleSystemOptions(SystemOptions):
    """Several networks of one system; `of` holds the options of that system."""

    net: NetOptions = part(NetOptions, only=())
    prediction: PredictionOptions = part(PredictionOptions, only=())
    ensemble: EnsembleOptions = part(EnsembleOptions)
    of: SystemOptions = field(default_factory=Resnet32Options)

    def __post_init__(self) -> None:
        for name in ("net", "prediction", "training", "flow", "cut"):
            object.__setattr__(self, name, getattr(self.of, name))

    @property
    def final_samples(self) -> int:
        return self.ensemble.members

    def flat(self) -> dict[str, Any]:
        return {**super().flat(), **self.of.flat()}

    def idle(self) -> dict[str, str]:
        return self.of.idle()
