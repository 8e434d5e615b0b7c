"""Load the config and the trained classifier of a run directory."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput
from psdenets.models.base import ImageClassifier
from psdenets.models.psde import Classifier
from psdenets.models.registry import build
from psdenets.options.network import REVERSIBLE
from psdenets.references import restore
from psdenets.runs.checksums import Folder
from psdenets.runs.files import path_of
from psdenets.runs.forms import DATA
from psdenets.runs.weights import forms_of, model_file

T = TypeVar("T")


def load(
    run_dir: str | Path, device: str | torch.device = "cpu", *, allow_code: bool = False, steps: int | None = None
) -> ImageClassifier:
    """Load the trained classifier of a run directory, ready to predict.

    Weights are continuous in depth, so they can be integrated on another grid: `steps` is its number of solver steps
    per block, by default that of the last grid of training. Stochastic steps change in proportion if the run sets them.

    Custom code that the run refers to (`--f-h mynets:Drift`) is imported, and so executed, only with `allow_code`.
    """
    config, spec = read_config(run_dir, allow_code)
    weights = path_of(run_dir) / "model.safetensors"
    if not weights.is_file():
        raise BadInput(f"expected model.safetensors in {run_dir}, got an unfinished run; --resume finishes it")
    if config.system.flow is not None and config.system.flow.compile:  # this machine may have no compiler
        config = config.replace(compile=False)
    if steps is not None:
        config = _with_steps(config, steps)
    file, model = model_file(weights), build(config, spec)
    if "after.norm.var" in file.forms:
        raise BadInput(
            f"expected reference images in {weights}, got running averages over weight samples, which an earlier "
            "version used in prediction; train the run again"
        )
    expected = forms_of(model.state_dict())
    if isinstance(model, Classifier) and "sigma_factor" not in file.forms:  # files from before --tune-sigma
        expected.pop("sigma_factor")
    file.require(expected)
    tensors = file.read()
    model.load_state_dict({**({} if "sigma_factor" in tensors else _untuned(model)), **tensors})
    if tensors.get("sigma_factor", 1) != 1:
        cast("Classifier", model).set_sigma(float(tensors["sigma_factor"]))
    return model.to(device).eval().requires_grad_(False)


def _untuned(model: ImageClassifier) -> dict[str, torch.Tensor]:
    return {"sigma_factor": torch.ones(())} if isinstance(model, Classifier) else {}


def _with_steps(config: Config, steps: int) -> Config:
    flow, cut = config.system.flow, config.system.cut
    if flow is None or flow.adaptive:
        got = f"--model {config.model}" if flow is None else f"--hidden-method {flow.hidden_method}"
        raise BadInput(f"expected --steps with a network of continuous depth and a scheme with fixed steps, got {got}")
    changes: dict[str, Any] = {"steps": steps}
    if cut is not None and cut.sde_steps is not None:
        changes["sde_steps"] = cut.sde_steps_on(steps, flow.finest)
    return config.replace(**changes)


def read_config(run_dir: str | Path, allow_code: bool = False) -> tuple[Config, ImageSpec]:
    """Read the config of a run, and the size and classes of its images; see `load`."""
    folder = Folder(path_of(run_dir))
    if not all((folder.path / name).exists() for name in ("config.json", "data.json")):
        raise BadInput(f"expected a run directory with config.json and data.json, got {run_dir}")
    values = folder.read_json("config.json", _OPTIONS, infinities=False)
    data = folder.read_json("data.json", DATA, infinities=False)
    config = _parsed(folder.path / "config.json", lambda: Config.read(_as_it_was(_with_exact_gradient(values))))
    spec = _parsed(folder.path / "data.json", lambda: ImageSpec.from_dict(data["images"]))
    if (config.references or config.sources) and not allow_code:
        raise BadInput(
            f"{run_dir} refers to code outside psdenets ({', '.join(config.references)}), which would be executed; "
            "pass --allow-code (from Python: allow_code=True) if you trust it"
        )
    if config.sources:
        restore(config.sources)
    return config, spec


def _parsed(path: Path, parse: Callable[[], T]) -> T:
    """The result of `parse`, whose errors name the file."""
    try:
        return parse()
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _with_exact_gradient(values: dict[str, Any]) -> dict[str, Any]:
    """Options with backprop instead of the adjoint if the scheme is not reversible, which earlier versions allowed."""
    inexact = values.get("gradient") == "adjoint" and values.get("hidden_method", "auto") not in ("auto", REVERSIBLE)
    return {**values, "gradient": "backprop"} if inexact else values


_OPTIONS = {"sources?": {str: {"file": str, "sha256": str}}, ...: object}
_BEFORE = {
    "stem": "none", "transition": "space-to-depth", "pool": "none", "weight_decay": 0.0, "noise_scale": "absolute",
}  # fmt: skip


def _as_it_was(values: dict[str, Any]) -> dict[str, Any]:
    """Options of a run from before `--objective` or `--noise-scale`, with the values that newer ones had then."""
    values = {"objective": "elbo", **values}
    if "noise_scale" in values or values.get("model", "psde") not in ("psde", "sde-bnn"):
        return values
    left = values.get("hidden_method", "auto") == "auto" and values.get("gradient") != "adjoint"
    return {**_BEFORE, **values, **({"hidden_method": "euler"} if left else {})}
