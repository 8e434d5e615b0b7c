"""The torchsde and torchdiffeq adapters, compared with our own schemes on the same noise."""

import math

import pytest
import torch
import torchdiffeq
import torchsde

from sdeweights import Brownian, Cut, Increments, OrnsteinUhlenbeck, Prior, SplitDrift, WeightProcess
from sdeweights.brownian import draw
from sdeweights.solvers import Torchdiffeq
from sdeweights.solvers.torchsde_adapter import METHODS
from sdeweights.testing import drift_for, observed_order, seeded

W0 = torch.tensor([0.5, -0.2, 0.8], dtype=torch.float64)
GENERAL = Prior(lambda t, w: -w, lambda t, w: 0.3 + 0.1 * torch.sin(w) + 0.2 * t)


def pair(ours, theirs, prior, cut, steps=20):
    drift = drift_for(cut, 3)
    process = WeightProcess(W0, drift, prior, cut)
    return (process.sample(steps, 6, generator=seeded(), solver=s) for s in (ours, theirs))


@pytest.mark.parametrize(
    ("ours", "theirs"), [("euler", "euler"), ("milstein", "milstein"), ("heun", "heun"), ("midpoint", "midpoint")]
)
@pytest.mark.parametrize("prior", [OrnsteinUhlenbeck(sigma=0.5), GENERAL], ids=["additive", "multiplicative"])
@pytest.mark.parametrize(
    "cut", [Cut.full(), Cut.vertical(0.3, 0.6), Cut.horizontal([0, 2])], ids=["full", "vertical", "horizontal"]
)
def test_native_schemes_agree_with_torchsde_on_the_same_noise(ours, theirs, prior, cut):
    a, b = pair(ours, f"torchsde:{theirs}", prior, cut)
    assert torch.allclose(a.w, b.w, rtol=0, atol=1e-12)
    assert torch.allclose(a.kl, b.kl, rtol=1e-10)


def test_milstein_without_gradients_keeps_its_correction_in_the_first_step():
    # dw = -0.3 w dt + 0.5 w dB: w_{k+1} = w_k (1 - 0.3 dt + 0.5 dB + 1/2 0.5^2 (dB^2 - dt))
    dB = [0.7, -0.3, 0.2, 0.5]
    prior = Prior(lambda t, w: -0.3 * w, lambda t, w: 0.5 * w)
    process = WeightProcess(torch.ones(1), prior.drift, prior, Cut.full())
    noise = Increments(0.25, torch.tensor(dB).view(1, 4, 1))
    expected = math.prod(1 - 0.3 * 0.25 + 0.5 * x + 0.125 * (x * x - 0.25) for x in dB)
    assert expected == pytest.approx(1.15625, abs=1e-5)
    with torch.no_grad():
        assert process.sample(4, noise=noise, solver="torchsde:milstein").w[0, -1].item() == pytest.approx(expected)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cut", [Cut.full(), Cut.vertical(0.3, 0.6)], ids=["full", "vertical"])
def test_values_do_not_depend_on_whether_gradients_are_kept(method, cut):
    process = WeightProcess(W0, drift_for(cut, 3), GENERAL, cut)
    kept = process.sample(10, 3, generator=seeded(), solver=f"torchsde:{method}")
    with torch.no_grad():
        path = process.sample(10, 3, generator=seeded(), solver=f"torchsde:{method}")
    assert torch.equal(path.w, kept.w)
    assert torch.equal(path.kl, kept.kl)


@pytest.mark.parametrize("method", [method for method in METHODS if method != "euler"])
@pytest.mark.parametrize(
    "g", [lambda t, w: 2 + w.flip(-1), lambda t, w: 1 + w.square().sum(-1, keepdim=True)], ids=["flipped", "scalar"]
)
def test_all_torchsde_methods_except_euler_reject_noise_that_mixes_coordinates(method, g):
    process = WeightProcess(W0, lambda t, w: -w, Prior(lambda t, w: -w, g), Cut.full())
    with pytest.raises(ValueError, match=f"g_i depends on w_i alone for torchsde:{method}, got one that mixes them"):
        process.sample(5, 2, generator=seeded(), solver=f"torchsde:{method}")
    ours, theirs = (process.sample(5, 2, generator=seeded(), solver=s) for s in ("euler", "torchsde:euler"))
    assert torch.allclose(ours.w, theirs.w, rtol=1e-12)


