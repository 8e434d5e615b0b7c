"""Networks of continuous depth with deterministic weights.

ODENet         dh = f_h(t, h; w) dt         the same w at every depth, solved by torchdiffeq
HyperODENet    dh = f_h(t, h; w_t) dt       dw = f_q(t, w) dt, the PSDE-BNN without noise (`Cut.none`)
"""

from typing import cast, final

import torch
from torch import Tensor, nn
from torchdiffeq import odeint

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.models.likelihoods import outputs_of
from psdenets.models.psde import Classifier
from psdenets.nn.fast.layout import channels_last, gradient_channels_last
from psdenets.nn.hidden_drifts import hidden_drift
from psdenets.nn.scales import block_shapes, first_of_scales, lifted, space_to_depth
from psdenets.options.network import FlowOptions
from psdenets.seeds import generator, seeded


@final
class ODENet(nn.Module):
    """Normalised images (N, C, H, W) -> logits (N, classes); f_h, scales and lifting are those of the PSDE-BNN."""

    def __init__(self, config: Config, spec: ImageSpec) -> None:
        super().__init__()
        self.config, self.steps = config, config.system.flow.finest
        shapes = block_shapes(config, spec)
        self.squeezed_before = first_of_scales(config)
        net, flow = config.system.net, config.system.flow
        self.blocks = nn.ModuleList()
        for b, (channels, _, _) in enumerate(shapes):
            g = generator(config.seed, "block", b)
            self.blocks.append(hidden_drift(flow.block, channels, net.width, flow.activation, g))
        with torch.no_grad():
            for p in self.blocks.parameters():
                p.mul_(flow.gain)
        channels, height, width = shapes[-1]
        self.head = nn.Linear(channels * height * width, outputs_of(config, spec))

    def set_steps(self, steps: int) -> None:
        """Integrate in this many steps of a fixed-step scheme from now on."""
        self.steps = steps

    def features(self, x: Tensor) -> Tensor:
        """Input of the last layer: h at t = 1."""
        h = lifted(x, self.config)
        for b, f_h in enumerate(self.blocks):
            if b in self.squeezed_before:
                h = space_to_depth(h)
            h = gradient_channels_last(solved(f_h, channels_last(h), self.config.system.flow, self.steps))
        return h.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        out: Tensor = self.head(self.features(x))
        return out


def odenet_of(config: Config, spec: ImageSpec) -> ODENet:
    """Build the ODENet of a config, with random weights."""
    with seeded(config.seed, "network"):
        return ODENet(config, spec)


def solved(f_h: nn.Module, h0: Tensor, flow: FlowOptions, steps: int) -> Tensor:
    """h at t = 1, after `steps` steps of a fixed-step scheme, or as many as an adaptive scheme needs."""
    ends = torch.tensor([0.0, 1.0], dtype=h0.dtype, device=h0.device)
    if flow.adaptive:
        path = odeint(f_h, h0, ends, method=flow.constant_method, rtol=flow.rtol, atol=flow.atol)
    else:
        ts = torch.linspace(0, 1, steps + 1, dtype=h0.dtype, device=h0.device)
        options = {"grid_constructor": lambda _f, _h, _t: ts}
        path = odeint(f_h, h0, ends, method=flow.constant_method, options=options)
    return cast("Tensor", path[-1])


@final
class HyperODENet(nn.Module):
    """A PSDE-BNN with `Cut.none` as a function of normalised images."""

    def __init__(self, config: Config, spec: ImageSpec) -> None:
        super().__init__()
        self.deep = Classifier(config, spec)

    def forward(self, x: Tensor) -> Tensor:
        """Logits."""
        return self.deep.from_hidden(self.deep.stem(lifted(x, self.deep.config)), self.deep.draw(1))[0]
