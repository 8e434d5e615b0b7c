"""Gradients compared with finite differences and with each other; which schemes the adjoint accepts."""

import pytest
import torch
from torch import nn

from sdeweights import Brownian, Cut, OrnsteinUhlenbeck, Prior, WeightProcess, flow, shared_prefix
from sdeweights.hidden import SCHEMES
from sdeweights.solvers import SDE_SOLVERS
from sdeweights.testing import drift_for, random_posterior, seeded

CUTS = [
    Cut.none(),
    Cut.full(),
    Cut.ode_first(0.4),
    *(Cut.sde_first(0.4, policy) for policy in ("continue", "fixed", "learned")),
    *(Cut.vertical(0.3, 0.6, policy) for policy in ("continue", "fixed", "learned")),
    Cut.horizontal([0, 2]),
    *(Cut.both(0.3, 0.6, [0, 2], policy) for policy in ("continue", "fixed", "learned")),
]


class WholeModel(nn.Module):
    """A model with every output that a loss may use: the end of the path, its KL, and a hidden state along it."""

    def __init__(
        self, cut, solver="euler", ode_solver="euler", method="euler", gradient="backprop", steps=5, prior=None
    ):
        super().__init__()
        prior = prior or OrnsteinUhlenbeck(sigma=0.5)
        drift = random_posterior(prior, cut, 3, hidden="1")
        self.process = WeightProcess(torch.tensor([0.3, -0.2, 0.5]), drift, prior, cut)
        self.how = {"solver": solver, "ode_solver": ode_solver}
        self.flow_how = (method, gradient)
        self.steps = steps

    def forward(self, h0):
        path = self.process.sample(self.steps, samples=2, generator=seeded(), **self.how)
        f_h = lambda t, h, w: torch.tanh(h * w[0] + w[1]) * (w[2] + t)  # noqa: E731
        h1 = flow(f_h, h0, path, *self.flow_how, per_sample=False)
        return path.w[:, -1], path.kl, h1


def gradcheck(model):
    names, values = zip(*model.named_parameters(), strict=True)
    h0 = torch.tensor([[0.1], [0.7]], requires_grad=True)

    def outputs(h0, *values):
        out = torch.func.functional_call(model, dict(zip(names, values, strict=True)), (h0,))
        return tuple(x for x in out if x.requires_grad)  # the KL of a deterministic cut is a constant

    return torch.autograd.gradcheck(outputs, (h0, *values))


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_gradcheck_for_every_cut_and_every_policy_at_t2(euler, cut):
    assert gradcheck(WholeModel(cut, **euler))


def test_gradcheck_with_one_sigma_per_coordinate(euler):
    prior = OrnsteinUhlenbeck(0.7, 0.3, torch.tensor([0.5, -1.0, 0.2]))
    assert gradcheck(WholeModel(Cut.vertical(0.3, 0.6), prior=prior, **euler))


@pytest.mark.parametrize("solver", [*SDE_SOLVERS, "torchsde:reversible_heun", "torchsde:srk"])
def test_gradcheck_for_every_stochastic_scheme(solver):
    assert gradcheck(WholeModel(Cut.vertical(0.3, 0.6), solver=solver, ode_solver="rk4"))


@pytest.mark.parametrize("solver", ["euler", "heun", "midpoint", "milstein"])
def test_gradcheck_with_noise_that_depends_on_the_state(solver):
    prior = Prior(lambda t, w: -w, lambda t, w: 1 + 0.3 * torch.sin(w), coordinatewise=True)
    assert gradcheck(WholeModel(Cut.full(), solver=solver, prior=prior, steps=3))


@pytest.mark.parametrize("solver", ["euler", "heun"])
def test_gradcheck_with_dense_noise_that_depends_on_the_state(solver):
    def g(t, w):
        return torch.diag_embed(1 + 0.3 * torch.sin(w)) + 0.1 * torch.ones(3, 3)

    assert gradcheck(WholeModel(Cut.full(), solver=solver, prior=Prior(lambda t, w: -w, g), steps=2))


