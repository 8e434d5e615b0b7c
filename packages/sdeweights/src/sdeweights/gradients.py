"""Three ways to integrate a hidden state along a path, which differ in what they store for the backward pass.

backprop     every step: memory grows with the number of steps
checkpoint   every sqrt(steps)-th state; the rest are recomputed: memory grows with the square root of the step count
adjoint      only the last state; the rest are computed backward: memory does not grow
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint as torch_checkpoint

from sdeweights.functional import HiddenDrift
from sdeweights.hidden import HiddenScheme, PathStep, State, take_steps
from sdeweights.purity import random_state


def checkpoint(f_h: HiddenDrift, scheme: HiddenScheme, steps: Sequence[PathStep], state: State) -> State:
    """Take the steps in sqrt(steps) checkpointed pieces; gradients are bit-identical to those of `backprop`."""
    size = max(1, math.isqrt(len(steps)))
    for first in range(0, len(steps), size):
        piece = steps[first : first + size]
        state = torch_checkpoint(take_steps, f_h, scheme, piece, state, use_reentrant=False)
    return state


def adjoint(f_h: HiddenDrift, scheme: HiddenScheme, steps: Sequence[PathStep], state: State) -> State:
    """Take the steps; the backward pass recomputes the states with a `ReversibleScheme`.

    Gradients equal those of `backprop` up to rounding.
    """
    if not steps:
        return state
    parameters = tuple(p for p in f_h.parameters() if p.requires_grad) if isinstance(f_h, nn.Module) else ()
    weights = (*(step.w0 for step in steps), *(step.w1 for step in steps))
    out: State = _Adjoint.apply(  # type: ignore[no-untyped-call]
        f_h, scheme, steps, len(state), *state, *weights, *parameters
    )
    return out


MODES: dict[str, Callable[[HiddenDrift, HiddenScheme, Sequence[PathStep], State], State]] = {
    "backprop": take_steps,
    "checkpoint": checkpoint,
    "adjoint": adjoint,
}


class _Adjoint(torch.autograd.Function):
    """Steps forward without a graph; the backward pass recomputes one step at a time, starting from the last state."""

    @staticmethod
    def forward(
        ctx: Any, f_h: HiddenDrift, scheme: HiddenScheme, steps: Sequence[PathStep], n: int, *tensors: Tensor
    ) -> State:
        state = tensors[:n]
        first, *rest = (_detached(step) for step in steps)
        state = _first_step(f_h, scheme, first, tuple(x.detach() for x in state))
        state = take_steps(f_h, scheme, rest, state)
        ctx.f_h, ctx.scheme, ctx.n = f_h, scheme, n
        empty = state[0].new_empty(0)
        ctx.shape = [step._replace(w0=empty, w1=empty) for step in steps]
        ctx.save_for_backward(*state, *tensors[n:])
        return state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        n, steps = ctx.n, len(ctx.shape)
        saved = ctx.saved_tensors
        state, parameters = saved[:n], saved[n + 2 * steps :]
        a = list(upstream)
        to_w0: list[Tensor | None] = [None] * steps
        to_w1: list[Tensor | None] = [None] * steps
        to_parameters: list[Tensor | None] = [None] * len(parameters)
        for k in reversed(range(steps)):
            w0, w1 = (saved[n + k].detach(), saved[n + steps + k].detach())
            step = ctx.shape[k]._replace(w0=w0, w1=w1)
            state = tuple(x.detach() for x in ctx.scheme.backward(ctx.f_h, step, state))
            inputs = [x.requires_grad_() for x in (*state, w0, w1)]
            with torch.enable_grad():
                out = ctx.scheme.forward(ctx.f_h, step, state)
            grads = torch.autograd.grad(out, [*inputs, *parameters], a, allow_unused=True)
            a = [torch.zeros_like(x) if g is None else g for x, g in zip(state, grads, strict=False)]
            to_w0[k], to_w1[k] = grads[n], grads[n + 1]
            to_parameters = [_sum(x, g) for x, g in zip(to_parameters, grads[n + 2 :], strict=True)]
            state = tuple(x.detach() for x in state)
        return (None, None, None, None, *a, *to_w0, *to_w1, *to_parameters)


def _sum(x: Tensor | None, y: Tensor | None) -> Tensor | None:
    return y if x is None else x if y is None else x + y


def _detached(step: PathStep) -> PathStep:
    return step._replace(w0=step.w0.detach(), w1=step.w1.detach())


def _first_step(f_h: HiddenDrift, scheme: HiddenScheme, step: PathStep, state: State) -> State:
    """Take the first step with gradients on, to find trainable tensors hidden in f_h that the adjoint cannot reach."""
    fixed: HiddenDrift = f_h
    if isinstance(f_h, nn.Module):
        frozen = {name: p.detach() for name, p in f_h.named_parameters()}
        fixed = lambda t, h, w: torch.func.functional_call(f_h, frozen, (t, h, w))  # noqa: E731
    before = random_state(state[0])
    with torch.enable_grad():
        state = scheme.forward(fixed, step, state)
    if not torch.equal(random_state(state[0]), before):
        raise ValueError(
            'expected f_h without random numbers such as dropout for gradient="adjoint", got one that draws them: '
            'the backward pass would draw different ones; "checkpoint" draws the same numbers again'
        )
    if any(x.requires_grad for x in state):
        raise ValueError(
            'expected f_h as an nn.Module for gradient="adjoint", got a function that hides trainable tensors'
        )
    return state
