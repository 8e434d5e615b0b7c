"""Deep ensemble: M networks trained with different seeds, whose probabilities are averaged."""

from collections.abc import Sequence
from typing import cast, final

import torch
from torch import Tensor, nn

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.models.base import ImageClassifier, Noiseless
from psdenets.systems import SYSTEMS

_SEEDS_APART = 1000  # so ensembles with seeds 0 and 1 have no member in common


@final
class Ensemble(ImageClassifier):
    """An ensemble; its members are the weight samples, so it has at most as many samples as members."""

    def __init__(self, config: Config, spec: ImageSpec, members: Sequence[ImageClassifier]) -> None:
        super().__init__(config, spec)
        self.members = nn.ModuleList(members)

    def draw(self, samples: int = 1, generator: torch.Generator | None = None) -> Noiseless:  # noqa: ARG002 - no noise
        return Noiseless(self.mean.new_zeros(min(samples, len(self.members))))

    def logits(self, x: Tensor, weights: Noiseless) -> Tensor:
        members = [cast("ImageClassifier", member) for member in self.members]
        return torch.cat([member.logits(x, member.draw(1)) for member in members[: len(weights.kl)]])

    def parameter_counts(self) -> dict[str, int]:
        return {"weights": sum(p.numel() for p in self.members.parameters())}


def untrained(config: Config, spec: ImageSpec) -> Ensemble:
    """Build `--model ensemble`, with untrained members."""
    configs = [member_config(config, k, "") for k in range(config.system.ensemble.members)]
    return Ensemble(config, spec, [SYSTEMS[member.model].build(member, spec) for member in configs])


def member_config(config: Config, k: int, out: str) -> Config:
    """The config of member k, with its seed and an equal share of the time limit."""
    ensemble, limit = config.system.ensemble, config.training.max_seconds
    return config.replace(
        model=ensemble.member,
        seed=config.seed * _SEEDS_APART + k,
        out=out,
        max_seconds=None if limit is None else limit / ensemble.members,
        max_seconds_of=None,
        preset=None,
    )
