"""Other ways to compute a training step of one block, with the same shapes and steps as ours.

floor         only the convolutions and activations, with constant weights, in plain PyTorch
torchsde      one SDE for the joint state (h, w, kl) by `torchsde.sdeint` and by its adjoint; as it is usually written,
              and with a hand-written channels-last layout
torchdiffeq   one ODE for the joint state (h, w) by `torchdiffeq.odeint`: a network without noise
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, final

import torch
import torchsde
from torch import Tensor, nn
from torch.nn import functional as F
from torchdiffeq import odeint

from psdenets import preset
from psdenets.models.psde import DeepBlock
from psdenets.models.windows import cuts_of


class Shape(NamedTuple):
    """A block of the paper: preset, and channels and side of its images."""

    preset: str
    channels: int
    side: int


SHAPES = {
    "mnist": Shape("mnist-{cut}", 1, 28),
    "cifar10-1": Shape("cifar10-{cut}", 3, 32),
    "cifar10-2": Shape("cifar10-{cut}", 12, 16),
    "cifar10-3": Shape("cifar10-{cut}", 48, 8),
}


def images(shape: Shape, batch: int) -> Tensor:
    """Hidden states at t = 0, channels last in memory."""
    h = torch.rand(batch, shape.channels, shape.side, shape.side, generator=torch.Generator().manual_seed(0))
    return h.contiguous(memory_format=torch.channels_last)


def block(shape: Shape, cut: str = "sde-bnn", **changes: object) -> DeepBlock:
    """The block of a preset."""
    config = preset(shape.preset.format(cut="sde-bnn" if cut == "none" else cut), gradient="backprop")
    if cut == "none":
        config = config.replace(cut="none")
    config = config.replace(**changes)
    return DeepBlock(config, shape.channels, cuts_of(config)[0], torch.Generator().manual_seed(0))


def ours(deep: DeepBlock, h0: Tensor) -> None:
    """Sample the weights, integrate h, and run the backward pass."""
    path = deep.draw(1, torch.Generator().manual_seed(1))
    (deep(h0, path).square().mean() + 1e-3 * path.kl.mean()).backward()


def ours_in_pieces(deep: DeepBlock, h0: Tensor, size: int) -> None:
    """The same gradient in micro-batches of `size` images, as `psdenets.training.micro_batches` computes it."""
    path = deep.draw(1, torch.Generator().manual_seed(1))
    w = path.w.detach().requires_grad_()
    for piece in torch.split(h0, size):
        out = deep(piece, dataclasses.replace(path, w=w))
        (out.square().sum() / h0.numel()).backward()
    ((path.w * w.grad).sum() + 1e-3 * path.kl.mean()).backward()


@final
class Floor(nn.Module):
    """The paper's f_h without time and with the same weights at all steps."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, padding=1)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(width, width, 3, stride=2, padding=1, output_padding=1)
        self.last = nn.Conv2d(width, channels, 3, padding=1)

    def forward(self, h: Tensor) -> Tensor:
        """Four convolutions, three activations."""
        out: Tensor = self.last(F.softplus(self.up(F.softplus(self.down(F.softplus(self.first(h)))))))
        return out


def floor_of(shape: Shape) -> Floor:
    """The floor of a block, channels last in memory."""
    width = preset(shape.preset.format(cut="sde-bnn")).system.net.width
    return Floor(shape.channels, width).to(memory_format=torch.channels_last)


def floor(net: Floor, h0: Tensor, steps: int) -> None:
    """As many evaluations of f_h as `ours`, and the backward pass."""
    h = h0
    for _ in range(steps):
        h = h + net(h) * (1 / steps)
    h.square().mean().backward()


