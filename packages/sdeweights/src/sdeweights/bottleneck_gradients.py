"""The way back through the steps of `bottleneck_walk`, by the formulas of `bottleneck_steps`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from sdeweights.bottleneck_walk import Clock, Equation, Hidden, Layer, Walk, layers_of, path_of, rows_of, walk


@final
class Steps(torch.autograd.Function):
    """`path_of` with the gradients by `_back`."""

    @staticmethod
    def forward(
        ctx: Any, equation: Equation, clock: Clock, dB: Tensor | None, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        states, total, met = path_of(equation, clock, dB, tensors[0], layers_of(tensors[1:]), keep=True)
        ctx.equation, ctx.clock, ctx.inputs = equation, clock, len(tensors)
        ctx.save_for_backward(dB, states, *tensors, *met.kept())
        ctx.set_materialize_grads(False)
        return states, total

    @staticmethod
    def backward(ctx: Any, to_states: Tensor | None, to_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        dB, states, *saved = ctx.saved_tensors
        tensors, met = saved[: ctx.inputs], Walk.again(saved[ctx.inputs :])
        # second derivatives, and many at once (is_grads_batched): by the operations themselves
        if torch.is_grad_enabled() or any(map(_batched, (to_states, to_kl))):
            gradients = _by_autograd(ctx.equation, ctx.clock, dB, tensors, (to_states, to_kl))
        else:
            gradients = _back(ctx.equation, ctx.clock, met, states, tensors, (to_states, to_kl))
        return (None, None, None, *gradients)


def _batched(x: Tensor | None) -> bool:
    return x is not None and torch._C._functorch.is_legacy_batchedtensor(x)


class _Sums:
    """Gradients of the last layer, which are sums over steps and samples: each of its vectors is a row, (B, rows, d).

    G, G gate and (G - G gate) (n - s t) of one step after the other are added up while they are in the cache.
    """

    def __init__(self, like: Tensor, hidden: int) -> None:
        shapes = ((like.shape[0], rows, like.shape[-1]) for rows in (hidden + 1, 2, 1))
        self.weight_and_bias, self.gates, self.time_slope = (like.new_zeros(shape) for shape in shapes)
        self._ones = like.new_ones(like.shape[0], 1, like.shape[1])

    def add(self, t: float, dt: float, x: Tensor, G: Tensor, GL: Tensor, shifted: Tensor) -> None:
        """One step; ``shifted`` is n - s t. G and it are overwritten."""
        flat = self._ones * dt
        self.weight_and_bias.baddbmm_(torch.cat([x.transpose(1, 2) * dt, flat], 1), GL)
        self.time_slope.baddbmm_(flat * t, G)
        self.gates.baddbmm_(torch.cat([flat * t, flat], 1), shifted.mul_(G.sub_(GL)))

    def gradients(self) -> tuple[Tensor, ...]:
        """Of the tensors of a `Layer`, in their order."""
        weight, bias = self.weight_and_bias[:, :-1].transpose(1, 2), self.weight_and_bias[:, -1:]
        return (weight, bias, self.gates[:, :1], self.gates[:, 1:], self.time_slope)


def _back(
    equation: Equation,
    clock: Clock,
    met: Walk,
    states: Tensor,
    tensors: Sequence[Tensor],
    upstream: tuple[Tensor | None, Tensor | None],
) -> list[Tensor | None]:
    """Gradients of w and of all layers, in their order: through the steps from the last to the first."""
    to_states, to_kl = upstream
    *hidden, last = layers_of([x.detach() for x in tensors[1:]])
    first, out_of = hidden[0].weight, rows_of(last.weight).transpose(1, 2)
    layers = _HiddenAgain(hidden, torch.stack(met.products), clock, equation.activation)
    force = None if to_kl is None or equation.sigma is None else (to_kl / equation.sigma**2)[..., None]
    carried = torch.zeros(tensors[0].shape, dtype=first.dtype, device=first.device)
    sums, G, GL, shifted = _Sums(carried, last.weight.shape[-1]), *(torch.empty_like(carried) for _ in range(3))
    to_x, to_p = [], []
    for k, (t, dt) in reversed(list(enumerate(zip(*clock, strict=True)))):
        net = met.nets[k]
        if to_states is not None:
            carried.add_(to_states[:, :, k + 1])
        G = G.copy_(carried) if force is None else torch.addcmul(carried, force, net, out=G)
        torch.mul(G, met.gates[k], out=GL)
        to_x.append(torch.bmm(GL, out_of) * dt)
        to_p.append((to_x[-1].unsqueeze(-2) @ layers.jacobian[k]).squeeze(-2))
        carried.baddbmm_(to_p[-1], first, beta=1 - equation.theta * dt)
        torch.add(net, last.time_slope, alpha=-t, out=shifted)
        sums.add(t, dt, met.hidden[k], G, GL, shifted)
    if to_states is not None:
        carried.add_(to_states[:, :, 0])
    to_hidden = layers.gradients(torch.stack(to_x[::-1]))
    to_first = torch.stack(to_p[::-1], 2).flatten(1, 2).transpose(1, 2) @ states[:, :, :-1].flatten(1, 2)
    return [carried, to_first, *to_hidden[1:], *sums.gradients()]


class _HiddenAgain:
    """The hidden layers at all steps with a graph: of a few hundred numbers.

    Attributes:
        jacobian: dx/dp at all steps, (n, B, S, h', h).
    """

    def __init__(
        self, hidden: Sequence[Layer], p: Tensor, clock: Clock, activation: Callable[[Tensor], Tensor]
    ) -> None:
        self._leaves = [x.detach().requires_grad_() for layer in hidden for x in layer]
        p.requires_grad_()
        with torch.enable_grad():
            self._x = Hidden(layers_of(self._leaves), p.new_tensor(clock.starts), activation).everywhere(p)
            rows = [torch.autograd.grad(row.sum(), p, retain_graph=True)[0] for row in self._x.unbind(-1)]
        self.jacobian = torch.stack(rows, -2)

    def gradients(self, to_x: Tensor) -> list[Tensor | None]:
        """Of all tensors of the hidden layers; None for W1, which is not seen here."""
        return list(torch.autograd.grad(self._x, self._leaves, to_x, allow_unused=True))


def _by_autograd(
    equation: Equation,
    clock: Clock,
    dB: Tensor | None,
    tensors: Sequence[Tensor],
    upstream: tuple[Tensor | None, Tensor | None],
) -> list[Tensor | None]:
    """The same gradients, with a graph of their own where one is asked for."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        results = walk(equation, clock, dB, tensors[0], layers_of(tensors[1:])).path(clock)
    asked = [(y, g) for y, g in zip(results, upstream, strict=True) if g is not None and y.requires_grad]
    wanted = [x for x in tensors if x.requires_grad]
    if not asked:
        return [None] * len(tensors)
    ys, gs = zip(*asked, strict=True)
    found = iter(torch.autograd.grad(ys, wanted, gs, create_graph=again, allow_unused=True))
    return [next(found) if x.requires_grad else None for x in tensors]