def test_native_euler_agrees_with_a_plain_call_of_torchsde():
    """Calls torchsde without our adapter: its own time grid and loop, with our increments as its Brownian motion."""
    steps = 16  # dt = 1/16 adds up exactly
    noise = draw(5, steps, 3, 1 / steps, generator=seeded())
    drift = drift_for(Cut.full(), 3)

    class Plain:
        sde_type, noise_type = "ito", "diagonal"

        def f(self, t, y):
            return drift(t, y)

        def g(self, t, y):
            return torch.full_like(y, 0.5)

    class Given(torchsde.BaseBrownian):
        dtype, device, shape, levy_area_approximation = noise.dB.dtype, noise.dB.device, (5, 3), "none"

        def __call__(self, ta, tb=None, return_U=False, return_A=False):
            return noise.dB[:, round(float(ta) * steps)]

        def __repr__(self):
            return "Given()"

    ts = torch.linspace(0, 1, steps + 1)
    theirs = torchsde.sdeint(Plain(), W0.expand(5, 3), ts, bm=Given(), method="euler", dt=1 / steps)
    ours = WeightProcess(W0, drift, Brownian(0.5), Cut.full()).sample(steps, noise=noise)
    assert torch.allclose(ours.w, theirs.transpose(0, 1), rtol=0, atol=1e-12)


def test_kl_is_finite_if_a_coordinate_has_no_noise_unlike_torchsdes_own_kl():
    class Sde(torch.nn.Module):
        sde_type, noise_type = "ito", "diagonal"

        def f(self, t, y):
            return -y + 0.3

        def g(self, t, y):
            return torch.tensor([[0.5, 0.0]]).expand_as(y)

        def h(self, t, y):
            return -y

    start = torch.zeros(4, 2)
    _, log_ratio = torchsde.sdeint(Sde(), start, torch.tensor([0.0, 1.0]), method="euler", dt=0.1, logqp=True)
    assert (
        not torch.isfinite(log_ratio).all() or log_ratio.max() > 1e3
    )  # 0.3 / 0: NaN, inf or a meaningless clamped value
    drift = SplitDrift(lambda t, w: -w + 0.3, lambda t, w: -w + 0.3, [0], 2)
    path = WeightProcess(torch.zeros(2), drift, OrnsteinUhlenbeck(sigma=0.5), Cut.horizontal([0])).sample(
        10, 4, generator=seeded()
    )
    assert path.kl.tolist() == pytest.approx([0.5 * 0.36] * 4, rel=1e-12)


@pytest.mark.parametrize("method", ["euler", "euler_heun", "heun", "midpoint", "reversible_heun", "log_ode"])
def test_torchsde_methods_converge_for_dense_noise(method):
    g = torch.tensor([[0.5, 0.1, 0.0], [0.0, 0.4, 0.1], [0.1, 0.0, 0.3]])
    prior = Prior(lambda t, w: -w, lambda t, w: g * (1 + 0.1 * torch.tanh(w).sum(-1))[..., None, None])
    process = WeightProcess(W0, drift_for(Cut.full(), 3), prior, Cut.full())
    noise = draw(20, 128, 3, 1 / 128, noises=2, generator=seeded())
    with torch.no_grad():
        fine = process.sample(128, noise=noise, solver="heun")
        other = process.sample(128, noise=noise, solver=f"torchsde:{method}")
    # both converge to the Ito solution at order 1/2; without the drift correction they would differ by 0.1
    assert (fine.w[:, -1] - other.w[:, -1]).abs().max() < 0.02


@pytest.mark.parametrize("method", ["srk", "milstein"])
def test_state_dependent_dense_noise_is_rejected_if_torchsde_has_no_method_for_it(method):
    prior = Prior(lambda t, w: -w, lambda t, w: torch.diag_embed(1 + w**2))
    process = WeightProcess(W0, drift_for(Cut.full(), 3), prior, Cut.full())
    with pytest.raises(ValueError, match=f"expected a diagonal diffusion for torchsde:{method}, got a dense one"):
        process.sample(5, solver=f"torchsde:{method}")


