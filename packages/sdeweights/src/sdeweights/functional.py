"""Any `nn.Module` as a hidden drift f_h(t, h, w), with its parameters as the flat vector w."""

import copy
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self, final

import torch
from torch import Tensor, nn

HiddenDrift = Callable[[Tensor, Tensor, Tensor], Tensor]  # (t, h, w) -> the shape of h


@final
class Functional(nn.Module):
    """f_h(t, h, w): a copy of a module, called with the flat vector w instead of its parameters.

    The copy keeps its buffers but has no parameters.

    Args:
        module: called with h, or with (t, h).
        takes_time: whether it is called with (t, h). By default it is if its `forward` requires two arguments.
    """

    def __init__(self, module: nn.Module, takes_time: bool | None = None) -> None:
        super().__init__()
        self._call = _Call.of(module, takes_time)
        self.module = _emptied(module)

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """Shapes of the parameters by name, in the order of w."""
        return self._call.shapes

    @property
    def takes_time(self) -> bool:
        """Whether the module is called with (t, h)."""
        return self._call.takes_time

    @property
    def d(self) -> int:
        """Size of w."""
        return sum(self._call.sizes)

    def unflatten(self, w: Tensor) -> dict[str, Tensor]:
        """Views of w, (d,), as the named parameters."""
        return self._call.unflatten(w)

    def parts(self, w: Tensor) -> list[tuple[Tensor, ...]]:
        """Split each row of w, (rows, d), into flat parameters, which `forward` accepts in place of the row.

        Autograd then assembles the gradients of all rows in one copy instead of one copy per row.
        """
        sizes = self._call.sizes
        if w.shape[1:] != (self.d,):
            raise ValueError(f"expected rows w of shape ({self.d},), got {tuple(w.shape[1:])}")
        flat = torch.split(w.reshape(-1), sizes * len(w))
        return [flat[i : i + len(sizes)] for i in range(0, len(flat), len(sizes))]

    def forward(self, t: Tensor, h: Tensor, w: Tensor | tuple[Tensor, ...]) -> Tensor:
        """The output of the module for h with weights w."""
        return self._call(self.module, t, h, w)


@dataclass(frozen=True)
class _Call:
    """Calls a module with a flat vector instead of its parameters."""

    shapes: dict[str, torch.Size]
    takes_time: bool

    @classmethod
    def of(cls, module: nn.Module, takes_time: bool | None = None) -> Self:
        shapes = {name: parameter.shape for name, parameter in module.named_parameters()}
        if not shapes:
            raise ValueError(f"expected a module with parameters, got {type(module).__name__} without any")
        arguments = _positional(module)
        if len(arguments) > 2 or (len(arguments) == 2 and arguments[1] in ("t", "time")):
            raise ValueError(f"expected forward(h) or forward(t, h), got forward({', '.join(arguments)})")
        if takes_time is not None and not _accepts(module, 1 + takes_time):
            wanted = "forward(t, h)" if takes_time else "forward(h)"
            raise ValueError(f"expected {wanted} with takes_time={takes_time}, got forward({', '.join(arguments)})")
        return cls(shapes, len(arguments) == 2 if takes_time is None else takes_time)

    @property
    def sizes(self) -> list[int]:
        return [math.prod(shape) for shape in self.shapes.values()]

    def unflatten(self, w: Tensor | tuple[Tensor, ...]) -> dict[str, Tensor]:
        parts = w if isinstance(w, tuple) else self.split(w)
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def split(self, w: Tensor) -> tuple[Tensor, ...]:
        if w.shape != (sum(self.sizes),):
            raise ValueError(f"expected w of shape ({sum(self.sizes)},), got {tuple(w.shape)}")
        return torch.split(w, self.sizes)

    def __call__(self, module: nn.Module, t: Tensor, h: Tensor, w: Tensor | tuple[Tensor, ...]) -> Tensor:
        arguments = (t, h) if self.takes_time else (h,)
        out: Tensor = torch.func.functional_call(module, self.unflatten(w), arguments)
        return out


@final
class OverSamples(nn.Module):
    """f_h for all samples at once, by `torch.vmap`: h is (samples, batch, ...) and w is (samples, d)."""

    def __init__(self, f_h: HiddenDrift) -> None:
        super().__init__()
        self.f_h = f_h

    def forward(self, t: Tensor, h: Tensor, w: Tensor) -> Tensor:
        """f_h of each sample, with the shape of h."""
        # "different": dropout draws a mask per sample, as it does when samples are processed one after the other
        return torch.vmap(self.f_h, in_dims=(None, 0, 0), randomness="different")(t, h, w)


def flatten(module: nn.Module, takes_time: bool | None = None) -> tuple[Tensor, Functional]:
    """(w0, f_h): the parameters of a module as one vector, and the module as a function of (t, h, w).

    `takes_time` is that of `Functional`.

    Example:
        >>> w0, f_h = flatten(nn.Linear(3, 3))
        >>> w0.shape, f_h.d
        (torch.Size([12]), 12)
    """
    w0 = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()] or [torch.empty(0)])
    return w0, Functional(module, takes_time)


def as_hidden_drift(f_h: HiddenDrift | nn.Module) -> HiddenDrift:
    """f_h as a function of (t, h, w): unchanged, or for a module of (h) or (t, h), called with w as its parameters.

    The module itself is called, not a copy, so its running averages are updated.
    """
    if isinstance(f_h, nn.Module) and len(_positional(f_h)) < 3:
        return partial(_Call.of(f_h), f_h)
    return f_h


def slope(f: Callable[..., Tensor], t: Tensor, x: Tensor, *along: Tensor) -> Tensor:
    """f(t, x, *along); raises ValueError if its shape is not that of x, which broadcasting would hide."""
    k = f(t, x, *along)
    if not isinstance(k, Tensor) or k.shape != x.shape:
        got = tuple(k.shape) if isinstance(k, Tensor) else type(k).__name__
        what, of = ("f_h(t, h, w)", "h") if along else ("f(t, w)", "w")
        why = ": f_h is dh/dt, so layers that change the shape belong before or after it" if along else ""
        raise ValueError(f"expected {what} of the shape {tuple(x.shape)} of {of}, got {got}{why}")
    return k


def _positional(module: nn.Module) -> list[str]:
    """Names of the positional arguments that `forward` requires."""
    parameters = inspect.signature(module.forward).parameters.values()
    return [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
    ]


def _accepts(module: nn.Module, count: int) -> bool:
    """Whether `forward` can be called with this number of positional arguments."""
    try:
        inspect.signature(module.forward).bind(*range(count))
    except TypeError:
        return False
    return True


def _emptied(module: nn.Module) -> nn.Module:
    """A copy whose parameters are replaced by empty buffers, which are neither trained nor saved."""
    hollow = copy.deepcopy(module)
    empty: dict[nn.Parameter, Tensor] = {}  # tied parameters stay tied
    for part in hollow.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                del part._parameters[name]
                part.register_buffer(name, empty.setdefault(parameter, torch.empty(0)), persistent=False)
    return hollow