def concatenating(w: dict[str, Tensor], t: Tensor, h: Tensor, *, last: bool = False) -> Tensor:
    """The paper's f_h as it is usually written: time is one more channel of every layer's input.

    Only `cat` copies. With channels first, the numbers of a kernel are read in PyTorch's order.
    """

    def with_time(h: Tensor) -> Tensor:
        if last:
            n, _, *size = h.shape
            return torch.cat([h.permute(0, 2, 3, 1), t.expand(n, *size, 1)], dim=-1).permute(0, 3, 1, 2)
        return torch.cat([h, t.expand(len(h), 1, *h.shape[2:])], dim=1)

    def kernel(layer: str, dim: int) -> Tensor:
        weight, time_weight = w[f"{layer}.weight"], w[f"{layer}.time_weight"]  # stored channels last
        if last:
            both = torch.cat([weight, time_weight.permute(0, 2, 3, 1)], dim=-1 if dim else 0)
            return both.permute(0, 3, 1, 2)
        a, *k, b = weight.shape
        return torch.cat([weight.view(a, b, *k), time_weight], dim=dim)

    h = F.softplus(F.conv2d(with_time(h), kernel("first", 1), w["first.bias"], padding=1))
    h = F.softplus(F.conv2d(with_time(h), kernel("down", 1), w["down.bias"], stride=2, padding=1))
    h = F.softplus(F.conv_transpose2d(with_time(h), kernel("up", 0), w["up.bias"], 2, padding=1, output_padding=1))
    return F.conv2d(with_time(h), kernel("last", 1), w["last.bias"], padding=1)


@final
class Joint(nn.Module):
    """(h, w, kl) as one state for torchsde: noise is drawn for every coordinate and multiplied by zero except for w."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self, deep: DeepBlock, h0: Tensor, *, last: bool = False) -> None:
        super().__init__()
        self.last = last
        self.f_h, self.process = deep.f_h, deep.process
        self.shape, self.split = h0.shape, [h0.numel(), deep.f_h.d, 1]

    def start(self, h0: Tensor) -> Tensor:
        """(h0, w0, 0), one row."""
        return torch.cat([self.flat(h0), self.process.w0, h0.new_zeros(1)])[None]

    def flat(self, h: Tensor) -> Tensor:
        """(N, C, H, W) as one vector."""
        return (h.permute(0, 2, 3, 1) if self.last else h).reshape(-1)

    def picture(self, flat: Tensor) -> Tensor:
        """The inverse of `flat`."""
        n, c, height, width = self.shape
        return flat.view(n, height, width, c).permute(0, 3, 1, 2) if self.last else flat.view(self.shape)

    def f(self, t: Tensor, y: Tensor) -> Tensor:
        """Drifts of h, w and kl."""
        h, w, _ = torch.split(y[0], self.split)
        drift, prior = self.process.drift(t, w), self.process.prior
        u = (drift - prior.drift(t, w)) / prior.diffusion(t, w)
        dh = concatenating(self.f_h.unflatten(w), t, self.picture(h), last=self.last)
        return torch.cat([self.flat(dh), drift, 0.5 * u.square().sum()[None]])[None]

    def g(self, t: Tensor, y: Tensor) -> Tensor:
        """sigma on w, zero elsewhere."""
        h, w, kl = torch.split(y[0], self.split)
        sigma = self.process.prior.diffusion(t, w)
        return torch.cat([torch.zeros_like(h), sigma.expand_as(w), torch.zeros_like(kl)])[None]


def length(steps: int) -> float:
    """Step length for torchsde. It sums steps in float32, and with exactly 1 / steps it would take an extra step."""
    return (1 + 1e-6) / steps


def torchsde_way(joint: Joint, h0: Tensor, steps: int, *, adjoint: bool = False) -> None:
    """`torchsde.sdeint` over the joint state, and the backward pass."""
    solve = torchsde.sdeint_adjoint if adjoint else torchsde.sdeint
    ts = torch.tensor([0.0, 1.0])
    y1 = solve(joint, joint.start(h0), ts, method="euler", dt=length(steps))[-1, 0]
    h, _, kl = torch.split(y1, joint.split)
    (h.square().mean() + 1e-3 * kl.sum()).backward()


def torchdiffeq_way(joint: Joint, h0: Tensor, steps: int) -> None:
    """`torchdiffeq.odeint` over (h, w), and the backward pass."""

    def field(t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        h, w = state
        return concatenating(joint.f_h.unflatten(w), t, h), joint.process.drift(t, w)

    ts = torch.linspace(0, 1, steps + 1)
    options = {"grid_constructor": lambda _f, _y, _t: ts}
    h, _ = odeint(field, (h0, joint.process.w0), ts[[0, -1]], method="euler", options=options)
    h[-1].square().mean().backward()
