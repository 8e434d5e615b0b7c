"""Lemmas 3 and 4: with extra dimensions, differential equations realise homeomorphisms and networks."""

import math

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from theory import ode_nets
from theory.ode_nets import (
    Homeomorphism,
    affine,
    capped,
    carried,
    cubic,
    half_turn,
    hyperbolic,
    lemma3_error,
    orientation_gap,
    shears,
)

seeds = st.integers(0, 2**31 - 1)


@st.composite
def affine_maps(draw):
    """(A, b) with A invertible, of either orientation; its inverse is at most 20, which keeps rounding small."""
    p = draw(st.integers(1, 3))
    entries = st.lists(st.floats(-3, 3, allow_subnormal=False), min_size=p, max_size=p)
    A = torch.tensor([draw(entries) for _ in range(p)])
    assume(float(torch.linalg.svdvals(A).min()) > 0.05)
    return A, torch.tensor(draw(entries))


def points(p, n=50):
    return torch.randn(n, p, generator=torch.Generator().manual_seed(0))


def random_network(seed, d_in=2, d_out=3):
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(d_in, 8), nn.Tanh(), nn.Linear(8, d_out))
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return net.requires_grad_(False)


@given(affine_maps())
def test_every_affine_map_is_realised_in_2p_dimensions(map_):
    A, b = map_
    assert lemma3_error(affine(A, b), points(len(b))) < 1e-6


@given(affine_maps())
def test_an_affine_map_with_a_wrong_inverse_is_not_realised(map_):
    A, b = map_
    h = affine(A, b)
    wrong = Homeomorphism(h.p, h.forward, affine(A, b + 1).inverse)
    assert lemma3_error(wrong, points(len(b))) > 1e-2 / float(torch.linalg.matrix_norm(A, 2) + 1)


@given(affine_maps())
def test_shears_preserve_volume_for_maps_of_either_orientation(map_):
    A, b = map_
    p = len(b)
    z = torch.zeros(2 * p)
    whole = lambda z: carried(shears(affine(A, b)), z[None], 0)[0]  # noqa: E731
    basis = torch.stack([whole(z + e) - whole(z) for e in torch.eye(2 * p)], 1)
    assert float(torch.linalg.det(basis)) == pytest.approx(1, abs=1e-5)  # products of 6 entries up to 200


def test_the_map_itself_may_reverse_orientation_which_no_flow_in_p_dimensions_does():
    assert float(torch.linalg.det(torch.diag(torch.tensor([-1.0, 1.0])))) == -1


@given(st.floats(-2, 2).filter(lambda slope: abs(slope) > 0.1), st.floats(-2, 2))
def test_every_monotone_map_of_the_line_is_realised_in_two_dimensions(slope, shift):
    x = torch.linspace(-2, 2, 101)[:, None]
    assert lemma3_error(hyperbolic(slope, shift), x) < 1e-6
    assert lemma3_error(hyperbolic(slope, shift), x, steps=16, method="midpoint") < 1e-6


def test_a_homeomorphism_that_is_not_a_diffeomorphism_is_realised_too():
    assert lemma3_error(cubic(), torch.linspace(-2, 2, 101)[:, None]) < 1e-6


def test_a_scheme_that_evaluates_the_end_of_a_step_reads_the_next_shear_and_fails():
    assert lemma3_error(hyperbolic(-2, 1), torch.linspace(-1, 1, 11)[:, None], steps=16, method="rk4") > 0.01


@given(st.floats(-20, 20), st.floats(-20, 20), st.floats(-5, 5), st.floats(0, 6))
def test_every_flow_on_the_line_misses_the_reflection_by_at_least_one(a, b, c, frequency):
    field = lambda t, h, w: a * torch.tanh(h) + b * torch.sin(frequency * t + h) + c  # noqa: E731
    assert orientation_gap(field) >= 1 - 1e-9  # rounding of 64 steps


@given(st.integers(1, 4))
def test_the_reflection_is_one_linear_field_in_2p_dimensions(p):
    x = points(p) / 4
    wanted = torch.cat([-x, torch.zeros_like(x)], 1)
    torch.testing.assert_close(carried(half_turn, x, p, 64, "rk4"), wanted, atol=1e-6, rtol=0)


def test_a_coarse_euler_step_on_the_line_is_not_a_flow_and_does_reflect():
    """x' = -2 x in one step: x -> -x. The claim is about flows; with dt * Lip = 2 this is not one."""
    x = torch.linspace(-1, 1, 11)[:, None]
    torch.testing.assert_close(carried(lambda t, h, w: -2 * h, x, 0, 1), -x)


@given(seeds, st.sampled_from([0.0, 0.25, 0.5, 0.75]), st.sampled_from([4, 8, 16]))
def test_a_network_is_realised_by_time_one_from_any_start(seed, start, steps):
    F, x = random_network(seed), points(2)
    torch.testing.assert_close(carried(capped(F, 2, start), x, 3, steps)[:, 2:], F(x), atol=1e-12, rtol=1e-12)


@given(seeds, st.sampled_from([0.25, 0.5, 0.75]))
def test_without_its_factor_a_late_network_is_scaled_down(seed, start):
    F, x = random_network(seed), points(2)

    def late(t, z, w):
        return capped(F, 2)(t, z, w) if t >= start else torch.zeros_like(z)

    out = carried(late, x, 3, 16)[:, 2:]
    torch.testing.assert_close(out, (1 - start) * F(x), atol=1e-12, rtol=1e-12)
    assert float((out - F(x)).abs().max()) > 1e-3


def test_the_papers_field_on_the_last_quarter_gives_a_quarter_of_the_network():
    F, x = random_network(0), points(2)
    unscaled = lambda t, z, w: capped(F, 2, 0.75)(t, z, w) / 4  # noqa: E731
    torch.testing.assert_close(carried(unscaled, x, 3, 16)[:, 2:], F(x) / 4, atol=1e-12, rtol=1e-12)


def test_maps_that_are_not_homeomorphisms_are_rejected():
    with pytest.raises(ValueError, match="invertible"):
        affine(torch.zeros(2, 2), torch.zeros(2))
    with pytest.raises(ValueError, match="constant"):
        hyperbolic(0, 1)


def test_all_certificates_hold():
    certificates = ode_nets.certify()
    assert len(certificates) == 9
    assert all(certificate.holds for certificate in certificates)


def test_certificates_fail_with_two_shears_out_of_three(monkeypatch):
    whole = ode_nets.shears
    monkeypatch.setattr(ode_nets, "shears", lambda h: lambda t, z, w: whole(h)(t, z, w) * (t < 0.75))
    failed = [c for c in ode_nets.certify() if not c.holds]
    assert len(failed) == 5
    assert all(math.isfinite(c.measured) for c in failed)
