"""From a name or a run directory to a classifier."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

from psdenets.config import Config
from psdenets.errors import BadInput
from psdenets.models import Classifier
from psdenets.presets import preset
from psdenets.spec import SPECS, ImageSpec


def build(what: str | Config, spec: ImageSpec | None = None) -> Classifier:
    """A fresh classifier from a preset's name or a config; ``spec`` where the data set does not fix the images.

    Example:
        >>> model = build("mnist-ode-first")
        >>> logits, kl = model(torch.zeros(2, 1, 28, 28))
        >>> logits.shape, kl.ndim
        (torch.Size([2, 10]), 0)
    """
    config = preset(what) if isinstance(what, str) else what
    if spec is None:
        if config.dataset not in SPECS:
            raise BadInput(f"expected a spec for --dataset {config.dataset}, whose images and classes vary, got none")
        spec = SPECS[config.dataset]
    return Classifier(config, spec)


def load(run_dir: str | Path, device: str | torch.device = "cpu") -> Classifier:
    """The trained classifier of a run directory, ready to predict."""
    config, spec = read_config(run_dir)
    weights = Path(run_dir) / "model.safetensors"
    if not weights.is_file():
        raise BadInput(f"expected a finished run with model.safetensors in {run_dir}, got none; --resume finishes it")
    model = Classifier(config, spec)
    model.load_state_dict(load_file(weights))
    return model.to(device).eval().requires_grad_(False)


def read_config(run_dir: str | Path) -> tuple[Config, ImageSpec]:
    """What a run was told, and what its images are like."""
    try:
        values = json.loads((Path(run_dir) / "config.json").read_text())
        data = json.loads((Path(run_dir) / "data.json").read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(f"expected a run directory with config.json and data.json, got {run_dir}") from None
    return Config(**values), ImageSpec.from_dict(data["images"])
