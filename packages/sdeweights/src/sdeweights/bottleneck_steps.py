"""Euler's steps of the paper's f_q = theta (mu - w) + net(t, w), for several processes of one shape at once:

    p  = W1 w                            (h,)      all that the hidden layers see of w
    x  = hidden(t, p)                    (h',)     a handful of numbers
    n  = gate (W x + b) + s t            (d,)      the net, gate = sigmoid(a t + c)
    w1 = w + (theta (mu - w) + n) dt + sigma dB,      1/2 |n / sigma|^2 dt of KL

What has d numbers is passed over as seldom as can be, and the gradients of W1, W, b, a, c, s, sums over all steps, are
taken by one product of matrices each when the steps are done. With l the gradient of w1 and k that of the KL,

    G = l + k n / sigma^2,   x <- W^T (G gate) dt,   p <- J^T x,   w <- (1 - theta dt) l + W1^T p,   J = dx/dp
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast, final

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

from sdeweights import kl
from sdeweights.diffusion import Field
from sdeweights.drifts import BottleneckDrift, ConcatSquash, PriorPlus
from sdeweights.priors import Numbers, Prior


class Clock(NamedTuple):
    """Starts and lengths of steps."""

    starts: Sequence[float]
    lengths: Sequence[float]


class Equation(NamedTuple):
    """The numbers of the equation; sigma is None where there is no noise."""

    theta: float
    mu: float
    sigma: float | None
    activation: Callable[[Tensor], Tensor]


class Layer(NamedTuple):
    """A `ConcatSquash` of B processes: weight (B, out, in), the others (B, 1, out)."""

    weight: Tensor
    bias: Tensor
    gate_slope: Tensor
    gate_bias: Tensor
    time_slope: Tensor

    @classmethod
    def of(cls, layers: Sequence[ConcatSquash]) -> Layer:
        """The same layer of B processes, side by side."""
        vectors = ("bias", "gate_slope", "gate_bias", "time_slope")
        rest = (beside([getattr(layer, name) for layer in layers])[:, None] for name in vectors)
        return cls(beside([layer.weight for layer in layers]), *rest)

    def gate(self, t: float) -> Tensor:
        """sigmoid(a t + c)."""
        return torch.add(self.gate_bias, self.gate_slope, alpha=t).sigmoid_()


def beside(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one shape with an axis for them in front."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(list(tensors))


class Shape(NamedTuple):
    """What drifts have in common whose steps can be taken at once."""

    numbers: Numbers
    sizes: tuple[torch.Size, ...]
    activation: Callable[[Tensor], Tensor]
    dtype: torch.dtype
    device: torch.device


_MOST_HIDDEN = 16  # the Jacobian J is computed row by row
_SIGMAS = (1e-6, 1e6)  # whose squares are far from the ends of float32
_ACTIVATIONS = (F.softplus, F.relu, F.elu, F.silu, F.gelu, torch.relu, torch.tanh, torch.sigmoid, torch.sin)


def shape_of(drift: object, prior: Prior | None = None) -> Shape | None:
    """The shape of the OU process with plain numbers plus a bottleneck net; None for any other drift.

    Where a prior is given the KL is against it, and it has to be the drift's own.
    """
    if not isinstance(drift, PriorPlus) or (prior is not None and drift.prior is not prior):
        return None
    numbers, net = drift.prior.numbers, drift.net
    if numbers is None or type(net) is not BottleneckDrift or not all(type(x) is ConcatSquash for x in net.layers):
        return None
    if prior is not None and not _SIGMAS[0] <= abs(numbers.sigma) <= _SIGMAS[1]:
        return None
    weights = [cast("Tensor", layer.weight) for layer in net.layers]
    dtype, device = weights[0].dtype, weights[0].device
    usual = dtype in (torch.float32, torch.float64) and weights[-1].shape[1] <= _MOST_HIDDEN
    # only what is known to have no parameters and to treat every number by itself
    if not usual or not any(net.activation is known for known in _ACTIVATIONS) or _watched(drift, device):
        return None
    return Shape(numbers, tuple(weight.shape for weight in weights), net.activation, dtype, device)


def _watched(drift: PriorPlus, device: torch.device) -> bool:
    """Whether somebody would miss the calls of modules, or transforms what they compute."""
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    return (
        transformed
        or torch.is_autocast_enabled(device.type)
        or bool(torch.nn.modules.module._has_any_global_hook())  # type: ignore[no-untyped-call]
        or any(map(_hooked, drift.modules()))
    )


def _hooked(module: torch.nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)


def take(
    drifts: Sequence[Field], w: Tensor, times: Sequence[float], dB: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """States at the grid points, the first among them, and the KL.

    Args:
        drifts: f_q of B processes of one shape.
        w: where they start, (B, S, d).
        times: n + 1 grid points.
        dB: increments (B, S, n, d), or None for steps without noise.

    Returns:
        (B, S, n + 1, d), and 1/2 int |u|^2 of each sample, (B, S), where there is noise.
    """
    shape = shape_of(drifts[0])
    if shape is None:
        raise ValueError("expected the drift f_p + bottleneck net of a prior with plain numbers, got another")
    nets = [drift.net for drift in drifts]  # type: ignore[attr-defined]
    layers = [Layer.of(same) for same in zip(*(net.layers for net in nets), strict=True)]
    theta, mu, sigma = shape.numbers
    equation = Equation(theta, mu, None if dB is None else sigma, shape.activation)
    clock = Clock(times[:-1], [b - a for a, b in itertools.pairwise(times)])
    tensors = [w, *(x for layer in layers for x in layer)]
    if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        states, total = _Steps.apply(equation, clock, dB, *tensors)  # type: ignore[no-untyped-call]
    else:
        states, total, _ = _path(equation, clock, dB, w, layers, keep=False)
    return states, None if dB is None else total


class _Walk(NamedTuple):
    """What was met on the way, a list over steps each."""

    states: list[Tensor]  # with the first
    rates: list[Tensor]
    products: list[Tensor]
    hidden: list[Tensor]
    gates: list[Tensor]
    nets: list[Tensor]

    def path(self, clock: Clock, states: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """States (B, S, n + 1, d), stacked unless they are given, and KL (B, S)."""
        states = torch.stack(self.states, 2) if states is None else states
        if not self.rates:
            return states, states.new_zeros(states.shape[:2])
        return states, (torch.stack(self.rates, -1) * states.new_tensor(clock.lengths)).sum(-1)

    def kept(self) -> tuple[Tensor, ...]:
        """What the way back needs, as one sequence."""
        return (*self.products, *self.hidden, *self.gates, *self.nets)

    @classmethod
    def again(cls, kept: Sequence[Tensor]) -> _Walk:
        """The inverse of `kept`."""
        n = len(kept) // 4
        return cls([], [], *(list(kept[i * n : (i + 1) * n]) for i in range(4)))


def _path(
    equation: Equation, clock: Clock, dB: Tensor | None, w: Tensor, layers: Sequence[Layer], *, keep: bool
) -> tuple[Tensor, Tensor, _Walk]:
    """States, KL, and what was met, without a graph: states are written where they stay."""
    states = w.new_empty(*w.shape[:2], len(clock.starts) + 1, w.shape[-1])
    states[:, :, 0] = w
    walk = _walk(equation, clock, dB, w, layers, keep=keep, into=states.unbind(2)[1:])
    return *walk.path(clock, states), walk


def _walk(
    equation: Equation,
    clock: Clock,
    dB: Tensor | None,
    w: Tensor,
    layers: Sequence[Layer],
    *,
    keep: bool = False,
    into: Sequence[Tensor] | None = None,
) -> _Walk:
    """One step after the other, and what the way back needs where it is to be kept; states go ``into`` tensors."""
    *hidden, last = layers
    squeezed = _Hidden(hidden, w.new_tensor(clock.starts), equation.activation)
    walk = _Walk([w], [], [], [], [], [])
    to_hidden, to_net = hidden[0].weight.transpose(1, 2), last.weight.transpose(1, 2)
    noises = () if dB is None else dB.unbind(2)
    for k, (t, dt) in enumerate(zip(*clock, strict=True)):
        p = w @ to_hidden
        x = squeezed.at(k, p)
        gate = last.gate(t)
        net = torch.baddbmm(last.bias, x, to_net).mul_(gate).add_(last.time_slope, alpha=t)
        w = torch.mul(w, 1 - equation.theta * dt, out=None if into is None else into[k]).add_(net, alpha=dt)
        if equation.mu:
            w = w.add_(equation.theta * equation.mu * dt)
        if equation.sigma is not None:
            w = w.add_(noises[k], alpha=equation.sigma)
            walk.rates.append(kl.integrand(net) / equation.sigma**2)
        walk.states.append(w)
        if keep:
            walk.products.append(p)
            walk.hidden.append(x)
            walk.gates.append(gate)
            walk.nets.append(net)
    return walk


class _Hidden:
    """The hidden layers at given times, gates and shifts of all of them computed once.

    Attributes:
        gates, shifts: of each layer, (n, B, 1, out).
    """

    def __init__(self, layers: Sequence[Layer], ts: Tensor, activation: Callable[[Tensor], Tensor]) -> None:
        self.layers, self.activation = layers, activation
        at = ts[:, None, None, None]
        self.gates = [torch.sigmoid(layer.gate_slope * at + layer.gate_bias) for layer in layers]
        self.shifts = [layer.time_slope * at for layer in layers]
        self._each = [list(zip(*pair, strict=True)) for pair in zip(self.gates, self.shifts, strict=True)]

    def at(self, k: int, p: Tensor) -> Tensor:
        """x from p, (B, S, h) -> (B, S, h'), at the k-th time."""
        return self._through([pairs[k] for pairs in self._each], p)

    def everywhere(self, p: Tensor) -> Tensor:
        """x from p at all times, (n, B, S, h) -> (n, B, S, h')."""
        return self._through(list(zip(self.gates, self.shifts, strict=True)), p)

    def _through(self, pairs: Sequence[tuple[Tensor, Tensor]], p: Tensor) -> Tensor:
        first, *rest = self.layers
        gate, shift = pairs[0]
        x = self.activation(torch.addcmul(shift, gate, p + first.bias))
        for layer, (gate, shift) in zip(rest, pairs[1:], strict=True):
            x = self.activation(torch.addcmul(shift, gate, x @ layer.weight.transpose(1, 2) + layer.bias))
        return x


@final
class _Steps(torch.autograd.Function):
    """`_walk` with the gradients that the head of this module tells."""

    @staticmethod
    def forward(
        ctx: Any, equation: Equation, clock: Clock, dB: Tensor | None, *tensors: Tensor
    ) -> tuple[Tensor, Tensor]:
        states, total, walk = _path(equation, clock, dB, tensors[0], _layers(tensors[1:]), keep=True)
        ctx.equation, ctx.clock, ctx.inputs = equation, clock, len(tensors)
        ctx.save_for_backward(dB, states, *tensors, *walk.kept())
        ctx.set_materialize_grads(False)
        return states, total

    @staticmethod
    def backward(ctx: Any, to_states: Tensor | None, to_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        dB, states, *saved = ctx.saved_tensors
        tensors, walk = saved[: ctx.inputs], _Walk.again(saved[ctx.inputs :])
        # second derivatives, and many at once (is_grads_batched): by the operations themselves
        if torch.is_grad_enabled() or any(map(_batched, (to_states, to_kl))):
            gradients = _by_autograd(ctx.equation, ctx.clock, dB, tensors, (to_states, to_kl))
        else:
            back = _back(ctx.equation, ctx.clock, walk, tensors, to_states, to_kl)
            gradients = back.to_everything(ctx.clock, walk, tensors[0], states)
        return (None, None, None, *gradients)


def _batched(x: Tensor | None) -> bool:
    return x is not None and torch._C._functorch.is_legacy_batchedtensor(x)


def _layers(tensors: Sequence[Tensor]) -> list[Layer]:
    """The inverse of writing the tensors of all layers one after the other."""
    size = len(Layer._fields)
    return [Layer(*tensors[i : i + size]) for i in range(0, len(tensors), size)]


class _Back(NamedTuple):
    """What comes back step by step: gradients of w at the start, and of p at all steps, (n, B, S, h).

    ``G``, ``GL`` = G gate and ``Q`` = G (1 - gate) (n - s t), (B, S, n, d), have their sums over steps still before
    them; ``to_hidden`` are the gradients of the hidden layers but for W1.
    """

    to_w: Tensor
    to_p: Tensor
    G: Tensor
    GL: Tensor
    Q: Tensor
    to_hidden: list[Tensor | None]

    def to_everything(self, clock: Clock, walk: _Walk, w: Tensor, states: Tensor) -> list[Tensor | None]:
        """Gradients of w and of all layers, in their order."""
        t, dt = (w.new_tensor(values) for values in clock)
        ones = torch.ones_like(walk.hidden[0][..., :1])
        x = torch.stack([torch.cat([x, ones], -1) * dt for x, dt in zip(walk.hidden, dt, strict=True)], 2)
        flat = dt.expand(*w.shape[:2], -1)[..., None]
        weight_and_bias = _over_steps(x, self.GL)
        gates = _over_steps(torch.cat([flat * t[:, None], flat], -1), self.Q)
        time_slope = _over_steps(flat * t[:, None], self.G)
        to_last = (weight_and_bias[:, :-1].transpose(1, 2), weight_and_bias[:, -1:], gates[:, :1], gates[:, 1:])
        to_first = _over_steps(self.to_p.permute(1, 2, 0, 3), states[:, :, :-1])
        return [self.to_w, to_first, *self.to_hidden[1:], *to_last, time_slope]


def _over_steps(few: Tensor, many: Tensor) -> Tensor:
    """sum over samples and steps of few (B, S, n, h) times many (B, S, n, d): (B, h, d)."""
    return few.flatten(1, 2).transpose(1, 2) @ many.flatten(1, 2)


def _back(
    equation: Equation,
    clock: Clock,
    walk: _Walk,
    tensors: Sequence[Tensor],
    to_states: Tensor | None,
    to_kl: Tensor | None,
) -> _Back:
    """Through the steps from the last to the first."""
    *hidden, last = _layers([x.detach() for x in tensors[1:]])
    into = hidden[0].weight
    layers = _HiddenAgain(hidden, torch.stack(walk.products), clock, equation.activation)
    force = None if to_kl is None or equation.sigma is None else (to_kl / equation.sigma**2)[..., None]
    shape = (*tensors[0].shape[:2], len(walk.nets), tensors[0].shape[-1])
    G, GL, Q = (tensors[0].new_empty(shape) for _ in range(3))
    carried = torch.zeros_like(tensors[0])
    to_x, to_p = [], []
    for k, (t, dt) in reversed(list(enumerate(zip(*clock, strict=True)))):
        step, net = (slice(None), slice(None), k), walk.nets[k]
        if to_states is not None:
            carried.add_(to_states[:, :, k + 1])
        g = torch.addcmul(carried, force, net, out=G[step]) if force is not None else G[step].copy_(carried)
        gl = torch.mul(g, walk.gates[k], out=GL[step])
        torch.mul(g - gl, torch.add(net, last.time_slope, alpha=-t), out=Q[step])
        to_x.append(torch.bmm(gl, last.weight) * dt)
        to_p.append((to_x[-1].unsqueeze(-2) @ layers.jacobian[k]).squeeze(-2))
        carried = torch.baddbmm(carried, to_p[-1], into, beta=1 - equation.theta * dt)
    if to_states is not None:
        carried.add_(to_states[:, :, 0])
    to_hidden = layers.gradients(torch.stack(to_x[::-1]))
    return _Back(carried, torch.stack(to_p[::-1]), G, GL, Q, to_hidden)


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
            self._x = _Hidden(_layers(self._leaves), p.new_tensor(clock.starts), activation).everywhere(p)
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
        results = _walk(equation, clock, dB, tensors[0], _layers(tensors[1:])).path(clock)
    asked = [(y, g) for y, g in zip(results, upstream, strict=True) if g is not None and y.requires_grad]
    wanted = [x for x in tensors if x.requires_grad]
    if not asked:
        return [None] * len(tensors)
    ys, gs = zip(*asked, strict=True)
    found = iter(torch.autograd.grad(ys, wanted, gs, create_graph=again, allow_unused=True))
    return [next(found) if x.requires_grad else None for x in tensors]
