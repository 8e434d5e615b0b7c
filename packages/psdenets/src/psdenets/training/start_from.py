"""Start a run from the weights of a finished one (`--start-from RUN`), e.g. add noise to a trained network.

Tensors with the same name and shape are copied; all others keep their initial values. Cuts without a reset differ only
in where the noise is, so all weights of `--cut none` fit them. The drift of a horizontal cut is split in two networks
and starts at zero again.
"""

from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput
from psdenets.options.fields import flag
from psdenets.runs.forms import read_metrics
from psdenets.runs.loading import read_config
from psdenets.runs.weights import load_weights

_SAME_SPLIT = ("val_share", "split_seed")
_OF_THE_RUN = "sigma_factor"  # found by --tune-sigma for the other run


class Start(NamedTuple):
    """Weights to start from, and the training time that they took."""

    run: Path
    tensors: dict[str, Tensor]
    seconds: float


def start_of(config: Config, spec: ImageSpec) -> Start | None:
    """Read the run of `--start-from`, if there is one.

    Raises:
        BadInput: if it is not a finished run, or if it was trained on other classes, or on validation images of
            this run.
    """
    if config.training.start_from is None:
        return None
    run = Path(config.training.start_from)
    source, images = read_config(run, bool(config.references))
    if not (run / "metrics.json").is_file():
        raise BadInput(f"expected a finished run for --start-from, got {run}; --resume finishes it")
    if images.classes != spec.classes:
        raise BadInput(f"expected a run with the same classes for --start-from, got {run} of {source.dataset}")
    for name in _SAME_SPLIT if source.dataset == config.dataset else ():
        ours, theirs = getattr(config, name), getattr(source, name)
        if ours != theirs:
            raise BadInput(f"expected {flag(name)} {theirs} as in {run}, which may know validation images, got {ours}")
    seconds: float = read_metrics(run)["seconds"]
    return Start(run, load_weights(run / "model.safetensors"), seconds)


def copied(start: Start, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a run that fit a network with this state; raises BadInput if there are none."""
    fitting = {
        name: tensor
        for name, tensor in start.tensors.items()
        if name != _OF_THE_RUN and name in state and state[name].shape == tensor.shape
    }
    if not fitting:
        raise BadInput(f"expected weights that fit this network, but all names or shapes in {start.run} differ")
    return fitting
