"""Options of the network: its size and, for continuous depth, the hidden drift f_h and the integration of h."""

from bisect import bisect_right
from functools import cached_property
from typing import Literal

from psdenets.errors import BadInput
from psdenets.options.fields import COUNTS, FRACTIONS, SIZES, Group, above, at_least, numbers, option
from psdenets.registries import HIDDEN_DRIFTS

ADAPTIVE = ("bosh3", "dopri5", "dopri8")
REVERSIBLE = "reversible_heun"  # the only scheme that can recompute its states backward
COMPILED = (
    "strided",
    "3-1-3",
    "3-3",
    "1-1",
)  # hidden drifts whose activations also add the time map, and can be compiled
_ALONG_WEIGHTS = ("euler-mean", "euler-right", REVERSIBLE)  # not schemes of torchdiffeq


def sizes_of(text: str) -> tuple[int, ...]:
    """Numbers separated by hyphens."""
    return tuple(int(part) for part in text.split("-"))


class NetOptions(Group, group="network"):
    """Size of a network."""

    blocks: str = option("1", 'blocks per scale, e.g. "2-2-2"; images are halved between scales', SIZES)
    width: int = option(32, "channels inside f_h, or of the first scale of a ResNet", at_least(1))

    @cached_property
    def scales(self) -> tuple[int, ...]:
        """Blocks per scale: "2-2-2" is (2, 2, 2)."""
        return sizes_of(self.blocks)


