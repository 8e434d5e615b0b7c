"""Gradients of the fused steps. One step of the backward pass, with l the gradient of w1 and k that of the KL:

G = l + k n / sigma^2,   x <- W^T (G gate) dt,   p <- J^T x,   w <- (1 - theta dt) l + W1^T p,   J = dx/dp
B <- G dt,   A <- -w G dt,   w <- ... - A G dt          for the diagonal part of a `DiagonalDrift`
theta <- (mu - w) l dt,   sigma <- l dB - k (n / sigma)^2 / sigma dt                  if they are trained
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sdeweights import kl
from sdeweights.drifts import knots_around
from sdeweights.fused.equation import Diagonal, Equation, Layer
from sdeweights.fused.steps import HiddenLayers, Visited, long_rows, take

Times = Sequence[float]


def integrate(equation: Equation, w: Tensor, times: Times, dB: Tensor | None) -> tuple[Tensor, Tensor]:
    """States (S, n + 1, d) and KL (S,) of a phase, with gradients for w, all layers, and a trained theta and sigma."""
    tensors = [w, *(equation.diagonal or ()), *itertools.chain(*equation.layers)]
    coefficients = [_like(equation.theta, w), _like(equation.sigma, w)]
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (*coefficients, *tensors)):
        bare = equation._replace(layers=[], diagonal=None)
        states, total = _Steps.apply(bare, times, dB, *coefficients, *tensors)  # type: ignore[no-untyped-call]
        return states, total
    states, total, _ = take(_with(equation, coefficients), w, times, dB, keep=False)
    return states, total


def _like(coefficient: float | Tensor | None, w: Tensor) -> Tensor | None:
    """A coefficient that is a tensor, in the dtype of w; None if it is a number."""
    return coefficient.to(w) if isinstance(coefficient, Tensor) else None


def _with(equation: Equation, coefficients: Sequence[Tensor | None]) -> Equation:
    """The equation with theta and sigma replaced by those that are tensors."""
    theta, sigma = coefficients
    return equation._replace(
        theta=equation.theta if theta is None else theta, sigma=equation.sigma if sigma is None else sigma
    )


@final
class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        equation: Equation,
        times: Times,
        dB: Tensor | None,
        theta: Tensor | None,
        sigma: Tensor | None,
        *tensors: Tensor,
    ) -> tuple[Tensor, Tensor]:
        whole = _with(_of_tensors(equation, tensors[1:]), (theta, sigma))
        states, total, visited = take(whole, tensors[0], times, dB, keep=True)
        # only numbers stay on the context: tensors are saved, so that they are freed with the graph
        ctx.equation = equation._replace(
            theta=equation.theta if theta is None else 0.0, sigma=equation.sigma if sigma is None else None
        )
        ctx.times, ctx.inputs = times, len(tensors)
        noise = dB if ctx.needs_input_grad[4] else None  # needed only for the gradient of sigma
        ctx.save_for_backward(states, theta, sigma, noise, *tensors, *itertools.chain(*visited))
        ctx.set_materialize_grads(False)
        return states, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_states: Tensor | None, to_kl: Tensor | None) -> tuple[Tensor | None, ...]:
        states, theta, sigma, dB, *saved = ctx.saved_tensors
        w, *tensors = saved[: ctx.inputs]
        equation = _with(_of_tensors(ctx.equation, tensors), (theta, sigma))
        kept, n = saved[ctx.inputs :], len(ctx.times) - 1
        visited = Visited(*(kept[i : i + n] for i in range(0, len(kept), n)))
        sums = _CoefficientSums(equation, ctx.needs_input_grad[3], dB, to_kl)
        gradients = _backward(equation, ctx.times, visited, states, w, (to_states, to_kl), sums)
        return (None, None, None, sums.theta, sums.sigma, *gradients)


def _backward(
    equation: Equation,
    times: Times,
    visited: Visited,
    states: Tensor,
    w: Tensor,
    upstream: tuple[Tensor | None, Tensor | None],
    coefficients: "_CoefficientSums",
) -> list[Tensor | None]:
    """Gradients of w and of all tensors, in order, by going through the steps from the last to the first."""
    to_states, to_kl = upstream
    *hidden, last = equation.layers
    first, to_x_of = hidden[0].weight, long_rows(last.weight).t()
    layers = _HiddenAgain(hidden, torch.stack(visited.products), times[:-1], equation.activation)
    carried = torch.zeros_like(w)
    sums, G, GL, shifted = _Sums(carried, last.weight.shape[-1]), *(torch.empty_like(carried) for _ in range(3))
    diagonal = None if equation.diagonal is None else _DiagonalSums(equation.diagonal)
    to_x, to_p = [], []
    for k, (t, t1) in reversed(list(enumerate(itertools.pairwise(times)))):
        dt, net = t1 - t, visited.nets[k]
        if to_states is not None:
            carried.add_(to_states[:, k + 1])
        coefficients.add(k, dt, states[:, k], net, carried)
        G = _with_force(carried, net, to_kl, equation.sigma, out=G)
        torch.mul(G, visited.gates[k], out=GL)
        to_x.append((GL @ to_x_of) * dt)
        to_p.append((to_x[-1].unsqueeze(-2) @ layers.jacobian[k]).squeeze(-2))
        _through_drift(carried, to_p[-1], first, equation.theta, dt)
        torch.add(net, last.time_slope, alpha=-t, out=shifted)
        if diagonal is not None:
            diagonal.add(t, dt, states[:, k], G, carried, shifted)
        sums.add(t, dt, visited.hidden[k], G, GL, shifted)
    if to_states is not None:
        carried.add_(to_states[:, 0])
    to_hidden = layers.gradients(torch.stack(to_x[::-1]))
    to_first = torch.stack(to_p[::-1], 1).flatten(0, 1).t() @ states[:, :-1].flatten(0, 1)
    to_diagonal = () if diagonal is None else diagonal.gradients
    return [carried, *to_diagonal, to_first, *to_hidden[1:], *sums.gradients()]


def _through_drift(carried: Tensor, to_p: Tensor, first: Tensor, theta: float | Tensor, dt: float) -> None:
    """carried <- (1 - theta dt) carried + W1^T p."""
    if isinstance(theta, Tensor):
        carried.mul_(1 - theta * dt).addmm_(to_p, first)
    else:
        carried.addmm_(to_p, first, beta=1 - theta * dt)


def _with_force(
    carried: Tensor, net: Tensor, to_kl: Tensor | None, sigma: float | Tensor | None, out: Tensor
) -> Tensor:
    """G: the gradient with respect to n through w1 and through the KL, both without their factor dt."""
    if to_kl is None or sigma is None:
        return out.copy_(carried)
    if isinstance(sigma, Tensor):
        return torch.addcmul(carried, kl.slope(to_kl)[:, None], net / sigma / sigma, out=out)
    return torch.addcmul(carried, (kl.slope(to_kl) / sigma / sigma)[:, None], net, out=out)


class _CoefficientSums:
    """Gradients of theta and sigma, None for those that are not trained, summed over steps."""

    def __init__(self, equation: Equation, trained_theta: bool, dB: Tensor | None, to_kl: Tensor | None) -> None:
        self.equation, self.dB, self.to_kl = equation, dB, to_kl
        theta, sigma = equation.theta, equation.sigma
        self.theta = torch.zeros_like(theta) if trained_theta and isinstance(theta, Tensor) else None
        self.sigma = torch.zeros_like(sigma) if dB is not None and isinstance(sigma, Tensor) else None

    def add(self, k: int, dt: float, w: Tensor, net: Tensor, carried: Tensor) -> None:
        """Add step k, with the weights and the net at its left end and the gradient `carried` of those at its right."""
        if self.theta is not None:
            self.theta += ((self.equation.mu - w) * carried).sum_to_size(self.theta.shape) * dt
        sigma = self.equation.sigma
        if self.sigma is None or self.dB is None or sigma is None:
            return
        self.sigma += (carried * self.dB[:, k]).sum_to_size(self.sigma.shape)
        if self.to_kl is not None:
            u = net / sigma  # du / dsigma = -u / sigma
            self.sigma -= (kl.slope(self.to_kl)[:, None] * u * u / sigma).sum_to_size(self.sigma.shape) * dt


class _Sums:
    """Gradients of the last layer, summed over steps and samples; each vector of the layer is one row, (rows, d).

    G, G gate and (G - G gate) (n - s t) are added step by step, while they are still in the cache.
    """

    def __init__(self, like: Tensor, hidden: int) -> None:
        samples, d = like.shape
        self.weight_and_bias, self.gates, self.time_slope = (like.new_zeros(rows, d) for rows in (hidden + 1, 2, 1))
        self._ones = like.new_ones(1, samples)

    def add(self, t: float, dt: float, x: Tensor, G: Tensor, GL: Tensor, shifted: Tensor) -> None:
        """Add one step; `shifted` is n - s t. G and `shifted` are overwritten."""
        flat = self._ones * dt
        self.weight_and_bias.addmm_(torch.cat([x.t() * dt, flat]), GL)
        self.time_slope.addmm_(flat * t, G)
        self.gates.addmm_(torch.cat([flat * t, flat]), shifted.mul_(G.sub_(GL)))

    def gradients(self) -> tuple[Tensor, ...]:
        """Gradients of the tensors of a `Layer`, in their order."""
        weight, bias = self.weight_and_bias[:-1].t(), self.weight_and_bias[-1]
        return (weight, bias, self.gates[0], self.gates[1], self.time_slope[0])


class _DiagonalSums:
    """Gradients of the rates and forces at the knots, summed over steps and samples."""

    def __init__(self, diagonal: Diagonal) -> None:
        self.diagonal = diagonal
        self.gradients = Diagonal(*(torch.zeros_like(values) for values in diagonal))

    def add(self, t: float, dt: float, w: Tensor, G: Tensor, carried: Tensor, shifted: Tensor) -> None:
        """Add one step: also adds its part of the gradient of w to `carried`, and removes B - A w from `shifted`."""
        rates, forces = self.diagonal.at(t)
        carried.addcmul_(rates, G, value=-dt)
        shifted.sub_(forces).addcmul_(rates, w)
        i, j, s = knots_around(t, len(self.diagonal.rates))
        to_rates, to_forces = (w * G).sum(0), G.sum(0)
        for knot, share in ((i, 1 - s), (j, s)):
            self.gradients.rates[knot].sub_(to_rates, alpha=share * dt)
            self.gradients.forces[knot].add_(to_forces, alpha=share * dt)


class _HiddenAgain:
    """The hidden layers at all steps, recomputed with an autograd graph of only a few hundred numbers.

    Attributes:
        jacobian: dx/dp at all steps, (n, S, h', h).
    """

    def __init__(
        self, hidden: Sequence[Layer], p: Tensor, starts: Times, activation: Callable[[Tensor], Tensor]
    ) -> None:
        self._leaves = [x.detach().requires_grad_() for layer in hidden for x in layer]
        p.requires_grad_()
        with torch.enable_grad():
            self._x = HiddenLayers(_layers_of(self._leaves), p.new_tensor(starts), activation).everywhere(p)
            rows = [torch.autograd.grad(row.sum(), p, retain_graph=True)[0] for row in self._x.unbind(-1)]
        self.jacobian = torch.stack(rows, -2)

    def gradients(self, to_x: Tensor) -> list[Tensor | None]:
        """Gradients of all tensors of the hidden layers; None for W1, which is not used here."""
        return list(torch.autograd.grad(self._x, self._leaves, to_x, allow_unused=True))


def _of_tensors(bare: Equation, tensors: Sequence[Tensor]) -> Equation:
    """The equation with its tensors: those of the layers, after the two of the diagonal part if there is one."""
    rest = len(tensors) % len(Layer._fields)
    return bare._replace(layers=_layers_of(tensors[rest:]), diagonal=Diagonal(*tensors[:rest]) if rest else None)


def _layers_of(tensors: Sequence[Tensor]) -> list[Layer]:
    """Group a flat sequence of tensors into layers."""
    size = len(Layer._fields)
    return [Layer(*tensors[i : i + size]) for i in range(0, len(tensors), size)]
