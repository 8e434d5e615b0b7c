"""The diagonal drift b(t) - a(t) w + net(t, w): closed forms, with the plain and with the fused schemes."""

import math

import pytest
import torch
from torch import Tensor

from sdeweights import Cut, DiagonalDrift, OrnsteinUhlenbeck, PriorPlus, SplitDrift, WeightProcess, bottleneck
from sdeweights.testing import seeded

SIGMA = 0.5


def process_of(rate: object = 0.0, force: object = 0.0, cut: Cut | None = None, d: int = 2) -> WeightProcess:
    """An OU process (theta = 1) whose posterior has these rates and forces at two knots; its net is zero."""
    prior = OrnsteinUhlenbeck(sigma=SIGMA)
    net = DiagonalDrift(d, "2", knots=2).double()
    with torch.no_grad():
        net.rate.copy_(torch.as_tensor(rate).expand(2, d))
        net.force.copy_(torch.as_tensor(force).expand(2, d))
    return WeightProcess(torch.ones(d), PriorPlus(prior, net), prior, cut or Cut.full())


def test_it_is_zero_at_the_start_so_that_posterior_and_prior_agree(euler):
    assert process_of().sample(8, 3, generator=seeded(), **euler).kl.tolist() == [0, 0, 0]


def test_the_kl_of_a_constant_force_has_its_closed_form(euler):
    # 1/2 * 2 coordinates * (0.3 / 0.5)^2 = 0.36
    kl = process_of(force=0.3).sample(8, 3, generator=seeded(), **euler).kl
    torch.testing.assert_close(kl, torch.full((3,), 0.36), rtol=1e-12, atol=0)


def test_the_kl_of_a_force_linear_in_time_has_its_closed_form(euler):
    # the left-point sum of (t / 0.5)^2 / 2 over 1,000 steps and 2 coordinates tends to 4/3; its error is 1/2 dt * 4
    kl = process_of(force=torch.tensor([[0.0], [1.0]])).sample(1000, generator=seeded(), **euler).kl
    assert kl.item() == pytest.approx(4 / 3, abs=2.1e-3)


def test_a_rate_narrows_the_weights_as_the_closed_form_says(euler):
    # theta + a = 4: mean e^{-4}, variance sigma^2 (1 - e^{-8}) / 8; 20,000 samples and 200 steps of Euler, bias 2 %
    w1 = process_of(rate=3.0, d=1).sample(200, 20_000, generator=seeded(), **euler).w[:, -1, 0]
    assert w1.mean().item() == pytest.approx(math.exp(-4), abs=4 * SIGMA / math.sqrt(8 * 20_000) + 1e-3)
    assert w1.var().item() == pytest.approx(SIGMA**2 * (1 - math.exp(-8)) / 8, rel=0.02 + 4 * math.sqrt(2 / 20_000))


def test_each_weight_has_its_own_width(euler):
    w1 = process_of(rate=torch.tensor([0.0, 9.0])).sample(100, 4000, generator=seeded(), **euler).w[:, -1]
    ratio = w1[:, 0].std() / w1[:, 1].std()  # sqrt(0.432 / 0.05) = 2.94 for theta = 1 and 10
    assert ratio.item() == pytest.approx(math.sqrt((1 - math.exp(-2)) / 2 * 20), rel=0.1)  # 4 s.e. are 6 %


def test_coefficients_are_linear_between_knots():
    drift = DiagonalDrift(1, "1", knots=3)
    with torch.no_grad():
        drift.force.copy_(torch.tensor([[0.0], [1.0], [5.0]]))
    values = [drift(torch.tensor(t), torch.zeros(1)).item() for t in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert values == pytest.approx([0, 0.5, 1, 3, 5])


def test_a_negative_rate_counts_as_zero_and_is_revived_by_projection():
    drift = DiagonalDrift(1, "1", knots=1)
    with torch.no_grad():
        drift.rate.fill_(-2.0)

    def gradient() -> Tensor:
        out = drift(torch.tensor(0.0), torch.ones(1))
        return torch.autograd.grad(out.sum(), drift.rate)[0]

    assert drift(torch.tensor(0.0), torch.ones(1)).item() == 0
    assert gradient().item() == 0
    drift.project_()
    assert drift.rate.item() == 0
    assert gradient().item() == -1


def test_a_horizontal_cut_gets_one_drift_for_each_half():
    drift = bottleneck(6, Cut.horizontal(0.5), "2", knots=2)
    assert isinstance(drift, SplitDrift)
    assert {type(half) for half in (drift.stochastic, drift.deterministic)} == {DiagonalDrift}


def test_without_knots_there_is_no_diagonal_part():
    with pytest.raises(ValueError, match="expected at least 1 knot, got 0"):
        DiagonalDrift(3, knots=0)


def test_held_weights_stay_at_their_values_and_are_narrow(euler):
    # theta = 0: f_q = a (w* - w), a = 8; the stationary variance of Euler is sigma^2 dt / (1 - (1 - a dt)^2), dt = 1/32
    prior = OrnsteinUhlenbeck(sigma=SIGMA, theta=0.0)
    at = torch.tensor([1.0, -2.0])
    net = bottleneck(2, Cut.full(), "2", knots=1, hold=8.0, at=at).double()
    w1 = WeightProcess(at, PriorPlus(prior, net), prior, Cut.full()).sample(32, 20_000, generator=seeded(), **euler).w
    variance = SIGMA**2 / 32 / (1 - (1 - 8 / 32) ** 2)
    error = math.sqrt(variance / 20_000)
    torch.testing.assert_close(w1[:, -1].mean(0), at.to(w1), atol=4.5 * error, rtol=0)  # fails by chance: 1e-5
    torch.testing.assert_close(w1[:, -1].var(0), torch.full((2,), variance).to(w1), atol=0, rtol=4.5 * math.sqrt(1e-4))


def test_held_halves_of_a_split_drift_have_the_values_of_their_own_weights():
    at = torch.arange(6.0)
    drift = bottleneck(6, Cut.horizontal(0.5), "2", knots=1, hold=4.0, at=at)
    assert isinstance(drift, SplitDrift)
    assert drift(torch.tensor(0.5), at).eq(0).all()
    torch.testing.assert_close(drift(torch.tensor(0.5), at + 1), torch.full((6,), -4.0))


def test_values_to_hold_must_fit_the_weights():
    with pytest.raises(ValueError, match="3 values to hold"):
        DiagonalDrift(3, hold=1.0)
