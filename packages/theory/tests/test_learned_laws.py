"""Laws learned from samples, in a quick form. Negative controls: untrained models, a narrow ring model, broken parts."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from sdeweights import flow
from sdeweights.testing import seeded
from theory import learned_laws, learned_ring
from theory.generators import STEPS, T2, Generator, Shape
from theory.learned_laws import TASKS, Distances, N, compare
from theory.learning import Plan, bounds, fit
from theory.outsourcing import Comparison, energy
from theory.statistics import STANDARD_ERRORS

QUICK = Plan(updates=120, pairs=64, paths=32, rate=0.02)


def test_bound_is_the_log_of_the_mean_of_likelihood_over_ratio():
    likelihood, ratio = torch.tensor([[0.1, 0.2], [0.3, 0.6]]), torch.tensor([1.0, 2.0])
    assert torch.allclose(bounds(likelihood.log(), torch.zeros(2)).exp(), torch.tensor([0.2, 0.4]))
    assert torch.allclose(bounds(likelihood.log(), ratio.log()).exp(), torch.tensor([0.125, 0.25]))


def test_energy_distance_on_paper_and_its_critical_value():
    apart = energy(torch.tensor([[0.0], [0.0]]), torch.tensor([[3.0], [3.0]]), 50, seeded(0), 0.95)
    assert apart.statistic == pytest.approx(6.0)  # 2 * 3 - 0 - 0
    a, b = torch.randn(300, 1, generator=seeded(1)), torch.randn(300, 1, generator=seeded(2))
    strict, largest = (energy(a, b, 99, seeded(3), level) for level in (0.95, 1.0))
    assert strict.statistic == largest.statistic
    assert strict.critical < largest.critical


def test_equal_laws_are_rejected_in_about_five_percent_of_test_sets():
    """200 test sets: a rejection rate of 5 % gives more than 30 rejections with probability 1e-7, none with 4e-5."""
    source = seeded(0)
    sets = [energy(*torch.randn(2, 60, 1, generator=source), 99, source, 0.95) for _ in range(200)]
    assert 0.85 <= Distances(0.0, tuple(sets)).share < 1


def test_share_and_ratio_of_test_sets_on_paper():
    found = Distances(0.0, (Comparison(1.0, 2.0), Comparison(3.0, 2.0), Comparison(4.0, 2.0)))
    assert (found.share, found.ratio, found.distance, found.critical) == (1 / 3, 1.5, 3.0, 2.0)


@pytest.fixture
def model():
    return Generator(Shape(), 0.15, 0)


def test_prior_is_the_generator_so_the_importance_weights_are_one(model):
    path = model.even_paths(8, seeded(0))
    assert path.log_ratio.abs().max() == 0
    assert path.kl.abs().max() == 0


def test_only_the_last_entry_of_c_is_noisy_and_only_before_t2(model):
    w, k = model.paths(16, seeded(0)).w, int(T2 * STEPS)
    spread = w.std(0)
    assert spread[:, :-1].max() == 0
    assert spread[1, -1] > 1
    assert spread[k + 1 :].max() == 0  # w_S was reset


def test_noise_in_the_hidden_state_has_variance_one_for_both_kinds_of_paths(model):
    """4,096 paths; independent normals miss by chance with probability 7e-6."""
    n = 4096
    for path in (model.paths(n, seeded(1)), model.even_paths(n, seeded(1))):
        eta = path.w[:, 1, -1].double() / STEPS
        assert abs(eta.mean()) < STANDARD_ERRORS / n**0.5
        assert abs(eta.var() - 1) < STANDARD_ERRORS * (2 / n) ** 0.5


def test_one_batch_after_t2_gives_the_outputs_of_the_plain_flow(model):
    path, x = model.paths(5, seeded(2)), torch.linspace(-1, 1, 7)[:, None]
    h = flow(model.f_h, nn.functional.pad(x.float(), (0, 4)), path, per_sample=False)
    assert torch.allclose(model.outputs(x, path), model.L(h), atol=1e-5)  # single precision


@pytest.fixture(scope="module")
def quick():
    """A heteroscedastic Gaussian law, trained for a few seconds."""
    return replace(TASKS["heteroscedastic Gaussian"], plan=QUICK).trained(0)


def test_quick_training_brings_the_law_within_a_tenth_of_its_first_distance(quick, monkeypatch):
    """Two test sets of n = 1,000 per input; sampling alone gives distances of about 0.001, untrained ones exceed 0.1."""
    monkeypatch.setattr(learned_laws, "TEST_SETS", 2)
    task = TASKS["heteroscedastic Gaussian"]
    for x in learned_laws.INPUTS:
        before, after = (compare(m, task.law, x, seeded(1000)) for m in (task.untrained(0), quick))
        assert before.share == 0
        assert after.distance < before.distance / 10


def test_quick_training_raises_the_bound_above_that_of_the_best_single_normal_law(quick):
    """1,000 pairs. Differences of the bounds have standard errors of about 0.03; the margin is about 0.4."""
    task = TASKS["heteroscedastic Gaussian"]
    x, y = task.pairs(N, seeded(7))
    with torch.no_grad():
        path = quick.even_paths(256, seeded(8))
        found = bounds(quick.log_likelihood(x, y, path), path.log_ratio).mean()
    ignores_x = torch.distributions.Normal(y.mean(), y.std()).log_prob(y).mean()
    exact = torch.distributions.Normal(0.8 * torch.sin(torch.pi * x), task.law.scale(x)).log_prob(y).mean()
    assert ignores_x + 0.1 < found < exact + 0.05


def test_training_is_repeatable():
    first, second = (replace(TASKS["circle"], plan=Plan(3, 8, 4)).trained(5) for _ in range(2))
    assert torch.equal(first.process.w0, second.process.w0)


def test_ring_without_extra_dimensions_fails_however_long_it_is_trained(monkeypatch):
    monkeypatch.setattr(learned_ring, "PATHS", 3)
    for updates in (0, 40):
        monkeypatch.setattr(learned_ring, "PLAN", replace(learned_ring.PLAN, updates=updates))
        learned_ring.trained.cache_clear()
        found = learned_ring.judged(0, 0)
        assert found.rate < 1
        assert min(v.own for v in found.verdicts) >= 1
        assert max(v.residual for v in found.verdicts) < 1e-12
    learned_ring.trained.cache_clear()


def test_rising_sigma_is_not_part_of_the_model(model):
    """Training from a wide sigma_y ends at that of the model."""
    fit(model, TASKS["bimodal"].pairs, Plan(2, 8, 4), seeded(0))
    assert model.sigma_y == 0.15


@pytest.mark.deep
def test_all_certificates_hold_after_full_training():
    assert [c.statement for c in learned_laws.certify(0) if not c.holds] == []
