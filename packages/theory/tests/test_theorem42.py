"""Theorem 4.2 holds for the proof's model. Negative controls: with any of its choices changed it does not."""

import math
from dataclasses import asdict, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sdeweights import Brownian, Cut, Grid, Prior, WeightProcess, flow
from theory import horizontal, theorem42
from theory.construction import Case, construct, sigma_for, variance_share
from theory.dimensions import Dimensions, printed_r
from theory.laws import APPROXIMATED, Bimodal, Circle, HeteroscedasticGaussian
from theory.networks import Family, sensitivity
from theory.simulation import run
from theory.statistics import at_least, levy
from theory.steering import T3, contraction, sheared
from theory.theorem42 import grid, network_output, step_1
from theory.theorem_a1 import approximation

seeds = st.integers(0, 2**31 - 1)
sizes = st.integers(1, 12)
x = grid(21)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def steps_in_R1(model):
    return Grid.of(model.cut, model.steps).index(0.5)


@st.composite
def problem_sizes(draw):
    """(d_x, d_y, m, m_gamma) with m >= d_y."""
    d_y = draw(sizes)
    return draw(sizes), d_y, d_y + draw(st.integers(0, 5)), draw(st.integers(1, 200))


@given(problem_sizes())
def test_dimensions_fit_together(sizes):
    d = Dimensions.of(*sizes)
    assert (d.d_h, d.d_w, d.r) == (d.d_x + d.r + d.m, d.m1 + d.m2, d.d_y)
    assert d.m1 >= max(d.m, d.m_gamma)  # w[1:m] is integrated, w[1:m_gamma] becomes gamma


@given(problem_sizes())
def test_the_printed_r_is_rejected_for_all_dimensions(sizes):
    assert printed_r(Dimensions.of(*sizes)) != sizes[1]
    with pytest.raises(ValueError, match="expected r "):
        Dimensions.as_printed(*sizes)


def test_the_printed_r_is_minus_18_in_the_smallest_example():
    assert printed_r(Dimensions.of(1, 1, 1, 10)) == -18


@given(problem_sizes(), st.sampled_from(["m1", "m2", "r", "d_w", "d_h"]), st.sampled_from([-1, 1, 7]))
def test_any_other_dimension_is_rejected(sizes, name, change):
    values = asdict(Dimensions.of(*sizes))
    with pytest.raises(ValueError, match="expected"):
        Dimensions(**(values | {name: values[name] + change}))


def test_fewer_noises_than_outputs_and_sizes_below_1_are_rejected():
    with pytest.raises(ValueError, match="m >= d_y"):
        Dimensions.of(1, 2, 1, 10)
    with pytest.raises(ValueError, match="integer"):
        Dimensions.of(1, 1, 1, 0)


@given(st.integers(2, 500))
def test_variance_of_eulers_sum_is_the_sum_over_its_increments(n1):
    dt = 0.5 / n1
    variance = dt**3 * sum(k**2 for k in range(1, n1))  # increment j contributes to the n1 - j steps after it
    assert variance * 24 == pytest.approx(variance_share(n1), rel=1e-10)
    assert variance * sigma_for(n1) ** 2 == pytest.approx(1, rel=1e-10)


@given(st.integers(2, 80))
def test_sigma_of_continuous_time_is_too_small_on_every_coarse_grid(n1):
    assert variance_share(n1) * 24 / sigma_for(None) ** 2 < 0.99


def test_a_sum_over_one_step_has_no_variance_and_is_rejected():
    with pytest.raises(ValueError, match="at least 2 steps"):
        sigma_for(1)


@given(st.integers(2, 12), seeds)
def test_noise_of_step_1_is_standard_normal_on_every_grid(n1, seed):
    eta = step_1(sigma_for(n1), n1, 1, 1000, seed)[:, 0]
    assert stats.kstest(eta.numpy(), "norm").pvalue > 1e-9  # 2,000 examples fail by chance with probability 2e-6


@pytest.mark.parametrize(
    ("sigma", "n1"), [(1.0, 8), (sigma_for(None), 2), (24.0, 8)], ids=["1", "sqrt 24, 2 steps", "24"]
)
def test_noise_of_another_sigma_is_not_standard_normal(sigma, n1):
    assert stats.kstest(step_1(sigma, n1, 1, 3000, 0)[:, 0].numpy(), "norm").pvalue < 1e-9


