"""The options of a system: its groups, and the rules between them."""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from psdenets.errors import BadInput
from psdenets.options.baselines import EnsembleOptions, HmcOptions, LaplaceOptions, MeanFieldOptions
from psdenets.options.cut import CutOptions
from psdenets.options.fields import Part, filled, flag, part
from psdenets.options.network import FeatureOptions, FlowOptions, NetOptions, ResnetOptions
from psdenets.options.process import HeadOptions, ProcessOptions
from psdenets.options.training import PredictionOptions, TrainingOptions


@typing.dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(part,))
class SystemOptions:
    """The options of a system. Every subclass is a frozen dataclass of groups; groups that it lacks are None."""

    net: NetOptions
    prediction: PredictionOptions
    training: TrainingOptions | None = None
    cut: CutOptions | None = None
    flow: FlowOptions | None = None
    features: FeatureOptions = FeatureOptions()
    resnet: ResnetOptions | None = None
    mean_field: MeanFieldOptions | None = None
    process: ProcessOptions | None = None
    head: HeadOptions | None = None
    laplace: LaplaceOptions | None = None
    hmc: HmcOptions | None = None
    ensemble: EnsembleOptions | None = None

    parts: ClassVar[dict[str, Part]]  # the groups by name, and what can be set in each

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        cls.parts = {item.name: item.metadata["part"] for item in dataclasses.fields(cls)}  # type: ignore[arg-type]

    @classmethod
    def filled(cls, flat: Mapping[str, Any]) -> Self:
        """The options with the given flat values, and defaults for the rest."""
        return cls(**filled(cls.parts, flat))

    def __post_init__(self) -> None:
        if self.flow is not None:
            gradient = "backprop" if self.process is None else self.process.gradient
            self.flow.check_method(gradient, moving_weights=self.cut is not None)
            if self.cut is not None:
                self.cut.check_steps(self.flow.counts)
        self._check_features()
        batch_norm = self.features.learned or (self.resnet is not None and self.resnet.norm == "batch")
        if batch_norm and self.training is not None and self.training.batch_size < 2:
            raise BadInput(
                f"expected --batch-size of 2 or more with batch normalisation, got {self.training.batch_size}"
            )

    def _check_features(self) -> None:
        if not self.features.learned:
            return
        if len(self.features.widths(len(self.net.scales))) != len(self.net.scales):
            raise BadInput(
                f"expected --channels for each of the {len(self.net.scales)} scales of --blocks {self.net.blocks}, "
                f"got {self.features.channels}"
            )
        if self.training is not None and self.training.piece is not None:
            raise BadInput("expected whole batches with --transition learned, which normalises them, got --piece")

    @property
    def final_samples(self) -> int:
        """Number of weight samples for the final evaluation."""
        return self.prediction.test_samples if self.ensemble is None else self.ensemble.members

    @property
    def kl_weight(self) -> float | None:
        """kappa; None if there is no KL."""
        noisy_share = 0.0 if self.cut is None else self.cut.noisy_share
        if self.training is None or (self.mean_field is None and noisy_share == 0):
            return None
        return self.training.kl_weight(noisy_share)

    def flat(self) -> dict[str, Any]:
        """All values that can be set, by flat name."""
        return {name: getattr(getattr(self, group), name) for group, part in self.parts.items() for name in part.open}

    def idle(self) -> dict[str, str]:
        """Options that have no effect given the others, with the message for someone who sets them."""
        found = {name: message for group in self.parts for name, message in getattr(self, group).idle().items()}
        if self.cut is not None and self.cut.noisy_share == 0:
            for name in ("noise_start", "tune_sigma"):
                found[name] = f"expected {flag(name)} with noise, got --cut {self.cut.cut}"
        return found
