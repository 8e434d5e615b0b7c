"""Options of the network: its size and, for continuous depth, the hidden drift f_h and the integration of h."""

from functools import cached_property
from typing import Literal

from psdenets.errors import BadInput
from psdenets.options.fields import SIZES, Group, above, at_least, option
from psdenets.registries import HIDDEN_DRIFTS

ADAPTIVE = ("bosh3", "dopri5", "dopri8")
REVERSIBLE = "reversible_heun"  # the only scheme that can recompute its states backward


class NetOptions(Group, group="network"):
    """Size of a network."""

    blocks: str = option("1", 'blocks per scale, e.g. "2-2-2"; images are halved between scales', SIZES)
    width: int = option(32, "channels inside f_h, or of the first scale of a ResNet", at_least(1))

    @cached_property
    def scales(self) -> tuple[int, ...]:
        """Blocks per scale: "2-2-2" is (2, 2, 2)."""
        return tuple(int(part) for part in self.blocks.split("-"))


class FlowOptions(Group, group="network"):
    """Hidden drift f_h, and the scheme that integrates h."""

    block: str = option(
        "strided",
        "hidden drift f_h (also --f-h): a name, or module:attribute in your own Python file, which is executed",
        registry=HIDDEN_DRIFTS,
    )
    activation: Literal["softplus", "tanh", "elu", "swish", "rbf"] = option("swish", "activation of f_h")
    gain: float = option(1.0, "scale of the initial weights of f_h, uniform in +-gain / sqrt(fan-in)", above(0))
    augment_channels: int = option(4, "zero channels added to the image", at_least(0))
    squeeze_input: int = option(1, "space-to-depth steps before the first block", at_least(0))
    steps: int = option(6, "solver steps per block", at_least(1))
    hidden_method: Literal["auto", "euler", "midpoint", "rk4", "reversible_heun", "bosh3", "dopri5", "dopri8"] = option(
        "auto",
        "scheme of the hidden state; auto is euler, or reversible_heun with --gradient adjoint, which requires it; "
        "bosh3, dopri5 and dopri8 are adaptive",
    )
    rtol: float = option(1e-3, "relative tolerance of an adaptive scheme", above(0))
    atol: float = option(1e-3, "absolute tolerance of an adaptive scheme", above(0))
    compile: bool = option(False, "compile the activations; needs a C++ compiler, and takes seconds per image shape")

    def method(self, gradient: str = "backprop") -> str:
        """The scheme of h; the adjoint needs a reversible one."""
        if self.hidden_method == "auto":
            return REVERSIBLE if gradient == "adjoint" else "euler"
        return self.hidden_method

    def check_method(self, gradient: str, moving_weights: bool) -> None:
        """Raise `BadInput` if the scheme of h cannot be used with the gradient, or with moving or constant weights."""
        if self.adaptive and moving_weights:
            raise BadInput(
                f"expected --hidden-method {self.hidden_method} with weights that do not change in depth "
                "(--model odenet or mfvi-odenet), got weights that do"
            )
        if self.hidden_method == REVERSIBLE and not moving_weights:
            raise BadInput(f"expected a --hidden-method of torchdiffeq with constant weights, got {REVERSIBLE}")
        if gradient == "adjoint" and self.method(gradient) != REVERSIBLE:
            raise BadInput(
                f"expected --hidden-method {REVERSIBLE} with --gradient adjoint, got {self.hidden_method}, which "
                "cannot recompute its states backward; --gradient checkpoint takes any scheme"
            )

    @property
    def adaptive(self) -> bool:
        """Whether the scheme of h chooses its own steps."""
        return self.hidden_method in ADAPTIVE

    def idle(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if not self.adaptive:
            message = f"expected --rtol and --atol with an adaptive scheme, got --hidden-method {self.hidden_method}"
            found |= {"rtol": message, "atol": message}
        if self.block not in HIDDEN_DRIFTS:
            found["compile"] = f"expected --compile with a hidden drift of psdenets, got --block {self.block}"
        return found


class ResnetOptions(Group, group="other systems"):
    """Options specific to ResNets."""

    norm: Literal["batch", "group", "none"] = option("batch", "normalisation layers of a ResNet")