def carried(drift, start, cut, steps, solver):
    """Weights at 3/4 that are reset to `start` at 1/2."""
    process = WeightProcess(torch.zeros_like(start), drift, Brownian(), cut, start)
    with torch.no_grad():
        return process.sample(steps, generator=seeded(), ode_solver=solver).at(T3)[0]


vectors = st.lists(st.floats(-5, 5, allow_subnormal=False), min_size=3, max_size=3).map(torch.tensor)


@given(vectors, vectors, st.floats(1e-5, 0.5), st.sampled_from(list(Family)))
def test_linear_field_is_the_homeomorphism_phi(gamma, y, ratio, family):
    def f_q(t, w):
        return contraction(family, gamma, ratio)(t, w) if 0.5 <= t < T3 else torch.zeros_like(w)

    reached = carried(f_q, y, Cut.vertical(0, 0.5, "fixed"), 400, "midpoint")
    # midpoint: (k/4)^3 / 6 / 100^2 of ratio |y - c|; tanh instead of its argument: 1e-4
    torch.testing.assert_close(reached, gamma + ratio * y, atol=1e-3, rtol=1e-3)


def test_linear_field_on_too_few_steps_does_not_contract():
    gamma, y = torch.ones(3), torch.full((3,), 20.0)
    field = contraction(Family.DEEP, gamma, 1e-5)
    f_q = lambda t, w: field(t, w) if 0.5 <= t < T3 else torch.zeros_like(w)  # noqa: E731
    reached = carried(f_q, y, Cut.vertical(0, 0.5, "fixed"), 8, "midpoint")
    assert float((reached - gamma).norm()) > 100


def test_a_scheme_that_evaluates_the_end_of_a_step_reads_region_3_and_misses_gamma():
    f_q = lambda t, w: 4 + 0 * w if 0.5 <= t < T3 else 0 * w  # noqa: E731
    cut, zero = Cut.vertical(0, 0.5, "fixed"), torch.zeros(1)
    assert float(carried(f_q, zero, cut, 16, "midpoint")) == 1
    assert float(carried(f_q, zero, cut, 16, "rk4")) == pytest.approx(1 - 1 / 24, abs=1e-12)  # a sixth of a step


@given(vectors, st.floats(1, 10))
def test_an_expansion_is_rejected(gamma, ratio):
    with pytest.raises(ValueError, match="contraction"):
        contraction(Family.WIDE, gamma, ratio)


@given(vectors, vectors, st.floats(1e-4, 0.5))
def test_three_shears_are_the_homeomorphism_phi_in_four_steps(gamma, y, ratio):
    field = sheared(gamma, ratio, 3)
    f_q = lambda t, w: field(t, w) if 0.5 <= t < T3 else torch.zeros_like(w)  # noqa: E731
    start = torch.cat([y, torch.zeros(3)])
    reached = carried(f_q, start, Cut.vertical(0, 0.5, "fixed"), 16, "euler")
    wanted = torch.cat([gamma + ratio * y, torch.zeros(3)])
    torch.testing.assert_close(reached, wanted, atol=1e-9, rtol=0)  # rounding of gamma, amplified by 1 / ratio


@given(vectors, vectors, st.floats(1e-4, 0.01))
def test_three_shears_need_the_extra_weights_to_be_zero(gamma, y, ratio):
    field = sheared(gamma, ratio, 3)
    f_q = lambda t, w: field(t, w) if 0.5 <= t < T3 else torch.zeros_like(w)  # noqa: E731
    start = torch.cat([y, torch.ones(3)])
    reached = carried(f_q, start, Cut.vertical(0, 0.5, "fixed"), 16, "euler")
    assert float((reached[:3] - gamma - ratio * y).abs().min()) > 10


@given(st.integers(1, 300), st.floats(0.05, 0.95), st.floats(1e-6, 0.1))
def test_clopper_pearson_exceeds_the_probability_no_more_often_than_its_false_alarm_rate(trials, p, rate):
    too_high = [k for k in range(trials + 1) if at_least(k, trials, rate) > p]
    assert sum(stats.binom.pmf(k, trials, p) for k in too_high) <= rate * (1 + 1e-9)


