"""Euler's steps of f_p + bottleneck net, taken together, against the general solver step by step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
import torch
from torch import Tensor

from sdeweights import (
    Brownian,
    Cut,
    Grid,
    Increments,
    NonFiniteState,
    OrnsteinUhlenbeck,
    Prior,
    PriorPlus,
    WeightPath,
    WeightProcess,
    bottleneck,
    bottleneck_steps,
    sample_together,
    sampling,
)

CUTS = {
    "none": Cut.none(),
    "full": Cut.full(),
    "three phases": Cut.vertical(0.3, 0.6),
    "ode first": Cut.ode_first(0.4),
    "fixed": Cut.vertical(0.2, 0.5, at_t2="fixed"),
    "learned": Cut.sde_first(0.4, at_t2="learned"),
    "horizontal": Cut.horizontal(0.5),
    "scattered": Cut.horizontal([1, 4]),
    "both": Cut.both(0.25, 0.75, 0.5, at_t2="learned"),
}
PRIORS = {"OU": OrnsteinUhlenbeck(0.7, 0.3, 0.4), "OU, mean 0": OrnsteinUhlenbeck(sigma=0.5), "Brownian": Brownian(0.6)}


def process_of(
    cut: Cut = CUTS["full"], prior: Prior = PRIORS["OU"], hidden: str = "2-5-3", d: int = 6, seed: int = 0
) -> WeightProcess:
    """A process whose net is not zero, in float64."""
    g = torch.Generator().manual_seed(seed)
    net = bottleneck(d, cut, hidden, generator=g).double()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64))
    return WeightProcess(torch.randn(d, generator=g, dtype=torch.float64), PriorPlus(prior, net), prior, cut)


@contextmanager
def counted_takes(monkeypatch: pytest.MonkeyPatch, *, allowed: bool = True) -> Iterator[list[int]]:
    """How many processes each call of `take` had; where it is not allowed, the general solver takes over."""
    calls: list[int] = []
    take = bottleneck_steps.take

    def counting(drifts: list[object], *rest: object) -> object:
        calls.append(len(drifts))
        return take(drifts, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(bottleneck_steps, "take", counting)
        if not allowed:
            patch.setattr(bottleneck_steps, "shape_of", lambda *_: None)
            patch.setattr(sampling, "shape_of", lambda *_: None)
        yield calls


def draw(process: WeightProcess, samples: int = 2, steps: int = 10) -> WeightPath:
    return process.sample(steps, samples, generator=torch.Generator().manual_seed(1))


def objective(path: WeightPath) -> Tensor:
    weights = torch.arange(1.0, path.w.numel() + 1, dtype=path.w.dtype).view_as(path.w)
    after = path.w.new_zeros(()) if path.after_reset is None else path.after_reset.sin().sum()
    return (path.w.sin() * weights).sum() + path.kl.square().sum() + after


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("samples", [1, 3])
def test_paths_kl_and_gradients_are_those_of_the_general_solver(
    cut: Cut, samples: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = process_of(cut)
    parameters = list(process.parameters())
    found = []
    for allowed in (True, False):
        with counted_takes(monkeypatch, allowed=allowed) as calls:
            path = draw(process, samples)
        assert bool(calls) is allowed
        found.append((path, torch.autograd.grad(objective(path), parameters, allow_unused=True)))
    (fast, g_fast), (plain, g_plain) = found
    # the same numbers, added up in another order: 10 steps of numbers around 1
    torch.testing.assert_close(fast.w, plain.w, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(fast.kl, plain.kl, rtol=1e-12, atol=1e-12)
    assert (fast.evaluations, fast.gaussians, fast.shared) == (plain.evaluations, plain.gaussians, plain.shared)
    for a, b in zip(g_fast, g_plain, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize("hidden", ["1-8-1", "4", "2-3-3-2"])
def test_priors_and_nets_of_other_sizes(prior: Prior, hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    process = process_of(prior=prior, hidden=hidden)
    with counted_takes(monkeypatch) as calls:
        fast = draw(process)
    assert calls == [1]
    with counted_takes(monkeypatch, allowed=False):
        plain = draw(process)
    torch.testing.assert_close(fast.kl, plain.kl, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(objective(path), list(process.parameters())) for path in (fast, plain)]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_a_constant_net_has_the_closed_form_of_a_straight_line() -> None:
    """With theta = 0, bias 0.3 and an open gate the drift is 0.3: w_1 = w_0 + 0.3, KL = 1/2 d (0.3 / 0.5)^2."""
    process = process_of(Cut.full(), Brownian(0.5), d=4)
    with torch.no_grad():
        for p in process.drift.parameters():
            p.zero_()
        last = process.drift.net.layers[-1]
        last.bias.fill_(0.3)
        last.gate_bias.fill_(50.0)  # sigmoid(50) is 1 in float64
    noise = torch.zeros(1, 10, 4, dtype=torch.float64)
    path = process.sample(10, noise=Increments(0.1, noise))
    torch.testing.assert_close(path.w[0, -1], process.w0 + 0.3, rtol=0, atol=1e-14)
    torch.testing.assert_close(path.kl, torch.tensor([0.5 * 4 * 0.36], dtype=torch.float64), rtol=0, atol=1e-14)


def test_first_and_second_derivatives_are_those_of_differences() -> None:
    process = process_of(Cut.vertical(0.3, 0.7), d=3, hidden="2-2")
    names, values = zip(*process.named_parameters(), strict=True)

    def numbers(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        path = torch.func.functional_call(
            process, dict(zip(names, tensors, strict=True)), (4, 2), {"generator": torch.Generator().manual_seed(0)}
        )
        return path.w, path.kl

    inputs = tuple(v.detach().clone().requires_grad_() for v in values)
    assert torch.autograd.gradcheck(numbers, inputs)
    assert torch.autograd.gradgradcheck(numbers, inputs)


def test_the_gradient_of_the_kl_alone_and_of_the_path_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    process = process_of(Cut.full())
    parameters = list(process.parameters())
    for part in (lambda path: path.kl.sum(), lambda path: path.w[:, -1].sum()):
        fast = torch.autograd.grad(part(draw(process)), parameters)
        with counted_takes(monkeypatch, allowed=False):
            plain = torch.autograd.grad(part(draw(process)), parameters)
        for a, b in zip(fast, plain, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_each_parameter_by_itself_has_the_gradient_that_it_has_among_all() -> None:
    process = process_of(Cut.vertical(0.2, 0.7))
    parameters = list(process.parameters())
    expected = torch.autograd.grad(objective(draw(process)), parameters)
    for p, gradient in zip(parameters, expected, strict=True):
        process.requires_grad_(False)
        p.requires_grad_()
        (alone,) = torch.autograd.grad(objective(draw(process)), p)
        assert torch.equal(alone, gradient)


def test_without_gradients_nothing_is_kept() -> None:
    process = process_of(Cut.full())
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        with torch.no_grad():
            assert not draw(process).w.requires_grad
        assert kept == []
        draw(process)
        assert len(kept) >= 40  # ten steps


def test_what_is_kept_is_freed_with_the_graph_and_guarded_against_changes() -> None:
    process = process_of(Cut.full())
    loss = objective(draw(process))
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    noise = torch.randn(1, 10, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    loss = objective(process.sample(10, noise=Increments(0.1, noise)))
    noise.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, process.w0, create_graph=True)


def test_many_gradients_at_once_are_those_one_by_one() -> None:
    process = process_of(Cut.full(), d=3)
    w = draw(process, samples=1, steps=3).w[0, -1]
    rows = torch.autograd.grad(w, process.w0, torch.eye(3, dtype=w.dtype), is_grads_batched=True, retain_graph=True)[0]
    expected = torch.stack([torch.autograd.grad(x, process.w0, retain_graph=True)[0] for x in w])
    torch.testing.assert_close(rows, expected, rtol=1e-12, atol=1e-12)


def prior_for(reason: str) -> Prior:
    sigmas = {"sigma": torch.full((6,), 0.5, dtype=torch.float64), "tiny sigma": 1e-9}
    return OrnsteinUhlenbeck(sigma=sigmas[reason]) if reason in sigmas else PRIORS["OU"]


def own_forward(process: WeightProcess, seen: list[object], _: ExitStack) -> None:
    forward = process.drift.net.forward
    process.drift.net.forward = lambda t, w: seen.append(1) or forward(t, w)


def global_hook(_: WeightProcess, seen: list[object], stack: ExitStack) -> None:
    stack.callback(torch.nn.modules.module.register_module_forward_hook(lambda *_: seen.append(1)).remove)


DISTURB = {
    "hook": lambda p, seen, _: p.drift.net.layers[0].register_forward_hook(lambda *_: seen.append(1)),
    "global hook": global_hook,
    "backward hook": lambda p, _seen, _: p.drift.net.layers[0].register_full_backward_pre_hook(lambda *_: None),
    "own forward": own_forward,
    "activation": lambda p, _seen, _: setattr(p.drift.net, "activation", torch.nn.PReLU(dtype=torch.float64)),
    "autocast": lambda _p, _seen, stack: stack.enter_context(torch.autocast("cpu", torch.bfloat16)),
    "forward mode": lambda _p, _seen, stack: stack.enter_context(torch.autograd.forward_ad.dual_level()),
    "subclass": lambda p, _seen, _: setattr(
        p.drift.net.layers[0], "__class__", type("Other", (type(p.drift.net.layers[0]),), {})
    ),
    "other prior": lambda p, _seen, _: setattr(p, "prior", OrnsteinUhlenbeck(sigma=0.4)),
}
ARGUMENTS = {
    "scheme": {"solver": "heun"},
    "ode scheme": {"ode_solver": "rk4"},
    "noise": {"noise": Increments(0.125, torch.zeros(1, 4, 6, dtype=torch.float64).requires_grad_())},
}


@pytest.mark.parametrize("reason", [*DISTURB, *ARGUMENTS, "sigma", "tiny sigma", "func"])
def test_whoever_could_tell_the_difference_gets_the_general_solver(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = process_of(Cut.none() if reason in ("func", "forward mode") else Cut.vertical(0.5, 1), prior_for(reason))
    net = process.drift.net
    how: dict[str, object] = {"generator": torch.Generator().manual_seed(0), **ARGUMENTS.get(reason, {})}
    seen: list[object] = []
    stack = ExitStack()
    if reason in DISTURB:
        DISTURB[reason](process, seen, stack)
    with counted_takes(monkeypatch) as calls, stack:
        if reason == "func":
            torch.func.grad(lambda w0: torch.func.functional_call(process, {"w0": w0}, (8,), how).w.sum())(process.w0)
        else:
            path = process.sample(8, **how)
            if reason == "activation":
                path.w.sum().backward()
                assert net.activation.weight.grad is not None
    assert calls == []
    assert bool(seen) is (reason in ("hook", "global hook", "own forward"))


def test_processes_of_one_shape_are_sampled_in_one_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = Cut.vertical(0.5, 1)
    processes = [process_of(cut, seed=i, d=d) for i, d in enumerate((6, 4, 6, 6))]
    generators = [torch.Generator().manual_seed(i) for i in range(4)]
    with counted_takes(monkeypatch) as calls:
        together = sample_together(processes, 8, 3, generators=generators)
    assert sorted(calls) == [1, 1, 3, 3]  # two phases each
    for i, (process, path) in enumerate(zip(processes, together, strict=True)):
        alone = process.sample(8, 3, generator=torch.Generator().manual_seed(i))
        torch.testing.assert_close(path.w, alone.w, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(path.kl, alone.kl, rtol=1e-12, atol=1e-12)
        parameters = list(process.parameters())
        gradients = [torch.autograd.grad(objective(p), parameters, retain_graph=True) for p in (path, alone)]
        for a, b in zip(*gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_two_processes_with_any_cut_are_what_each_is_alone(cut: Cut, monkeypatch: pytest.MonkeyPatch) -> None:
    processes = [process_of(cut, seed=i) for i in range(2)]
    generators = [torch.Generator().manual_seed(5 + i) for i in range(2)]
    with counted_takes(monkeypatch) as calls:
        together = sample_together(processes, 10, 2, generators=generators)
    assert set(calls) == {2}
    for i, (process, path) in enumerate(zip(processes, together, strict=True)):
        alone = process.sample(10, 2, generator=torch.Generator().manual_seed(5 + i))
        torch.testing.assert_close(path.w, alone.w, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(path.kl, alone.kl, rtol=1e-12, atol=1e-12)
        assert (path.reset, path.shared, path.gaussians) == (alone.reset, alone.shared, alone.gaussians)
        if alone.after_reset is not None:
            torch.testing.assert_close(path.after_reset, alone.after_reset, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(path.kl_stl, alone.kl_stl, rtol=1e-11, atol=1e-11)
        parameters = list(process.parameters())
        pair = [torch.autograd.grad(objective(p), parameters, retain_graph=True) for p in (path, alone)]
        for a, b in zip(*pair, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


def test_processes_that_are_reset_and_that_go_on_are_not_carried_side_by_side() -> None:
    processes = [process_of(Cut.vertical(0.2, 0.6, at_t2=at_t2)) for at_t2 in ("continue", "learned")]
    made = sample_together(processes, 10, 2, generators=[torch.Generator().manual_seed(0) for _ in range(2)])
    for process, path in zip(processes, made, strict=True):
        alone = process.sample(10, 2, generator=torch.Generator().manual_seed(0))
        assert torch.equal(path.w, alone.w)


def test_processes_with_hardly_any_noise_are_sampled_one_by_one() -> None:
    processes = [process_of(Cut.ode_first(0.5), OrnsteinUhlenbeck(sigma=1e-9)) for _ in range(2)]
    made = sample_together(processes, 4, 2, generators=[torch.Generator().manual_seed(i) for i in range(2)])
    torch.testing.assert_close(made[0].w, made[1].w, rtol=0, atol=1e-7)


def test_processes_that_have_nothing_in_common_are_sampled_one_by_one() -> None:
    other = WeightProcess(torch.zeros(3), lambda t, w: t - w, OrnsteinUhlenbeck(), Cut.full())
    processes = [process_of(Cut.full()), other, process_of(Cut.none())]
    grids = [Grid.of(p.cut, n) for p, n in zip(processes, (4, 6, 5), strict=True)]
    made = sample_together(processes, grids, 2, generators=[torch.Generator().manual_seed(i) for i in range(3)])
    for i, (process, grid, path) in enumerate(zip(processes, grids, made, strict=True)):
        alone = process.sample(grid, 2, generator=torch.Generator().manual_seed(i))
        assert torch.equal(path.w, alone.w)


def test_no_process_is_no_path_and_a_wrong_number_is_refused() -> None:
    assert sample_together([], 5) == []
    assert sample_together([process_of()], np.int64(5))[0].steps == 5
    with pytest.raises(ValueError, match="for 2 processes, got 1 and 2"):
        sample_together([process_of(), process_of()], [5])


def test_a_state_that_leaves_the_numbers_is_named() -> None:
    process = process_of(Cut.full(), OrnsteinUhlenbeck(theta=-1e30))  # 1e28 times as much with each step
    assert bottleneck_steps.shape_of(process.drift, process.prior) is not None
    with pytest.raises(NonFiniteState, match=r"w became non-finite in the sde phase \(0, 1\), step"):
        draw(process, steps=40)