@pytest.mark.parametrize("cut", [Cut.none(), Cut.vertical(0.3, 0.6, "fixed")], ids=str)
def test_deterministic_phases_agree_with_torchdiffeq_to_its_tolerance(cut):
    process = WeightProcess(W0, drift_for(cut, 3), OrnsteinUhlenbeck(sigma=0.5), cut)
    rk4 = process.sample(100, 2, generator=seeded(), ode_solver="rk4")
    for method in ("dopri5", "dopri8", "bosh3"):
        adaptive = process.sample(100, 2, generator=seeded(), ode_solver=f"torchdiffeq:{method}")
        assert torch.allclose(rk4.w, adaptive.w, rtol=0, atol=1e-7)


def test_adaptive_phases_work_in_float32():
    process = WeightProcess(W0.float(), lambda t, w: -w + t, OrnsteinUhlenbeck(sigma=0.5), Cut.ode_first(0.1))
    path = process.sample(20, generator=seeded(), ode_solver="torchdiffeq:dopri5")
    k = path.times.index(0.9)
    expected = (W0 + 1) * torch.exp(torch.tensor(-0.9)) + 0.9 - 1  # the solution of w' = -w + t
    assert path.w.dtype == torch.float32
    assert torch.allclose(path.w[0, k].double(), expected, atol=1e-6)


def test_native_euler_equals_torchdiffeqs_euler():
    process = WeightProcess(W0, drift_for(Cut.none(), 3), Brownian(), Cut.none())
    a, b = (process.sample(10, ode_solver=s) for s in ("euler", "torchdiffeq:euler"))
    assert torch.allclose(a.w, b.w, rtol=0, atol=1e-14)
    theirs = torchdiffeq.odeint(process.drift, W0, torch.linspace(0, 1, 11), method="euler")
    assert torch.allclose(a.w[0], theirs, rtol=0, atol=1e-14)


def test_tighter_tolerance_is_more_accurate_and_needs_more_evaluations():
    def run(tolerance):
        return process.sample(1, ode_solver=Torchdiffeq("dopri5", rtol=tolerance, atol=tolerance))

    process = WeightProcess(torch.tensor([1.0]), lambda t, w: w * torch.cos(10 * t) * 5, Brownian(), Cut.none())
    exact = torch.exp(torch.sin(torch.tensor(10.0)) / 2)
    tolerances = [1e-3, 1e-4, 1e-5, 1e-6, 1e-7]
    paths = [run(tolerance) for tolerance in tolerances]
    errors = [(path.w[0, -1] - exact).abs().item() for path in paths]
    assert (
        observed_order(tolerances, errors) > 0.5
    )  # a tolerance ten times tighter reduces the error more than threefold, on average
    evaluations = [path.evaluations for path in paths]
    assert evaluations == sorted(evaluations)
    assert evaluations[-1] > evaluations[0]


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"solver": "rk"},
            "expected solver to be one of euler, fused-euler, heun, midpoint, milstein, sra1, torchsde:euler, .*, got 'rk'",
        ),
        ({"solver": "torchsde:nothing"}, "expected solver to be one of .*, got 'torchsde:nothing'"),
        (
            {"ode_solver": "rk5"},
            "expected ode_solver to be one of euler, midpoint, rk4, fused-euler, torchdiffeq:METHOD, got 'rk5'",
        ),
    ],
)
def test_an_unknown_solver_is_an_error_that_lists_the_known_ones(how, message):
    process = WeightProcess(W0, lambda t, w: -w, Brownian(), Cut.ode_first(0.5))
    with pytest.raises(ValueError, match=message):
        process.sample(4, **how)


def test_unknown_method_of_torchdiffeq_is_a_value_error():
    with pytest.raises(ValueError, match="expected a method of torchdiffeq, one of .*dopri5.*, got 'nothing'"):
        WeightProcess(W0, lambda t, w: -w, Brownian(), Cut.none()).sample(4, ode_solver="torchdiffeq:nothing")