def test_the_plain_frequency_exceeds_the_probability_half_of_the_time():
    assert stats.binom.sf(90, 100, 0.9) > 0.4


@given(st.sampled_from(APPROXIMATED), st.sampled_from([0.2, 0.1]), st.sampled_from(list(Case)), seeds)
def test_error_on_A_is_within_epsilon_for_every_law_and_case(law, epsilon, case, seed):
    model = construct(law, epsilon, case)
    result = run(model, x, 10, seeded(seed))
    assert bool((result.error[result.inside] <= epsilon).all())
    assert bool((result.distance[result.inside] <= max(model.delta, 1e-12)).all())
    assert result.kl.tolist() == [0] * 10


@pytest.mark.parametrize("law", APPROXIMATED, ids=lambda law: law.name)
@pytest.mark.parametrize("case", [Case.FIXED, Case.LEARNED])
def test_output_is_exactly_the_network_so_the_speed_of_region_3_times_its_length_is_1(law, case):
    model = construct(law, 0.2, case)
    result = run(model, grid(), 20, seeded())
    # four Euler steps of a constant field: rounding only
    torch.testing.assert_close(result.y, network_output(model, result.eta), atol=1e-12, rtol=0)


@pytest.mark.parametrize("law", APPROXIMATED, ids=lambda law: law.name)
def test_error_is_the_supremum_over_all_inputs(law):
    model = construct(law, 0.2, Case.LEARNED)
    whole = run(model, x, 8, seeded()).error
    each = torch.stack([run(model, x[k : k + 1], 8, seeded()).error for k in range(len(x))], 1)
    torch.testing.assert_close(whole, each.amax(1), atol=1e-12, rtol=0)
    assert bool((whole > 1.05 * each.mean(1)).all())  # so the mean over x would be a different number


def test_error_under_a_horizontal_cut_is_the_supremum_over_all_inputs():
    law = Bimodal()
    whole = horizontal.sample(law, 0.2, x, 8, seeded())
    each = torch.stack([horizontal.sample(law, 0.2, x[k : k + 1], 8, seeded()).error for k in range(len(x))], 1)
    torch.testing.assert_close(whole.error, each.amax(1), atol=1e-12, rtol=0)


def test_output_under_a_horizontal_cut_is_exactly_the_network():
    result = horizontal.sample(Bimodal(), 0.2, x, 8, seeded())
    inputs = torch.cat([x.expand(8, -1, -1), result.eta[:, None].expand(-1, len(x), -1)], -1)
    torch.testing.assert_close(result.y, approximation(Bimodal(), Family.WIDE, 0.2)(inputs), atol=1e-12, rtol=0)


def lambda_of(law, epsilon):
    """The radius of A_1 by another formula than the package's: the error function for m = 1, a logarithm for m = 2."""
    if law.m == 1:
        return math.sqrt(2) * float(torch.erfinv(torch.tensor(1 - epsilon / 2)))
    return math.sqrt(-2 * math.log(epsilon / 2))


@pytest.mark.parametrize("law", APPROXIMATED, ids=lambda law: law.name)
@pytest.mark.parametrize("epsilon", [0.2, 0.1])
def test_event_A_1_has_probability_1_minus_half_of_epsilon_exactly(law, epsilon):
    model = construct(law, epsilon, Case.LEARNED)
    assert model.reach == pytest.approx(lambda_of(law, epsilon), rel=1e-12)
    eta = step_1(model.sigma, steps_in_R1(model), law.m, 20_000, 0)
    outside = int((eta.norm(dim=1) > model.reach).sum())
    assert stats.binomtest(outside, 20_000, epsilon / 2).pvalue > 1e-6  # two-sided; fails by chance with 1e-6


@pytest.mark.parametrize("law", APPROXIMATED, ids=lambda law: law.name)
def test_delta_spends_the_other_half_of_epsilon_on_inputs_up_to_lambda(law):
    model = construct(law, 0.2, Case.CONTINUED)
    inputs = math.hypot(1, lambda_of(law, 0.2))  # |x| <= 1, |eta| <= lambda
    assert sensitivity(model.net, inputs, model.delta) == pytest.approx(0.1, rel=1e-6)


