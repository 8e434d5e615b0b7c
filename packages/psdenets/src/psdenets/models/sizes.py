"""Memory that a network, its training and its predictions need at least, estimated before anything is allocated.

    weights      numbers of f_h, with their drift, gradient and Adam's two moments
    paths        weight samples x (steps + 1) x numbers of f_h
    states       weight samples x numbers of h x steps, kept for the backward pass of one image
    predictions  weight samples x images x outputs, in float64

These are lower bounds: what is refused cannot fit, and what is accepted may still be too large.
"""

import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput
from psdenets.nn.scales import block_shapes
from psdenets.options.network import sizes_of

_FLOAT, _DOUBLE = 4, 8
_TO_WIDTH_AND_BACK = ("strided", "3-1-3", "3-3", "1-1", "pre-3-3")  # hidden drifts that map h to --width channels
_MOST_BLOCKS = 10**5  # of more, not even a list is made
_COPIES = 4  # a weight, its gradient and Adam's moments
_CGROUP = Path("/sys/fs/cgroup/memory.max")


def require_network_fits(config: Config, spec: ImageSpec) -> None:
    """Raise `BadInput` if the weights of a network, or one path of them, cannot fit in memory."""
    _require(_of_network(config, spec))


def require_training_fits(config: Config, spec: ImageSpec, test_images: int) -> None:
    """Raise `BadInput` if a training step or the final predictions cannot fit in memory."""
    require_network_fits(config, spec)
    training, flow, process = config.training, config.system.flow, config.system.process
    steps = 1 if flow is None or flow.adaptive else flow.finest
    shapes = [(spec.channels, spec.height, spec.width)] if flow is None else block_shapes(config, spec)
    kept = max(channels * height * width for channels, height, width in shapes)
    kept *= steps if process is None or process.gradient == "backprop" else 1
    of = f"--samples {training.samples:,}" + ("" if flow is None else f" and --steps {steps:,}")
    paths = (steps + 1) * _weights_of_a_block(config, spec) if config.system.cut is not None else 0
    _require(
        {
            f"the weight paths of {of}": training.samples * paths * _FLOAT,
            f"the hidden states of {of}": training.samples * kept * _FLOAT,
        }
    )
    for name in ("test_samples", "epoch_samples"):
        samples = config.as_dict().get(name, 1)
        require_predictions_fit(samples, test_images, _outputs(spec), f"--{name.replace('_', '-')} {samples:,}")


def require_predictions_fit(samples: int, images: int, outputs: int, of: str) -> None:
    """Raise `BadInput` if predictions of weight samples for images cannot fit in memory; `of` names the option."""
    _require({f"the predictions of {of} for {images:,} images": samples * images * outputs * _DOUBLE})


def _of_network(config: Config, spec: ImageSpec) -> Mapping[str, int]:
    flow, net, process = config.system.flow, config.system.net, config.system.process
    blocks = sum(net.scales)
    if blocks > _MOST_BLOCKS:
        return {f"{blocks:,} blocks": blocks * spec.channels * _COPIES * _FLOAT}
    weights = _weights_of_a_block(config, spec)
    found = {f"the weights of --width {net.width:,}": blocks * weights * _COPIES * _FLOAT}
    if process is not None:
        hidden = sizes_of(process.drift)
        numbers = weights * (hidden[0] + hidden[-1]) + sum(a * b for a, b in pairwise(hidden))
        found[f"f_q with --drift {process.drift}"] = blocks * numbers * _COPIES * _FLOAT
    if flow is not None and not flow.adaptive:
        found[f"a path of --steps {flow.finest:,}"] = (flow.finest + 1) * (1 if process is None else weights) * _FLOAT
    return found


def _weights_of_a_block(config: Config, spec: ImageSpec) -> int:
    """A lower bound on the numbers in one block."""
    width: int = config.system.net.width
    flow = config.system.flow
    if config.system.hmc is not None:
        return spec.channels * spec.height * spec.width * width
    if flow is None:
        return width**2
    channels = block_shapes(config, spec)[0][0]
    known = {"bumps": width, **dict.fromkeys(_TO_WIDTH_AND_BACK, 2 * channels * width)}
    return known.get(flow.block, channels)


def _outputs(spec: ImageSpec) -> int:
    return len(spec.classes) or 2


def _require(needed: Mapping[str, int]) -> None:
    memory = memory_of_machine()
    for what, size in needed.items():
        if memory is not None and size > memory:
            raise BadInput(
                f"{what} would take at least {_shown(size)} of memory, and this machine has {_shown(memory)}"
            )


def memory_of_machine() -> int | None:
    """Bytes of memory that this process may use: that of the machine, or the limit of its container if it is lower."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    try:
        return min(total, int(_CGROUP.read_text()))
    except (OSError, ValueError):  # no container, or "max"
        return total


def _shown(size: int) -> str:
    """Bytes in the largest unit of which there is at least one.

    Example:
        >>> _shown(3 * 10**9), _shown(2 * 10**15), _shown(10**40)
        ('3.0 GB', '2.0 PB', '1e+28 TB')
    """
    for unit, name in ((10**21, None), (10**15, "PB"), (10**12, "TB"), (10**9, "GB"), (10**6, "MB")):
        if size >= unit:
            return f"{size / 10**12:.0e} TB" if name is None else f"{size / unit:.1f} {name}"
    return f"{size:,} bytes"
