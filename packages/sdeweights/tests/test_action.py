"""The action of the deterministic part, 1/2 int |g^{-1} (dw/dt - f_p)|^2: closed forms and its relation to the KL."""

import pytest
import torch

from sdeweights import Brownian, Cut, OrnsteinUhlenbeck, Prior, WeightProcess, path_action, path_kl
from sdeweights.testing import affine_posterior, random_posterior, seeded

DENSE = torch.tensor([[1.0, 0.2, 0.0], [0.0, 0.8, 0.1], [0.3, 0.0, 0.7]], dtype=torch.float64)
CUTS = [
    Cut.none(),
    Cut.full(),
    Cut.vertical(0.3, 0.6),
    Cut.ode_first(0.4),
    Cut.sde_first(0.5, "learned"),
    Cut.horizontal([0, 2]),
    Cut.both(0.25, 0.75, [1]),
]


def test_the_action_of_a_constant_gap_has_its_closed_form(euler):
    # 1/2 * 2 * (0.3 / 0.5)^2 = 0.36 over the whole depth, and 0.7 of it if the last 0.3 are stochastic
    prior = OrnsteinUhlenbeck(sigma=0.5)
    for cut, share in ((Cut.none(), 1.0), (Cut.ode_first(0.3), 0.7), (Cut.horizontal([0]), 0.5), (Cut.full(), 0.0)):
        process = WeightProcess(torch.ones(2), affine_posterior(prior, cut, 2, constant=0.3), prior, cut)
        path = process.sample(10, 2, generator=seeded(), **euler)
        torch.testing.assert_close(
            path_action(prior, path, cut), torch.full((2,), 0.36 * share), rtol=1e-11, atol=1e-13
        )


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize(
    "prior", [OrnsteinUhlenbeck(0.7, 0.3, 0.4), Brownian(torch.tensor([0.2, 0.5, 1.0]).double())], ids=["OU", "vector"]
)
def test_action_and_kl_add_up_to_the_energy_of_the_whole_path(cut, prior, euler):
    process = WeightProcess(torch.linspace(-1, 1, 3), random_posterior(prior, cut, 3), prior, cut)
    path = process.sample(20, 3, generator=seeded(), **euler)
    whole = path_kl(process.drift, prior, path, Cut.full())
    torch.testing.assert_close(path_action(prior, path, cut) + path.kl, whole, rtol=1e-9, atol=1e-11)


def test_a_dense_diffusion_is_solved_not_inverted_by_coordinate():
    prior = Prior(lambda t, w: -w, DENSE)
    process = WeightProcess(torch.ones(3), lambda t, w: 0.1 - w, prior, Cut.none())
    u = torch.linalg.solve(DENSE, torch.full((3,), 0.1))
    action = path_action(prior, process.sample(10), process.cut)
    assert action.item() == pytest.approx(0.5 * (u @ u).item(), rel=1e-10)


def test_a_path_that_follows_the_prior_costs_nothing():
    prior = OrnsteinUhlenbeck(2.0, 0.5, 0.3)
    path = WeightProcess(torch.ones(2), prior.drift, prior, Cut.vertical(0.2, 0.4)).sample(10, generator=seeded())
    assert path_action(prior, path, Cut.vertical(0.2, 0.4)).item() == pytest.approx(0, abs=1e-20)


def test_the_action_has_gradients_for_the_drift_and_w0(euler):
    prior, cut = OrnsteinUhlenbeck(sigma=0.4), Cut.sde_first(0.5)
    process = WeightProcess(torch.ones(3), random_posterior(prior, cut, 3), prior, cut)
    loss = path_action(prior, process.sample(6, 2, generator=seeded(), **euler), cut).sum()
    expected = path_kl(process.drift, prior, process.sample(6, 2, generator=seeded(), **euler), Cut.vertical(0.5, 1))
    for a, b in zip(*(torch.autograd.grad(x, process.parameters()) for x in (loss, expected.sum())), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)