class FlowOptions(Group, group="network"):
    """Hidden drift f_h, and the scheme that integrates h."""

    block: str = option(
        "strided",
        "hidden drift f_h (also --f-h): a name, or module:attribute in your own Python file, which is executed",
        registry=HIDDEN_DRIFTS,
    )
    activation: Literal["softplus", "tanh", "elu", "swish", "rbf", "relu", "gelu"] = option(
        "swish", "activation of f_h, and of the stem and learned transitions"
    )
    gain: float = option(1.0, "scale of the initial weights of f_h, uniform in +-gain / sqrt(fan-in)", above(0))
    augment_channels: int = option(4, "zero channels added to the image", at_least(0))
    squeeze_input: int = option(1, "space-to-depth steps before the first block", at_least(0))
    steps: int | str = option(6, "solver steps per block; a list like 2,4,8 refines the grid during training", COUNTS)
    refine_at: float | str | None = option(
        None,
        "fractions of training at which the next of several --steps starts, like 0.5,0.8 (default: equal parts)",
        FRACTIONS,
    )
    hidden_method: Literal[
        "auto", "euler", "euler-mean", "euler-right", "midpoint", "rk4", "reversible_heun", "bosh3", "dopri5", "dopri8"
    ] = option(
        "auto",
        "scheme of the hidden state. euler, euler-mean and euler-right take the weights at the left end of a step, the "
        "mean of both ends, or the right end. auto: euler-mean; reversible_heun with --gradient adjoint, which "
        "requires it; euler if the weights are constant. bosh3, dopri5 and dopri8 are adaptive",
    )
    rtol: float = option(1e-3, "relative tolerance of an adaptive scheme", above(0))
    atol: float = option(1e-3, "absolute tolerance of an adaptive scheme", above(0))
    compile: bool = option(False, "compile the activations; needs a C++ compiler, and takes seconds per image shape")

    def check_together(self) -> None:
        for name, kind in (("steps", int), ("refine_at", float)):
            value = getattr(self, name)
            found = () if value is None or type(value) is kind else numbers(kind, value)
            if found:  # "6" is 6, and "2, 4" is "2,4", so that equal options compare equal
                object.__setattr__(self, name, found[0] if len(found) == 1 else ",".join(map(str, found)))
        if len(self.counts) > 1 and self.adaptive:
            raise BadInput(f"expected a --hidden-method with fixed steps for --steps {self.steps}, got an adaptive one")
        if len(self.counts) > 1 and len(self.starts) != len(self.counts):
            wanted = f"{len(self.counts) - 1} values of --refine-at, one for each refinement of --steps {self.steps}"
            raise BadInput(f"expected {wanted}, got {self.refine_at}")

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Steps per block, from the first grid of training to the last: "2,4,8" is (2, 4, 8)."""
        return (self.steps,) if isinstance(self.steps, int) else numbers(int, self.steps)

    @property
    def finest(self) -> int:
        """Steps per block of the last grid, with which the run is evaluated."""
        return self.counts[-1]

    @cached_property
    def starts(self) -> tuple[float, ...]:
        """The fraction of training at which each grid starts; the first is 0."""
        if self.refine_at is None or len(self.counts) == 1:
            return tuple(k / len(self.counts) for k in range(len(self.counts)))
        return (0.0, *numbers(float, self.refine_at))

    def steps_at(self, done: float) -> int:
        """Steps per block after a fraction of training.

        Example:
            >>> flow = FlowOptions(steps="2,4,8", refine_at="0.5,0.8")
            >>> flow.steps_at(0.0), flow.steps_at(0.5), flow.steps_at(1.0)
            (2, 4, 8)
        """
        return self.counts[bisect_right(self.starts, done) - 1]

    def method(self, gradient: str = "backprop") -> str:
        """The scheme of h along weights that change with depth; the adjoint needs a reversible one."""
        if self.hidden_method == "auto":
            return REVERSIBLE if gradient == "adjoint" else "euler-mean"
        return self.hidden_method

    @property
    def constant_method(self) -> str:
        """The scheme of h if the weights do not change with depth."""
        return "euler" if self.hidden_method == "auto" else self.hidden_method

    def check_method(self, gradient: str, moving_weights: bool) -> None:
        """Raise `BadInput` if the scheme of h cannot be used with the gradient, or with moving or constant weights."""
        if self.adaptive and moving_weights:
            raise BadInput(
                f"expected --hidden-method {self.hidden_method} with weights that do not change in depth "
                "(--model odenet or mfvi-odenet), got weights that vary with depth"
            )
        if self.hidden_method in _ALONG_WEIGHTS and not moving_weights:
            raise BadInput(f"expected a --hidden-method of torchdiffeq with constant weights, got {self.hidden_method}")
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
        if len(self.counts) == 1:
            found["refine_at"] = f"expected --refine-at with several --steps like 2,4,8, got --steps {self.steps}"
        if not self.adaptive:
            message = f"expected --rtol and --atol with an adaptive scheme, got --hidden-method {self.hidden_method}"
            found |= {"rtol": message, "atol": message}
        if self.block not in COMPILED:
            found["compile"] = f"expected --compile with --block {', '.join(COMPILED)}, got --block {self.block}"
        return found


class FeatureOptions(Group, group="features"):
    """Deterministic layers around the blocks, and the precision of images and hidden states."""

    stem: Literal["none", "whiten", "linear"] = option(
        "none",
        "before the first block: nothing, a fixed whitening of 2 x 2 patches, C -> 8 C channels, or a trained linear "
        "map to --width channels",
    )
    transition: Literal["space-to-depth", "learned"] = option(
        "space-to-depth",
        "before a scale: the paper's space-to-depth, or a 3 x 3 convolution, max-pool and batch normalisation",
    )
    channels: str | None = option(
        None, "channels of each scale with --transition learned, e.g. 64-128-256 (default: 32, 64, 128, ...)", SIZES
    )
    pool: Literal["none", "max", "mean"] = option("none", "pooling over the image before the head")
    precision: Literal["float32", "bfloat16"] = option(
        "float32", "precision of hidden states; weights, their process and the head are always float32"
    )

    @cached_property
    def learned(self) -> bool:
        """Whether scales begin with learned transitions."""
        return self.transition == "learned"

    def widths(self, scales: int) -> tuple[int, ...]:
        """Channels of each scale with learned transitions."""
        return sizes_of(self.channels) if self.channels else tuple(32 * 2**k for k in range(scales))

    def idle(self) -> dict[str, str]:
        if self.learned:
            return {}
        return {"channels": "expected --channels with --transition learned, got --transition space-to-depth"}


class ResnetOptions(Group, group="other systems"):
    """Options specific to ResNets."""

    norm: Literal["batch", "group", "none"] = option("batch", "normalisation layers of a ResNet")