def test_event_A_2_has_probability_1_minus_a_twentieth_of_epsilon_exactly():
    model = construct(HeteroscedasticGaussian(), 0.2, Case.SHEARED)
    m_gamma = model.dimensions.m_gamma
    with torch.no_grad():
        w = model.process().sample(model.steps, 4000, generator=seeded()).at(0.5)[:, :m_gamma]
    outside = int((w.norm(dim=1) > model.Lambda).sum())
    assert stats.binomtest(outside, 4000, 0.01).pvalue > 1e-6  # 40 expected; none with probability 4e-18


def test_weights_that_start_R2_anywhere_in_A_2_end_within_half_of_delta_and_some_come_close_to_that():
    model = construct(Bimodal(), 0.2, Case.SHEARED)
    result = run(model, x[:1], 1000, seeded())
    shares = result.distance[result.inside] / (model.delta / 2)
    assert 0.9 < float(shares.max()) <= 1 + 1e-9  # 1e-9: rounding of gamma, amplified by 1 / ratio


def test_one_sample_of_A_with_a_large_error_at_one_input_fails_the_certificate(monkeypatch):
    model = construct(Bimodal(), 0.2, Case.LEARNED)
    good = run(model, x, 500, seeded())
    first = int(good.inside.nonzero()[0])

    def certificates(sample):
        error = good.error.clone()
        error[sample] = 0.21
        monkeypatch.setattr(theorem42, "outcome", lambda *_: good._replace(error=error))
        return [c.holds for c in theorem42._theorem(Bimodal(), 0.2, Case.LEARNED, Family.WIDE, 0)]

    assert certificates(first) == [True, False]
    assert certificates(int((~good.inside).nonzero()[0])) == [True, True]  # outside A nothing is claimed


def worst(model, seed=0):
    """Largest error of 40 samples inside A."""
    result = run(model, x, 40, seeded(seed))
    return float(result.error[result.inside].max())


@pytest.mark.parametrize("law", APPROXIMATED, ids=lambda law: law.name)
def test_without_the_factor_4_the_error_exceeds_epsilon(law):
    assert worst(replace(construct(law, 0.2, Case.FIXED), speed=1.0)) > 0.2


@pytest.mark.parametrize("law", APPROXIMATED, ids=lambda law: law.name)
def test_without_the_reset_the_error_exceeds_epsilon(law):
    model = construct(law, 0.2, Case.FIXED)
    unreset = replace(model, cut=Cut.vertical(0, 0.5), delta=1e-3)
    result = run(unreset, x, 40, seeded())
    assert float(result.error.min()) > 0.2


@pytest.mark.parametrize("law", APPROXIMATED, ids=lambda law: law.name)
def test_with_a_delta_that_is_too_large_the_error_exceeds_epsilon(law):
    model = construct(law, 0.2, Case.CONTINUED)
    assert worst(replace(model, delta=1000 * model.delta)) > 0.2


def test_with_sigma_1_the_output_has_another_law():
    right = construct(HeteroscedasticGaussian(), 0.2, Case.LEARNED)
    wrong = replace(right, sigma=1.0)
    middle = torch.zeros(1, 1)
    distances = [levy(run(model, middle, 400, seeded()).y[:, 0, 0], right.law, 0.0) for model in (right, wrong)]
    assert distances[0] < 0.06 < 0.1 < distances[1]


def test_with_too_few_steps_for_the_linear_field_the_error_exceeds_epsilon():
    coarse = construct(Circle(), 0.2, Case.CONTINUED, steps=16)
    assert worst(coarse) > 0.2


def test_lemma_3_with_noise_on_its_extra_weights_misses_gamma():
    model = replace(construct(Bimodal(), 0.2, Case.SHEARED), cut=Cut.vertical(0, 0.5))
    assert float(run(model, x, 10, seeded()).distance.min()) > model.delta


def test_a_grid_without_three_quarters_is_rejected():
    with pytest.raises(ValueError, match="point of the grid"):
        construct(Bimodal(), 0.2, Case.LEARNED, steps=10)


