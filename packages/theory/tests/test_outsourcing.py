"""Lemma 2: a generator has its law in every stratum of X. Negative controls: wrong generators are rejected."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from theory import laws, outsourcing
from theory.laws import APPROXIMATED, LAWS, Banana, Bimodal, Circle, Deterministic, HeteroscedasticGaussian
from theory.outsourcing import generated, joint_energy, outsourced, uniform_given

NOISY = [law for law in LAWS if law.name != "deterministic"]
INVERTIBLE = [law for law in NOISY if law.name != "circle"]
SMOOTH = [Deterministic(), *APPROXIMATED]
RARE = 1e-9  # 2,000 examples of a true statement fail by chance with probability 2e-6
seeds = st.integers(0, 2**31 - 1)
places = st.floats(-1, 1, allow_subnormal=False)
noises = st.floats(-3, 3, allow_subnormal=False)


def column(*values):
    return torch.tensor([values])


def passed(comparison):
    return comparison.statistic <= comparison.critical


def padded(eta, law):
    return torch.cat([column(eta), torch.zeros(1, law.m - 1)], 1)


@given(st.sampled_from(NOISY), seeds)
def test_generator_has_the_law_in_every_stratum_of_x(law, seed):
    x, y = generated(law, 4000, seed)
    assert passed(uniform_given(x, law.uniforms(x, y), RARE))


@given(st.sampled_from([HeteroscedasticGaussian(), Bimodal(), Banana()]), st.floats(2.5, 5), seeds)
def test_generator_with_too_much_noise_is_rejected(law, factor, seed):
    x, y = generated(law, 4000, seed, lambda x, eta: law.generator(x, factor * eta))
    assert not passed(uniform_given(x, law.uniforms(x, y), RARE))


def test_homoscedastic_generator_is_rejected_in_a_stratum_though_its_average_over_x_is_right():
    law = HeteroscedasticGaussian()
    wrong = lambda x, eta: laws.mean(x) + 0.3 * eta  # noqa: E731
    x, y = generated(law, 20_000, 0, wrong)
    assert not passed(uniform_given(x, law.uniforms(x, y)))


def test_generator_with_one_mode_is_rejected():
    x, y = generated(Bimodal(), 20_000, 0, lambda x, eta: Bimodal.centre(x) + 0.3 * eta)
    assert not passed(uniform_given(x, Bimodal().uniforms(x, y)))


@pytest.mark.parametrize("law", [Circle(), Banana()], ids=lambda law: law.name)
def test_energy_distance_accepts_the_generator_of_a_law_on_the_plane(law):
    assert passed(joint_energy(law, 0))


def angle_without_phi(x, eta):
    """A wrong generator of the circle, whose angle is eta instead of 2 pi Phi(eta) and so is not uniform."""
    angle = eta[..., :1].remainder(2 * math.pi)
    return Circle.radius(x) * torch.cat([torch.cos(angle), torch.sin(angle)], -1)


@pytest.mark.parametrize(
    ("law", "wrong"),
    [(Circle(), angle_without_phi), (Banana(), lambda x, eta: eta + 0 * x)],
    ids=["angle is eta", "no bend"],
)
def test_energy_distance_rejects_a_wrong_generator(law, wrong):
    assert not passed(joint_energy(law, 0, wrong))


def test_circle_generator_lies_on_the_circle():
    x, y = generated(Circle(), 1000, 0)
    torch.testing.assert_close(y.norm(dim=1, keepdim=True), Circle.radius(x), atol=1e-15, rtol=1e-15)


@given(st.sampled_from(INVERTIBLE), places, st.lists(noises, min_size=2, max_size=2))
def test_noise_computed_from_y_generates_y_almost_surely(law, x, eta):
    at, noise = column(x), torch.tensor([eta[: law.m]])
    y = law.generator(at, noise)
    torch.testing.assert_close(outsourced(law, at, y), noise, atol=1e-8, rtol=0)  # Phi^-1 amplifies rounding at 3
    torch.testing.assert_close(law.generator(at, outsourced(law, at, y)), y, atol=1e-8, rtol=0)


@given(places, st.floats(0.1, 3))
def test_noise_computed_with_another_law_does_not_generate_y(x, eta):
    right, wrong = HeteroscedasticGaussian(), Bimodal()
    y = right.generator(column(x), column(eta))
    back = right.generator(column(x), outsourced(wrong, column(x), y))
    mismatch = abs(float(wrong.uniforms(column(x), y) - right.uniforms(column(x), y)))
    assert float((back - y).abs()) > 0.1 * mismatch


def test_noise_is_independent_of_x_only_if_computed_with_the_right_law():
    source = torch.Generator().manual_seed(0)
    x = laws.inputs(20_000, source)
    y = Bimodal().sample(x, source)
    average = Bimodal().uniforms(torch.zeros_like(x), y)  # the law at x = 0, used for all x
    assert passed(uniform_given(x, Bimodal().uniforms(x, y)))
    assert not passed(uniform_given(x, average))


@given(st.sampled_from(SMOOTH), places, noises)
def test_slopes_are_the_derivatives_of_the_generator(law, x, eta):
    slopes = law.slopes(column(x), padded(eta, law))[0]
    torch.testing.assert_close(slopes, differences(law, x, eta), atol=1e-5, rtol=1e-5)  # h^2 = 1e-8 times f'''


def differences(law, x, eta, h=1e-4):
    f = lambda dx, de: law.generator(column(x + dx), padded(eta + de, law))[0]  # noqa: E731
    return torch.stack([(f(h, 0) - f(-h, 0)) / (2 * h), (f(0, h) - f(0, -h)) / (2 * h)], -1)


def test_slopes_of_another_law_are_rejected():
    slopes = Bimodal().slopes(column(0.5), column(0.2))[0]
    assert not torch.allclose(slopes, differences(HeteroscedasticGaussian(), 0.5, 0.2), atol=0.1)


@given(st.sampled_from(SMOOTH), places, st.floats(-2, 2), st.floats(0, 2 * math.pi))
def test_curvature_bounds_second_differences(law, x, eta, angle):
    assert (
        bend(law, column(x), padded(eta, law), angle) <= law.curvature(2.01) * (1 + 1e-3) + 1e-3
    )  # h^2 and rounding / h^2


def bend(law, x, eta, angle, h=1e-4):
    """The largest second difference of f~ at the rows of x and eta in one direction of (x, eta_1)."""
    dx, de = h * math.cos(angle), h * math.sin(angle) * torch.eye(law.m)[:1]
    f = lambda s: law.generator(x + s * dx, eta + s * de)  # noqa: E731
    return float((f(1) - 2 * f(0) + f(-1)).norm(dim=-1).max()) / h**2


@pytest.mark.parametrize("law", SMOOTH, ids=lambda law: law.name)
def test_a_fiftieth_of_the_curvature_is_not_a_bound(law):
    x, first = torch.cartesian_prod(torch.linspace(-1, 1, 21), torch.linspace(-2, 2, 41)).split(1, 1)
    eta = torch.cat([first, torch.zeros(len(first), law.m - 1)], 1)
    assert max(bend(law, x, eta, angle) for angle in (0, math.pi / 2)) > law.curvature(2.01) / 50


def test_no_continuous_generator_is_a_coin():
    """A continuous f~ with values near -1 and near 1 also takes values near 0, with positive probability."""
    steep = lambda eta: torch.tanh(50 * eta)  # noqa: E731
    eta = torch.linspace(-3, 3, 60_001)
    between = steep(eta).abs() < 0.9
    mass = float(torch.special.ndtr(eta[between].max()) - torch.special.ndtr(eta[between].min()))
    assert mass > 0.02


def test_all_certificates_hold():
    certificates = outsourcing.certify()
    assert len(certificates) == 13
    assert all(certificate.holds for certificate in certificates)


def test_certificates_fail_if_the_law_is_not_that_of_its_generator(monkeypatch):
    monkeypatch.setattr(Bimodal, "s", 0.45)
    monkeypatch.setattr(Bimodal, "sample", lambda self, x, generator: 0.6 + 0.3 * laws.normals(x, generator))
    assert not all(certificate.holds for certificate in outsourcing.certify() if "bimodal" in certificate.statement)
