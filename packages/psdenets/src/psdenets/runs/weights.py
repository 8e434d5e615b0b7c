"""Save and load the weights of finished models as safetensors files with a format number."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from psdenets.errors import BadInput

FORMAT = 2  # 2: kernels are stored channels last in the flat weight vector
_MARK = "psdenets-format"


def save_weights(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write the weights of a model."""
    save_file(plain(tensors), path, {_MARK: str(FORMAT)})


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights of a model; raise BadInput for another format, where the same shapes may mean something else."""
    with safe_open(path, framework="pt") as file:
        found = (file.metadata() or {}).get(_MARK, "1")
    if found != str(FORMAT):
        raise BadInput(
            f"expected weights of format {FORMAT} in {path}, got format {found}; was it written by another version?"
        )
    return load_file(path)


def plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Detached copies on the CPU in contiguous memory, the form that safetensors can write."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
