"""A diffusion whose dependence on w is invisible to autograd is not treated as additive noise."""

import pytest
import torch

from sdeweights import Cut, Prior, WeightProcess
from sdeweights.brownian import draw
from sdeweights.diffusion import depends_on_state
from sdeweights.solvers import SDE_SOLVERS, sde_solver
from sdeweights.solvers.torchsde_adapter import METHODS
from sdeweights.testing import observed_order, seeded

HIDDEN = {
    "where": lambda t, w: torch.where(w > 0, 0.3, 0.6),
    "where far away": lambda t, w: torch.where(w > 40, 0.3, 0.6),
    "where on the order": lambda t, w: torch.where(w > w.flip(-1), 0.3, 0.6),
    "where, shaped by 0 w": lambda t, w: torch.where(w > 0, 0.3, 0.6) + 0 * w,
    "sign": lambda t, w: 0.5 + 0.2 * torch.sign(w),
    "detach": lambda t, w: 0.3 + 0.1 * w.detach() ** 2,
    "numpy": lambda t, w: torch.from_numpy(0.3 + 0.1 * w.detach().numpy() ** 2),
    "dense": lambda t, w: torch.diag_embed(torch.where(w > 0, 0.3, 0.6)),
}
NEED_A_DERIVATIVE = [
    *(name for name in SDE_SOLVERS if name in ("milstein", "heun", "midpoint")),
    *(f"torchsde:{name}" for name in METHODS if name != "euler"),
]


def process_with(g, w0=(0.4, 0.5)):
    return WeightProcess(torch.tensor(w0), lambda t, w: -w, Prior(lambda t, w: 0 * w, g), Cut.full())


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_dependence_is_found_by_comparing_values(name):
    for w in (torch.tensor([0.4, 0.5]), torch.zeros(2), torch.tensor([-3.0, -2.0])):
        assert depends_on_state(HIDDEN[name], torch.tensor(0.0), w)


@pytest.mark.parametrize("g", [lambda t, w: 0.5 + t, lambda t, w: (0.5 + t).expand(2), lambda t, w: torch.eye(2) + t])
def test_a_function_of_time_is_additive(g):
    assert not depends_on_state(g, torch.tensor(0.3), torch.tensor([0.4, 0.5]))
    assert torch.isfinite(process_with(g).sample(4, generator=seeded(), solver="sra1").w).all()


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("solver", NEED_A_DERIVATIVE)
def test_schemes_that_need_the_derivative_reject_hidden_dependence(name, solver):
    with pytest.raises(ValueError, match="expected a (diagonal )?diffusion") as caught:
        process_with(HIDDEN[name]).sample(4, generator=seeded(), solver=solver)
    message = str(caught.value)
    assert solver in message
    assert "\n" not in message
    assert "autograd can differentiate" in message or "a dense one that depends on w" in message


@pytest.mark.parametrize("name", HIDDEN)
def test_schemes_for_additive_noise_reject_hidden_dependence(name):
    with pytest.raises(ValueError, match="expected additive noise for sra1"):
        process_with(HIDDEN[name]).sample(4, generator=seeded(), solver="sra1")


@pytest.mark.parametrize("name", ["detach", "numpy"])
@pytest.mark.parametrize("solver", ["euler", "torchsde:euler"])
def test_euler_gives_the_same_path_for_hidden_and_visible_dependence(name, solver):
    hidden, visible = (process_with(g) for g in (HIDDEN[name], lambda t, w: 0.3 + 0.1 * w**2))
    a, b = (process.sample(8, 3, generator=seeded(), solver=solver) for process in (hidden, visible))
    assert torch.equal(a.w, b.w)
    assert torch.equal(a.kl, b.kl)


def test_euler_has_order_one_half_for_hidden_dependence():
    # dw = w/2 dt + 0.8 w dB with w(1) = exp((1 - 0.8^2) / 2 + 0.8 B(1)); 3000 paths: errors known to about 2 %
    prior = Prior(lambda t, w: 0 * w, lambda t, w: 0.8 * w.detach())
    process = WeightProcess(torch.ones(1), lambda t, w: 0.5 * w, prior, Cut.full())
    noise = draw(3000, 256, 1, 1 / 256, generator=seeded(2))
    exact = torch.exp((1 - 0.8**2) / 2 + 0.8 * noise.dB.sum(1))
    dts, errors = [], []
    with torch.no_grad():
        for factor in (16, 8, 4, 2, 1):
            end = process.sample(256 // factor, noise=noise.coarsen(factor)).w[:, -1]
            dts.append(factor / 256)
            errors.append((end - exact).square().mean().sqrt().item())
    assert observed_order(dts, errors) == pytest.approx(sde_solver("euler").order(additive=False), abs=0.1)
