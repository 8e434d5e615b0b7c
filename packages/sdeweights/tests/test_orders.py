"""Every scheme converges at its declared order, measured on the same Brownian paths with five step lengths."""

import importlib.util
import math
from pathlib import Path

import pytest
import torch

from sdeweights import Brownian, Cut, Grid, OrnsteinUhlenbeck, Prior, WeightProcess
from sdeweights.brownian import draw
from sdeweights.solvers import SDE_SOLVERS, Torchsde, ode_solver, sde_solver
from sdeweights.solvers.torchsde_adapter import METHODS
from sdeweights.testing import EULERS, affine_posterior, observed_order, random_posterior, seeded

GENERAL = [name for name in SDE_SOLVERS if name != "fused-euler"]  # these support every equation
PATHS = 10_000  # the root mean square error of a scheme is then known to about 1 %
TORCHSDE = [f"torchsde:{method}" for method in METHODS]


def strong_errors(process, solver, coarsest, exact, paths, seed, finer=1, ode_solver="rk4"):
    """Root mean square errors at t = 1 on 5 grids, each with twice as many steps as the one before.

    All use the same Brownian motion, drawn on a grid `finer` times as fine as the finest of them.
    """
    grid = Grid.of(process.cut, coarsest)
    finest = grid.refine(16 * finer)
    dt = (finest.sde.stop - finest.sde.start) / finest.sde.steps
    noise = draw(paths, finest.sde.steps, process.d, dt, noises=2, generator=seeded(seed))
    errors, dts = [], []
    with torch.no_grad():
        truth = exact(process, noise, finest)
        for factor in (16 * finer, 8 * finer, 4 * finer, 2 * finer, finer):
            path = process.sample(
                grid.refine(16 * finer // factor), noise=noise.coarsen(factor), solver=solver, ode_solver=ode_solver
            )
            errors.append((path.w[:, -1] - truth).square().mean().sqrt().item())
            dts.append(factor * dt)
    return dts, errors


def additive(cut):
    """dw = (sin 2w + cos 3t) dt + (0.5 + t) dB: nonlinear drift, and noise that depends on time but not on w."""
    prior = Prior(lambda t, w: 0 * w, lambda t, w: (0.5 + t).expand(w.shape[-1]))
    return WeightProcess(torch.tensor([0.4]), lambda t, w: torch.sin(2 * w) + torch.cos(3 * t), prior, cut)


def by_refinement(process, noise, grid):
    """Reference solution for the same Brownian motion: the scheme of order 1.5 on the finest grid."""
    return process.sample(grid, noise=noise, solver="sra1", ode_solver="rk4").w[:, -1]


@pytest.mark.parametrize("solver", [*GENERAL, *TORCHSDE])
@pytest.mark.parametrize("cut", [Cut.full(), Cut.vertical(0.25, 0.75)], ids=["full", "vertical"])
def test_strong_order_for_additive_noise(solver, cut):
    # 4 times finer: the reference error is 4^-1.5 = 12 % of that of the best scheme on the finest grid measured
    coarsest = round(8 / (cut.t2 - cut.t1))
    dts, errors = strong_errors(additive(cut), solver, coarsest, by_refinement, PATHS, seed=1, finer=4)
    assert observed_order(dts, errors) == pytest.approx(sde_solver(solver).order(additive=True), abs=0.15)


@pytest.mark.parametrize("cut", [Cut.full(), Cut.vertical(0.25, 0.75)], ids=["full", "vertical"])
def test_strong_order_for_the_drift_of_the_paper(euler, cut):
    # a nonlinear net that mixes three weights with different sigmas; with 500 paths, errors are known to about 3 %
    prior = OrnsteinUhlenbeck(1.5, 0.5, torch.tensor([0.5, 1.0, 0.2]))
    process = WeightProcess(torch.tensor([0.4, -0.2, 0.1]), random_posterior(prior, cut, 3), prior, cut)
    coarsest = round(8 / (cut.t2 - cut.t1))
    dts, errors = strong_errors(process, exact=by_refinement, coarsest=coarsest, paths=500, seed=1, finer=2, **euler)
    assert observed_order(dts, errors) == pytest.approx(sde_solver(euler["solver"]).order(additive=True), abs=0.15)


def geometric(noise_scale):
    """dw = w/2 dt + s w dB with w(1) = w0 exp((1 - s^2)/2 + s B(1))."""
    prior = Prior(lambda t, w: 0 * w, lambda t, w: noise_scale * w)
    return WeightProcess(torch.tensor([1.0, 0.5]), lambda t, w: 0.5 * w, prior, Cut.full())


def by_formula(scale):
    def exact(process, noise, grid):
        return process.w0 * torch.exp((1 - scale**2) / 2 + scale * noise.dB.sum(1))

    return exact


@pytest.mark.parametrize("solver", [name for name in GENERAL if name != "sra1"] + TORCHSDE)
def test_strong_order_for_multiplicative_noise(solver):
    dts, errors = strong_errors(geometric(0.8), solver, 16, by_formula(0.8), PATHS, seed=2)
    assert observed_order(dts, errors) == pytest.approx(sde_solver(solver).order(additive=False), abs=0.15)


def hyperbolic_sine(process, noise, grid):
    return torch.sinh(torch.asinh(process.w0) + noise.dB.sum(1))


@pytest.mark.parametrize("solver", ["milstein", "heun", "torchsde:milstein", "torchsde:srk"])
def test_strong_order_for_nonlinear_elementwise_noise(solver):
    # dw = w/2 dt + sqrt(1 + w^2) dB with w(1) = sinh(asinh w0 + B(1)); 3000 paths: errors known to about 2 %
    prior = Prior(lambda t, w: 0 * w, lambda t, w: torch.sqrt(1 + w * w))
    process = WeightProcess(torch.tensor([0.3, -0.5]), lambda t, w: 0.5 * w, prior, Cut.full())
    dts, errors = strong_errors(process, solver, 16, hyperbolic_sine, 3000, seed=2)
    assert observed_order(dts, errors) == pytest.approx(sde_solver(solver).order(additive=False), abs=0.15)


def test_dense_commutative_noise_gets_the_stratonovich_correction():
    # dw = w/2 dt + 0.8 w dB, each coordinate with its own noise, written as a diagonal matrix
    prior = Prior(lambda t, w: 0 * w, lambda t, w: torch.diag_embed(0.8 * w))
    process = WeightProcess(torch.tensor([1.0, 0.5]), lambda t, w: 0.5 * w, prior, Cut.full())
    for solver in ("heun", "midpoint"):
        dts, errors = strong_errors(process, solver, 16, by_formula(0.8), 2000, seed=2)
        assert observed_order(dts, errors) == pytest.approx(1.0, abs=0.15)


@pytest.mark.deep
@pytest.mark.parametrize("solver", [*GENERAL])
def test_strong_order_with_a_hundred_thousand_paths(solver):
    scheme = sde_solver(solver)
    dts, errors = strong_errors(additive(Cut.full()), solver, 8, by_refinement, 100_000, seed=3, finer=4)
    assert observed_order(dts, errors) == pytest.approx(scheme.order(additive=True), abs=0.15)
    if solver != "sra1":
        dts, errors = strong_errors(geometric(0.8), solver, 16, by_formula(0.8), 100_000, seed=4)
        assert observed_order(dts, errors) == pytest.approx(scheme.order(additive=False), abs=0.1)


def test_weak_order_of_euler_is_one(euler):
    # E w_h(1) = (1 - h)^n exactly for dw = -w dt + dB, so the error of the mean is |(1 - h)^n - 1/e|
    prior, dts, errors = OrnsteinUhlenbeck(), [], []
    process = WeightProcess(torch.ones(1), affine_posterior(prior, Cut.full(), 1), prior, Cut.full())
    for steps in (8, 16, 32, 64, 128):
        noise = draw(2, steps, 1, 1 / steps, generator=seeded())
        antithetic = noise._replace(dB=torch.stack([noise.dB[0], -noise.dB[0]]))
        mean = process.sample(steps, noise=antithetic, **euler).w[:, -1].mean().item()
        assert mean == pytest.approx((1 - 1 / steps) ** steps, rel=1e-12)
        dts.append(1 / steps)
        errors.append(abs(mean - math.exp(-1)))
    assert observed_order(dts, errors) == pytest.approx(1.0, abs=0.1)


def require_declared_order(process, solver, w1):
    dts, errors = [], []
    for steps in (8, 16, 32, 64, 128):
        path = process.sample(steps, ode_solver=solver)
        dts.append(1 / steps)
        errors.append((path.w[0, -1] - torch.tensor(w1)).norm().item())
    assert observed_order(dts, errors) == pytest.approx(ode_solver(solver).order, abs=0.1)


ODE_METHODS = ["euler", "midpoint", "rk4"]
ODE_SCHEMES = [*ODE_METHODS, *(f"torchdiffeq:{method}" for method in ODE_METHODS)]


@pytest.mark.parametrize("solver", ODE_SCHEMES)
@pytest.mark.parametrize(
    ("drift", "w0", "w1"),
    [
        (lambda t, w: w * (1 + t), [1.0], [math.exp(1.5)]),
        (lambda t, w: w * (1 - w), [0.1], [0.1 * math.e / (0.9 + 0.1 * math.e)]),
    ],
    ids=["linear", "logistic"],
)
def test_order_of_deterministic_schemes(solver, drift, w0, w1):
    require_declared_order(WeightProcess(torch.tensor(w0), drift, Brownian(), Cut.none()), solver, w1)


ROTATION = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize("solver", [*ODE_SCHEMES, EULERS["fused"][1]])
@pytest.mark.parametrize(
    ("prior", "net", "w0", "w1"),
    [
        (Brownian(), {"matrix": ROTATION}, [1.0, 0.0], [math.cos(1.0), math.sin(1.0)]),
        # w' = 2 (1 - w) + 3 + 4 t is solved by w = 3/2 + 2 t + (w0 - 3/2) e^{-2t}
        (OrnsteinUhlenbeck(2.0, 1.0), {"constant": 3.0, "slope": 4.0}, [0.5], [3.5 - math.exp(-2)]),
    ],
    ids=["rotation", "pull"],
)
def test_order_of_deterministic_schemes_for_an_affine_drift(solver, prior, net, w0, w1):
    drift = affine_posterior(prior, Cut.none(), len(w0), **net)
    require_declared_order(WeightProcess(torch.tensor(w0), drift, prior, Cut.none()), solver, w1)


def test_the_mean_of_both_ends_has_two_thirds_of_the_error_of_either_end():
    """Order 1 for all three along noisy weights; the README has the figures of 200 paths, this takes 40."""
    script = Path(__file__).parents[1] / "benchmarks" / "hidden_error.py"
    spec = importlib.util.spec_from_file_location("hidden_error", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.errors(paths=40, fine=512)
    for errors in found.values():
        assert observed_order([1 / steps for steps in module.STEPS], errors) == pytest.approx(1, abs=0.15)
    for left, mean, right in zip(*found.values(), strict=True):
        assert mean == pytest.approx(2 / 3 * left, rel=0.15)
        assert right == pytest.approx(left, rel=0.15)


def test_sra1_is_exact_in_the_noise_if_the_drift_is_zero():
    process = WeightProcess(torch.zeros(1), lambda t, w: 0 * w, Brownian(2.0), Cut.full())
    noise = draw(3, 4, 1, 0.25, noises=2, generator=seeded())
    path = process.sample(4, noise=noise, solver="sra1")
    assert torch.allclose(path.w[:, -1], 2 * noise.dB.sum(1), atol=1e-15)


def test_the_adapter_declares_the_order_of_every_method():
    assert Torchsde("srk").order(additive=True) == 1.5
    assert Torchsde("srk").noises == 2
    assert Torchsde("reversible_heun").noises == 1
