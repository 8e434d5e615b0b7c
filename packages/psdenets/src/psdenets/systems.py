"""The systems of the paper's Table 1 as `--model` names: what each of them is told, and where its own values differ.

A flag that a system would not look at is refused, so that no option does nothing. Nothing here imports torch.
"""

from __future__ import annotations

from typing import Any, Literal

ModelName = Literal[
    "psde",
    "sde-bnn",
    "odenet",
    "resnet32",
    "mfvi",
    "mfvi-resnet32",
    "mfvi-odenet",
    "mfvi-hyperodenet",
    "vbll",
    "resnet32-laplace",
    "ensemble",
    "hmc",
]

PROCESSES = ("psde", "sde-bnn")  # weights follow an SDE or ODE in depth
MEAN_FIELD = ("mfvi", "mfvi-resnet32", "mfvi-odenet", "mfvi-hyperodenet", "vbll")
POINTS = ("odenet", "resnet32")  # weights are numbers
RESNETS = ("resnet32", "mfvi-resnet32", "vbll", "resnet32-laplace")
FLOWS = (*PROCESSES, "odenet", "mfvi-odenet", "mfvi-hyperodenet")  # have a hidden drift f_h
DESCENDING = (*PROCESSES, *POINTS, *MEAN_FIELD, "resnet32-laplace", "ensemble")  # trained by Adam, epoch after epoch
BASELINES = (*POINTS, *MEAN_FIELD, "sde-bnn", "resnet32-laplace", "ensemble", "hmc")

# Which systems look at a flag; a flag that is not named here is for all.
LOOKED_AT_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cut", "order", "ratio", "share", "t1", "t2", "at_t2", "scope", "sde_steps"), ("psde",)),
    "drift_deterministic": ("psde",),
    **dict.fromkeys(("sigma", "gradient", "piece", "compile", "head", "kappa_base"), PROCESSES),
    **dict.fromkeys(("drift", "drift_lr", "theta"), (*PROCESSES, "mfvi-hyperodenet")),
    **dict.fromkeys(("block", "activation", "gain", "augment_channels", "squeeze_input", "steps"), FLOWS),
    "hidden_method": FLOWS,
    **dict.fromkeys(("rtol", "atol"), ("odenet", "mfvi-odenet")),
    "norm": RESNETS,
    "blocks": (*FLOWS, *RESNETS, "mfvi"),
    "log_std": (*MEAN_FIELD, *PROCESSES),
    "prior_std": (*MEAN_FIELD, *PROCESSES, "hmc"),
    "noise": MEAN_FIELD,
    **dict.fromkeys(("samples", "kappa", "kappa_warmup", "epoch_samples"), (*PROCESSES, *MEAN_FIELD)),
    "test_samples": (*PROCESSES, *MEAN_FIELD, "resnet32-laplace", "hmc"),
    **dict.fromkeys(("members", "member"), ("ensemble",)),
    **dict.fromkeys(("hessian", "predictive", "laplace_of"), ("resnet32-laplace",)),
    **dict.fromkeys(("chains", "warmup", "draws", "leapfrog"), ("hmc",)),
    **dict.fromkeys(("augment", "epochs", "batch_size", "lr", "schedule", "clip", "ema", "select"), DESCENDING),
    **dict.fromkeys(("max_seconds", "max_seconds_of", "checkpoint_seconds"), DESCENDING),
}

_RESNET: dict[str, Any] = {"blocks": "5-5-5", "width": 16, "lr": 3e-3, "batch_size": 128}
# At kappa = 1/2, the ELBO itself, mean-field networks of this size hardly learn: the KL of 10^5 weights is greater than
# anything that 1,300 images can say. On the digits 0.05 is still too warm (ODENet: 94 % instead of 98 %).
_COLD = 5e-3
_VALUES: dict[str, dict[str, Any]] = {
    "resnet32": _RESNET,
    "mfvi-resnet32": {**_RESNET, "kappa": _COLD},
    "mfvi": {"blocks": "2-2", "width": 32, "lr": 3e-3, "kappa": _COLD},
    "mfvi-odenet": {"kappa": _COLD},
    "mfvi-hyperodenet": {"kappa": 1e-3},
    "vbll": {**_RESNET, "kappa": 0.5},
    "resnet32-laplace": _RESNET,
    "hmc": {"width": 20, "prior_std": 4.0},
}
_ON_SMALL_IMAGES: dict[str, Any] = {"blocks": "1-1-1", "batch_size": 64}  # of a ResNet, where 5-5-5 would be too deep
_SMALL = ("digits",)


def values_of_model(model: str, dataset: str, member: str) -> dict[str, Any]:
    """Where a system's values differ from the defaults of `Config`; those of the member for an ensemble.

    Example:
        >>> values_of_model("resnet32", "digits", "resnet32")["blocks"], values_of_model("sde-bnn", "mnist", "")["cut"]
        ('1-1-1', 'full')
    """
    if model == "ensemble":
        return values_of_model(member, dataset, member)
    small = _ON_SMALL_IMAGES if model in RESNETS and dataset in _SMALL else {}
    fixed = {"cut": cut_of(model)} if model in BASELINES else {}
    once = {"test_samples": 1} if model in POINTS else {}
    return {**fixed, **once, **_VALUES.get(model, {}), **small}


def looks_at(name: str, model: str, member: str) -> bool:
    """Whether a system, or the members of an ensemble, do something with a flag."""
    systems = LOOKED_AT_BY.get(name)
    return systems is None or model in systems or (model == "ensemble" and member in systems)


def cut_of(model: str) -> str:
    """The cut that a baseline comes with."""
    return "full" if model == "sde-bnn" else "none"
