"""The fused schemes agree with the plain ones up to rounding, including gradients, or raise a clear error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sdeweights import (
    Brownian,
    Cut,
    Increments,
    LogNormal,
    NonFiniteState,
    OrnsteinUhlenbeck,
    Positive,
    Prior,
    PriorPlus,
    WeightPath,
    WeightProcess,
)
from sdeweights.testing import EULERS, TanhDrift, random_posterior, seeded

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
PER_COORDINATE = torch.tensor([0.2, -0.5, 1.0, 0.7, 0.3, 0.9], dtype=torch.float64)
DOUBLE = torch.tensor(1.0, dtype=torch.float64)
PRIORS = {
    "OU": OrnsteinUhlenbeck(0.7, 0.3, 0.4),
    "OU, mean 0": OrnsteinUhlenbeck(sigma=0.5),
    "OU, one sigma per coordinate": OrnsteinUhlenbeck(0.7, 0.3, PER_COORDINATE),
    "Brownian": Brownian(0.6),
    "trained theta and sigma": OrnsteinUhlenbeck(Positive(DOUBLE * 0.7), 0.3, Positive(DOUBLE * 0.4)),
    "trained sigma per coordinate": OrnsteinUhlenbeck(0.7, 0.3, Positive(PER_COORDINATE.abs())),
    "a parameter as sigma": Brownian(torch.nn.Parameter(DOUBLE * 0.6)),
    "random theta": OrnsteinUhlenbeck(LogNormal(DOUBLE * 0.7, 0.4), 0.3, Positive(DOUBLE * 0.4)),
    "random sigma": OrnsteinUhlenbeck(0.7, 0.3, LogNormal(PER_COORDINATE.abs(), 0.2)),
}


def process_of(
    cut: Cut = CUTS["full"], prior: Prior = PRIORS["OU"], hidden: str = "2-5-3", d: int = 6, knots: int = 0
) -> WeightProcess:
    """A float64 process with a nonzero net, and a diagonal part if it has knots."""
    w0 = torch.linspace(-1, 1, d, dtype=torch.float64)
    return WeightProcess(w0, random_posterior(prior, cut, d, 0, hidden, knots=knots), prior, cut)


def draw(process: WeightProcess, samples: int = 2, steps: int = 10, kind: str = "fused", **how: object) -> WeightPath:
    solver, ode_solver = EULERS[kind]
    return process.sample(steps, samples, generator=seeded(1), **{"solver": solver, "ode_solver": ode_solver} | how)


def objective(path: WeightPath) -> Tensor:
    weights = torch.arange(1.0, path.w.numel() + 1, dtype=path.w.dtype).view_as(path.w)
    after = path.w.new_zeros(()) if path.after_reset is None else path.after_reset.sin().sum()
    return (path.w.sin() * weights).sum() + path.kl.square().sum() + after


def require_same(process: WeightProcess, of: Callable[[WeightPath], Tensor] = objective, samples: int = 2) -> None:
    """Assert that plain and fused paths, KLs and gradients of all parameters agree."""
    fused, plain = draw(process, samples), draw(process, samples, kind="plain")
    # the same terms summed in a different order: 10 steps of numbers around 1
    torch.testing.assert_close(fused.w, plain.w, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(fused.kl, plain.kl, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(fused.kl_stl, plain.kl_stl, rtol=1e-11, atol=1e-11)
    assert (fused.evaluations, fused.gaussians, fused.shared) == (plain.evaluations, plain.gaussians, plain.shared)
    parameters = list(process.parameters())
    gradients = (torch.autograd.grad(of(path), parameters, allow_unused=True) for path in (fused, plain))
    for a, b in zip(*gradients, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("knots", [0, 3])
@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_paths_kl_and_gradients_equal_those_of_the_plain_schemes(
    cut: Cut, prior: Prior, knots: int, samples: int
) -> None:
    require_same(process_of(cut, prior, knots=knots), samples=samples)


@pytest.mark.parametrize("knots", [1, 2, 11, 14])
def test_diagonal_drifts_with_other_numbers_of_knots(knots: int) -> None:
    require_same(process_of(CUTS["three phases"], knots=knots))


@pytest.mark.parametrize("hidden", ["1-8-1", "4", "2-3-3-2", "40"])
def test_bottleneck_nets_of_other_sizes(hidden: str) -> None:
    require_same(process_of(hidden=hidden))


@pytest.mark.parametrize("prior", PRIORS.values(), ids=PRIORS)
def test_gradients_of_only_the_kl_and_of_only_the_path(prior: Prior) -> None:
    for part in (lambda path: path.kl.sum(), lambda path: path.w[:, -1].sum()):
        require_same(process_of(prior=prior), part)


@pytest.mark.parametrize("knots", [0, 2])
@pytest.mark.parametrize("prior", [PRIORS["OU"], PRIORS["OU, one sigma per coordinate"]])
def test_gradients_equal_finite_differences(prior: Prior, knots: int) -> None:
    process = process_of(Cut.vertical(0.3, 0.7), prior, hidden="2-2", knots=knots)
    with torch.no_grad():
        for name, p in process.named_parameters():
            if name.endswith("rate"):  # negative rates have no gradient
                p.abs_()
    names, values = zip(*process.named_parameters(), strict=True)
    solver, ode_solver = EULERS["fused"]

    def numbers(*tensors: Tensor) -> tuple[Tensor, Tensor]:
        how = {"generator": seeded(), "solver": solver, "ode_solver": ode_solver}
        path = torch.func.functional_call(process, dict(zip(names, tensors, strict=True)), (4, 2), how)
        return path.w, path.kl

    assert torch.autograd.gradcheck(numbers, tuple(v.detach().clone().requires_grad_() for v in values))


def test_the_gradient_of_a_single_trainable_parameter_is_the_same_as_with_all() -> None:
    process = process_of(Cut.vertical(0.2, 0.7))
    parameters = list(process.parameters())
    expected = torch.autograd.grad(objective(draw(process)), parameters)
    for p, gradient in zip(parameters, expected, strict=True):
        process.requires_grad_(False)
        p.requires_grad_()
        (alone,) = torch.autograd.grad(objective(draw(process)), p)
        assert torch.equal(alone, gradient)


def test_nothing_is_saved_for_backward_without_gradients() -> None:
    process = process_of()
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        with torch.no_grad():
            assert not draw(process).w.requires_grad
        assert kept == []
        draw(process)
    assert len(kept) >= 40  # four tensors for each of ten steps


def test_saved_tensors_are_freed_with_the_graph() -> None:
    loss = objective(draw(process_of()))
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_a_second_derivative_is_an_error_not_a_wrong_number() -> None:
    process = process_of()
    (gradient,) = torch.autograd.grad(objective(draw(process)), process.w0, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_transforms_of_torch_func_are_an_error_not_a_wrong_number() -> None:
    process = process_of(Cut.none())
    with pytest.raises(RuntimeError, match="functorch"):
        torch.func.grad(
            lambda w0: torch.func.functional_call(process, {"w0": w0}, (8,), {"ode_solver": "fused-euler"}).w.sum()
        )(process.w0)


def with_net(net: object) -> WeightProcess:
    prior = PRIORS["OU"]
    return WeightProcess(torch.zeros(6, dtype=torch.float64), PriorPlus(prior, net), prior, Cut.full())


def with_prior(prior: Prior) -> WeightProcess:
    return process_of(prior=prior)


def leaky() -> WeightProcess:
    whole = process_of()
    return WeightProcess(whole.w0, whole.drift, whole.prior, Cut.horizontal(0.5), allow_leak=True)


def with_another_prior_in_the_kl() -> WeightProcess:
    process = process_of()
    return WeightProcess(process.w0, process.drift, OrnsteinUhlenbeck(sigma=0.4), Cut.full())


def with_own_activation() -> WeightProcess:
    process = process_of()
    process.drift.net.activation = torch.nn.PReLU(dtype=torch.float64)
    return process


FLOATS = torch.full((6,), 0.5, dtype=torch.float64)
UNFIT = {
    "a function": (
        lambda: WeightProcess(FLOATS, lambda t, w: -w, Brownian(), Cut.full()),
        r"expected PriorPlus\(prior, BottleneckDrift\) for fused-euler, got function",
    ),
    "another net": (lambda: with_net(TanhDrift(6, 0)), "got PriorPlus of TanhDrift"),
    "an activation with parameters": (with_own_activation, "expected one of the activations softplus, .* got PReLU"),
    "theta per coordinate": (lambda: with_prior(OrnsteinUhlenbeck(theta=FLOATS)), "theta and mu are numbers"),
    "a custom prior": (lambda: with_prior(Prior(lambda t, w: -w, 0.5)), "an OrnsteinUhlenbeck or Brownian prior"),
    "dense sigma": (lambda: with_prior(Brownian(torch.eye(6, dtype=torch.float64))), "expected a constant sigma"),
    "another prior": (with_another_prior_in_the_kl, "a drift built on the process's own prior"),
    "a leak": (leaky, "all of its coordinates noisy"),
}


@pytest.mark.parametrize("reason", UNFIT)
def test_an_unsupported_equation_is_a_clear_error_and_euler_solves_it(reason: str) -> None:
    make, message = UNFIT[reason]
    process = make()
    with pytest.raises(ValueError, match=message):
        draw(process, ode_solver="euler")
    assert draw(process, kind="plain").w.isfinite().all()


def test_an_unsupported_deterministic_phase_is_a_clear_error() -> None:
    process = WeightProcess(FLOATS, lambda t, w: -w, Brownian(), Cut.ode_first(0.5))
    with pytest.raises(ValueError, match='for fused-euler, got function; "euler" supports any drift and prior'):
        process.sample(4, ode_solver="fused-euler")


@pytest.mark.parametrize("sigma", [1e-9, 1e3, FLOATS * 1e-9])
def test_extreme_noise(sigma: float | Tensor) -> None:
    prior = OrnsteinUhlenbeck(sigma=sigma)
    require_same(process_of(prior=prior), lambda path: path.w.sin().sum())
    require_same(process_of(prior=prior), lambda path: path.kl.log().sum())


def test_noise_that_requires_gradients_is_rejected() -> None:
    noise = Increments(0.1, torch.zeros(1, 10, 6, dtype=torch.float64).requires_grad_())
    with pytest.raises(ValueError, match="expected noise without gradients for fused-euler"):
        draw(process_of(), noise=noise)


def test_an_infinite_state_is_reported_with_its_phase_and_step() -> None:
    process = process_of(Cut.full(), OrnsteinUhlenbeck(theta=-1e30))  # w grows 1e28-fold per step
    with pytest.raises(NonFiniteState, match=r"w became non-finite in the sde phase \(0, 1\), step"):
        draw(process, steps=40)


def test_fused_and_plain_schemes_may_be_mixed() -> None:
    process = process_of(CUTS["three phases"])
    expected = draw(process, kind="plain").w
    for solver, ode_solver in (("euler", "fused-euler"), ("fused-euler", "euler")):
        mixed = draw(process, solver=solver, ode_solver=ode_solver)
        torch.testing.assert_close(mixed.w, expected, rtol=1e-12, atol=1e-12)
