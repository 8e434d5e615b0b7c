"""Tensors in safetensors files: checked by checksum, format, names, shapes and types before any of them is read."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from psdenets.errors import BadInput
from psdenets.runs.checksums import Folder
from psdenets.runs.digests import Damaged

FORMAT = 2  # 2: kernels are stored channels last in the flat weight vector
_MARK = "psdenets-format"
_TYPES = {
    torch.float32: "F32", torch.float64: "F64", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


class Form(NamedTuple):
    """Shape and type of a tensor; the type is spelled as in safetensors files."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"


def forms_of(tensors: Mapping[str, Tensor]) -> dict[str, Form]:
    """Shapes and types of tensors."""
    return {name: Form(tuple(tensor.shape), _TYPES[tensor.dtype]) for name, tensor in tensors.items()}


def save_weights(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors, and the number of their format; I/O errors are `OSError`."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(plain(tensors), path, {_MARK: str(FORMAT)})
    except SafetensorError as error:
        raise OSError(str(error)) from None
    path.chmod(mode)  # safetensors makes files that only their owner can read


class TensorFile(NamedTuple):
    """A safetensors file whose checksum matches: its format, and the shapes and types of its tensors."""

    path: Path
    format: str | None
    forms: Mapping[str, Form]

    @classmethod
    def open(cls, folder: Folder, name: str) -> "TensorFile":
        """Verify a file and read its header."""
        path = folder.verified(name)
        try:
            with safe_open(path, framework="pt") as file:
                slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 - it is no dict
                forms = {key: Form(tuple(part.get_shape()), part.get_dtype()) for key, part in slices.items()}
                return cls(path, (file.metadata() or {}).get(_MARK), forms)
        except (SafetensorError, OSError) as error:
            raise Damaged(f"expected a safetensors file in {path}, got something else: {error}") from None

    def require(self, expected: Mapping[str, Form]) -> None:
        """Raise `Damaged` unless the tensors have these names, shapes and types."""
        for name in expected.keys() - self.forms.keys():
            raise Damaged(f"expected a tensor {name} in {self.path}, but it has no such tensor")
        for name in self.forms.keys() - expected.keys():
            raise Damaged(f"unknown tensor {name} in {self.path}")
        for name, form in self.forms.items():
            if form != expected[name]:
                raise Damaged(f"expected {name} to be {expected[name]} in {self.path}, got {form}")

    def read(self) -> dict[str, Tensor]:
        """All tensors; raises `Damaged` if a number is NaN or infinite."""
        try:
            with safe_open(self.path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in self.forms}
        except (SafetensorError, OSError) as error:
            raise Damaged(f"could not read {self.path}: {error}") from None
        for name, tensor in tensors.items():
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                raise Damaged(f"expected finite numbers in {self.path}, got NaN or infinity in {name}")
        return tensors


def model_file(path: Path) -> TensorFile:
    """The weights of a model; raises BadInput for another format, where the same shapes may mean something else."""
    found = TensorFile.open(Folder(path.parent), path.name)
    if found.format != str(FORMAT):
        raise BadInput(
            f"expected weights of format {FORMAT} in {path}, got format {found.format or 1}; "
            "was it written by another version?"
        )
    return found


def load_weights(path: Path) -> dict[str, Tensor]:
    """Read the weights of a model, whatever their names and shapes."""
    return model_file(path).read()


def plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Detached copies on the CPU in contiguous memory, the form that safetensors can write."""
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