def test_the_singular_sigma_of_the_paper_is_a_cut_of_the_first_weights_not_a_vertical_cut():
    d = Dimensions.of(1, 1, 1, 4)
    still = lambda t, w: 0 * w  # noqa: E731
    prior = Prior(still, (torch.arange(d.d_w) < d.m1).double())  # zero on the last m2 weights: the KL is undefined
    with pytest.raises(ValueError, match="nonzero"):
        WeightProcess(torch.zeros(d.d_w), still, prior, Cut.vertical(0, 0.5))
    process = WeightProcess(torch.zeros(d.d_w), still, prior, Cut.both(0, 0.5, range(d.m1)), allow_leak=True)
    w = process.sample(8, 5, generator=seeded()).w.detach()
    assert float(w[:, -1, : d.m1].abs().min()) > 0
    assert float(w[..., d.m1 :].abs().max()) == 0


@pytest.mark.parametrize("case", [Case.FIXED, Case.LEARNED])
def test_deep_networks_work_as_well_as_wide_ones(case):
    model = construct(HeteroscedasticGaussian(), 0.2, case, Family.DEEP)
    result = run(model, x, 20, seeded())
    assert float(result.error[result.inside].max()) <= 0.2


def test_samples_do_not_depend_on_the_batch_size():
    model = construct(Bimodal(), 0.2, Case.LEARNED)
    one, many = (run(model, x, 12, seeded(), batch=batch) for batch in (12, 5))
    torch.testing.assert_close(one.y, many.y, atol=1e-12, rtol=0)


def test_hidden_noise_is_the_integral_of_the_path():
    model = construct(Circle(), 0.2, Case.LEARNED)
    path = model.process().sample(model.steps, 6, generator=seeded(3), ode_solver="midpoint")
    n1 = steps_in_R1(model)
    by_hand = path.w[:, :n1, :2].sum(1) * (0.5 / n1)
    torch.testing.assert_close(run(model, x, 6, seeded(3)).eta, by_hand.detach(), atol=1e-12, rtol=0)


@given(st.floats(-0.3, 0.3), seeds)
def test_levy_distance_of_a_shifted_sample_is_at_most_the_shift(shift, seed):
    source = seeded(seed)
    y = Bimodal().sample(torch.zeros(4000, 1), source)[:, 0]
    assert (
        levy(y + shift, Bimodal(), 0.0) <= abs(shift) + 0.06
    )  # 0.06: Kolmogorov's critical value at 4000 samples, false alarm rate 1e-12


def test_levy_distance_to_another_law_is_large():
    y = Bimodal().sample(torch.zeros(4000, 1), seeded())[:, 0]
    assert levy(y, HeteroscedasticGaussian(), 0.0) > 0.2


def test_horizontal_cut_evidence_holds_if_the_network_reads_deterministic_weights():
    law, inputs = Bimodal(), grid(11)
    good = horizontal.sample(law, 0.2, inputs, 30, seeded())
    inside = good.eta.norm(dim=1) <= 1.645
    assert float(good.error[inside].max()) <= 0.2
    assert good.spread == 0


def test_a_network_of_noisy_weights_has_a_large_error():
    model = construct(Bimodal(), 0.2, Case.LEARNED)
    process = WeightProcess(model.process().w_t2.detach(), model.f_q, Brownian(0.5), Cut.full())
    path = process.sample(16, 30, generator=seeded())
    with torch.no_grad():
        h1 = flow(model.f_h, torch.cat([x, torch.zeros(len(x), 2)], 1), path, per_sample=False, vectorize=True)
    wanted = model.law.generator(x.expand(30, -1, -1), h1[..., 2:])
    assert float((h1[..., 1:2] - wanted).abs().amax((1, 2)).median()) > 0.2


@pytest.mark.deep
def test_all_certificates_hold():
    certificates = theorem42.certify()
    assert [c for c in certificates if not c.holds] == []
    assert len(certificates) == 70


def test_certificates_of_step_1_fail_for_half_the_horizon(monkeypatch):
    whole = theorem42.step_1
    monkeypatch.setattr(
        theorem42, "step_1", lambda sigma, n1, m, samples, seed: whole(sigma, n1, m, 500, seed) / math.sqrt(8)
    )
    assert sum(not c.holds for c in theorem42._noise(0)) >= 3
