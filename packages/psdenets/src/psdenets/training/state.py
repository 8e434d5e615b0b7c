"""What a checkpoint of a network must hold before it is restored: the position, and tensors that fit the network."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from psdenets.errors import BadInput
from psdenets.runs.forms import EPOCH
from psdenets.runs.schema import COUNT, SECONDS, require
from psdenets.runs.weights import Form, TensorFile, forms_of

_POSITION = {
    "epoch": COUNT, "batch": COUNT, "step": COUNT, "seconds": SECONDS, "start_seconds?": SECONDS,
    "best_val": ([float, float], None), "best_epoch": (COUNT, None), "history": [EPOCH],
}  # fmt: skip
_VALUES = {"position": _POSITION, "sums": {"loss": float, "kl": float}}
_MOMENTS = ("exp_avg", "exp_avg_sq")
_STEP = Form((), "F32")


def check_values(values: Mapping[str, Any], batches: int) -> None:
    """Raise `BadInput` unless these are a position, and the sums of an epoch with this number of batches."""
    require(values, _VALUES)
    at = values["position"]
    if at["batch"] > batches or at["step"] > at["epoch"] * batches + at["batch"] or len(at["history"]) != at["epoch"]:
        raise BadInput(
            f"expected a position within epochs of {batches} batches, got epoch {at['epoch']}, batch {at['batch']}, "
            f"step {at['step']} with {len(at['history'])} finished epochs"
        )


def check_tensors(file: TensorFile, at: Mapping[str, Any], model: nn.Module, averaged: bool, images: int) -> None:
    """Raise `BadInput` unless the tensors are those of `Trainer.snapshot` at a position.

    Args:
        file: the file of tensors.
        at: the position.
        model: the network in training.
        averaged: whether its weights are averaged.
        images: images seen in the epoch so far.
    """
    expected: dict[str, Form] = {}
    state = forms_of(model.state_dict())
    for part, wanted in (("model", True), ("ema", averaged), ("best", at["best_epoch"] is not None)):
        expected |= {f"{part}.{name}": form for name, form in state.items()} if wanted else {}
    for name in [name for name in expected if name.endswith(".sigma_factor") and name not in file.forms]:
        del expected[name]  # checkpoints from before --tune-sigma
    file.require(expected | _adam(file, at["step"], model) | _epoch(file, at["batch"], images))


def _adam(file: TensorFile, step: int, model: nn.Module) -> dict[str, Form]:
    """Adam's moments; weights that no gradient has reached have none, but after a step not all lack them."""
    forms = forms_of(dict(model.named_parameters()))
    moved = [name for name in forms if any(f"adam.{name}.{key}" in file.forms for key in ("step", *_MOMENTS))]
    if step > 0 and not moved:
        raise BadInput(f"expected Adam's moments after {step} steps, but there are no such tensors")
    found = {f"adam.{name}.{key}": forms[name] for name in moved for key in _MOMENTS}
    return found | {f"adam.{name}.step": _STEP for name in moved}


def _epoch(file: TensorFile, batch: int, images: int) -> dict[str, Form]:
    """Predictions and labels of the batches so far in the epoch."""
    if batch == 0:
        return {}
    found = {name: file.forms.get(name, Form((), "")) for name in ("epoch.probs", "epoch.labels")}
    probs, labels = found["epoch.probs"].shape, found["epoch.labels"].shape
    if labels != (images,) or len(probs) not in (2, 3) or probs[-2] != images:
        raise BadInput(f"expected predictions for {images} images, got those of shape {probs}, and labels {labels}")
    return found