@pytest.mark.parametrize("method", list(SCHEMES))
def test_gradcheck_for_every_hidden_scheme(method):
    assert gradcheck(WholeModel(Cut.vertical(0.3, 0.6, "learned"), method=method))


def test_adjoint_with_reversible_heun_passes_gradcheck_itself():
    assert gradcheck(WholeModel(Cut.vertical(0.3, 0.6, "learned"), method="reversible_heun", gradient="adjoint"))


class Residual(nn.Module):
    """A hidden drift that has trainable parameters in addition to the weights."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Parameter(torch.tensor([[0.5, -0.3], [0.2, 0.8]]))

    def forward(self, t, h, w):
        return torch.tanh(h @ self.mix * w[0] + w[1] * t) * w[2]


def gradients(cut, method, gradient, steps=16, vectorize=False):
    torch.manual_seed(0)
    process = WeightProcess(torch.tensor([0.9, -0.4, 1.5]), drift_for(cut, 3), OrnsteinUhlenbeck(sigma=0.3), cut)
    f_h, h0 = Residual(), torch.linspace(-1, 1, 8).view(4, 2).requires_grad_()
    path = process.sample(steps, samples=3, generator=seeded())
    h1 = flow(f_h, h0, path, method, gradient, vectorize=vectorize)
    wanted = [h0, *f_h.parameters(), *process.parameters()]
    grads = torch.autograd.grad(h1.square().sum(), wanted, allow_unused=True)
    return h1.detach(), [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, grads, strict=True)]


def relative(a, b):
    a, b = (torch.cat([x.flatten() for x in xs]) for xs in (a, b))
    return ((a - b).norm() / b.norm()).item()


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("method", list(SCHEMES))
def test_checkpoint_gradients_are_bit_identical_to_backprop(cut, method):
    (h_a, a), (h_b, b) = gradients(cut, method, "checkpoint"), gradients(cut, method, "backprop")
    assert torch.equal(h_a, h_b)
    assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_adjoint_with_reversible_heun_agrees_with_backprop(cut):
    (h_a, a), (h_b, b) = gradients(cut, "reversible_heun", "adjoint"), gradients(cut, "reversible_heun", "backprop")
    assert torch.equal(h_a, h_b)
    assert relative(a, b) < 1e-12  # rounding only; the documentation promises 1e-6


def test_adjoint_with_reversible_heun_stays_accurate_over_many_steps_and_in_float32():
    (_, a), (_, b) = (gradients(Cut.full(), "reversible_heun", mode, steps=256) for mode in ("adjoint", "backprop"))
    assert relative(a, b) < 1e-10
    torch.set_default_dtype(torch.float32)
    process = WeightProcess(torch.tensor([0.9, -0.4, 1.5]), lambda t, w: -w, OrnsteinUhlenbeck(sigma=0.3), Cut.full())
    found = []
    for mode in ("adjoint", "backprop"):
        h1 = flow(
            Residual(),
            torch.linspace(-1, 1, 8).view(4, 2),
            process.sample(64, 2, generator=seeded()),
            "reversible_heun",
            mode,
        )
        found.append(torch.autograd.grad(h1.sum(), [process.w0]))
    assert relative(*found) < 1e-4


@pytest.mark.parametrize("method", [method for method in SCHEMES if method != "reversible_heun"])
def test_adjoint_rejects_schemes_that_are_not_reversible(method):
    path = WeightProcess(torch.ones(1), lambda t, w: -w, Brownian(), Cut.full()).sample(4, generator=seeded())
    for samples in (path, path[0]):
        with pytest.raises(
            ValueError,
            match=f'expected method="reversible_heun" with gradient="adjoint", got \'{method}\', which cannot',
        ):
            flow(lambda t, h, w: w * h, torch.ones(2, 1), samples, method, "adjoint")


def test_adjoint_selects_the_reversible_scheme_and_other_modes_euler():
    path = WeightProcess(torch.ones(1), lambda t, w: -w, Brownian(), Cut.full()).sample(4, generator=seeded())
    f_h, h0 = (lambda t, h, w: torch.tanh(w * h)), torch.ones(2, 1)
    for gradient, method in (("backprop", "euler"), ("checkpoint", "euler"), ("adjoint", "reversible_heun")):
        assert torch.equal(flow(f_h, h0, path, gradient=gradient), flow(f_h, h0, path, method, gradient))
        prefix = shared_prefix(f_h, h0, path, gradient=gradient)
        assert len(prefix.state) == (3 if method == "reversible_heun" else 1)
        assert torch.equal(flow(f_h, prefix, path, gradient=gradient), flow(f_h, h0, path, method, gradient))


def test_adjoint_is_exact_for_a_stiff_drift_in_few_steps():
    """Steps with f_h dt = 3 h occur in trained networks; Euler's states could not be recomputed by backward steps."""
    process = WeightProcess(
        torch.tensor([1.5, -0.7]), drift_for(Cut.full(), 2), OrnsteinUhlenbeck(sigma=0.3), Cut.full()
    )
    path = process.sample(4, samples=2, generator=seeded())
    grads = []
    for gradient in ("adjoint", "backprop"):
        h1 = flow(lambda t, h, w: 12 * torch.tanh(h * w[0] + w[1]), torch.ones(3, 1), path, "reversible_heun", gradient)
        grads.append(torch.autograd.grad(h1.square().sum(), [process.w0], retain_graph=True))
    assert relative(*grads) < 1e-10


@pytest.mark.parametrize("cut", [Cut.ode_first(0.4), Cut.vertical(0.3, 0.6, "learned"), Cut.full()], ids=str)
@pytest.mark.parametrize("method", ["reversible_heun"])
def test_sharing_a_prefix_does_not_change_the_adjoint_gradients(cut, method):
    process = WeightProcess(torch.tensor([0.9, -0.4, 1.5]), drift_for(cut, 3), OrnsteinUhlenbeck(sigma=2.0), cut)
    path = process.sample(5, samples=3, generator=seeded())
    f_h, h0 = Residual(), torch.linspace(-1, 1, 8).view(4, 2).requires_grad_()
    wanted = [h0, *f_h.parameters(), *process.parameters()]
    together = flow(f_h, h0, path, method, "adjoint")
    alone = torch.cat([flow(f_h, h0, path[i], method, "adjoint") for i in range(3)])
    assert torch.equal(together, alone)
    a, b = (
        torch.autograd.grad(h1.square().sum(), wanted, retain_graph=True, materialize_grads=True)
        for h1 in (together, alone)
    )
    assert relative(a, b) < 1e-12  # sums over samples in a different order


def test_adjoint_reaches_parameters_of_a_vectorised_module():
    (_, a), (_, b) = (gradients(Cut.full(), "reversible_heun", "adjoint", vectorize=v) for v in (True, False))
    assert relative(a, b) < 1e-12


def test_adjoint_rejects_a_function_that_hides_trainable_tensors():
    hidden = torch.tensor(0.5, requires_grad=True)
    process = WeightProcess(torch.ones(1), lambda t, w: -w, Brownian(), Cut.full())
    with pytest.raises(
        ValueError, match='expected f_h as an nn.Module for gradient="adjoint", got a function that hides'
    ):
        flow(lambda t, h, w: hidden * w * h, torch.ones(2, 1), process.sample(4), gradient="adjoint")


def test_adjoint_without_gradients_is_a_plain_integration():
    process = WeightProcess(torch.ones(1), lambda t, w: -w, Brownian(), Cut.full())
    with torch.no_grad():
        path = process.sample(4, generator=seeded())
        a, b = (
            flow(lambda t, h, w: w * h, torch.ones(2, 1), path, "reversible_heun", mode)
            for mode in ("adjoint", "backprop")
        )
    assert torch.equal(a, b)
