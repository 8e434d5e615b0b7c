"""Brownian increments and their time integrals: moments, coarsening, and which numbers are drawn."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from sdeweights import Brownian, Cut, OrnsteinUhlenbeck, PriorPlus, WeightProcess, bottleneck
from sdeweights.brownian import draw
from sdeweights.testing import random_posterior, seeded


class CountNormals(TorchDispatchMode):
    """Counts the random numbers that torch draws, by intercepting its operations."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if any(word in func.name() for word in ("normal", "rand", "uniform", "bernoulli", "exponential")):
            self.count += out.numel()
        return out


def test_moments_of_increments_and_time_integrals():
    dt, n = 0.1, 200_000
    noise = draw(n, 1, 1, dt, noises=2, generator=seeded())
    dB, Z = noise.dB[:, 0, 0], noise.Z[:, 0, 0]
    # Each sample moment has a relative standard error of at most sqrt(2 / n) = 0.32 %. The tolerance is 5 of these,
    # which each moment exceeds by chance with probability 1e-6.
    assert dB.var() == pytest.approx(dt, rel=0.016)
    assert Z.var() == pytest.approx(dt**3 / 3, rel=0.016)
    assert (dB * Z).mean() == pytest.approx(dt**2 / 2, rel=0.02)
    assert abs(dB.mean()) < 5 * (dt / n) ** 0.5


def test_coarse_integrals_belong_to_the_same_brownian_motion():
    # Two steps of length 1: B rises by 2, then by 5. The first rise contributes to Z during the whole second step.
    noise = draw(1, 2, 1, 1.0, noises=2, generator=seeded())._replace(
        dB=torch.tensor([[[2.0], [5.0]]]), Z=torch.tensor([[[0.7], [1.1]]])
    )
    coarse = noise.coarsen(2)
    assert coarse.dt == 2
    assert coarse.dB.item() == 7
    assert coarse.Z.item() == pytest.approx(0.7 + 1.1 + 1.0 * 2.0, abs=1e-15)


def test_coarsening_by_four_equals_coarsening_by_two_twice():
    noise = draw(3, 8, 2, 0.125, noises=2, generator=seeded())
    once, twice = noise.coarsen(4), noise.coarsen(2).coarsen(2)
    assert torch.allclose(once.dB, twice.dB, rtol=0, atol=1e-15)
    assert torch.allclose(once.Z, twice.Z, rtol=0, atol=1e-15)
    with pytest.raises(ValueError, match="expected factor to divide the 8 steps, got 3"):
        noise.coarsen(3)


def test_coarse_time_integrals_keep_their_variance():
    n = 100_000
    coarse = draw(n, 4, 1, 0.25, noises=2, generator=seeded()).coarsen(4)
    assert coarse.Z.var().item() == pytest.approx(1 / 3, rel=5 * (2 / n) ** 0.5)  # 5 standard errors
    assert (coarse.Z * coarse.dB).mean().item() == pytest.approx(1 / 2, rel=0.03)


@pytest.mark.parametrize(
    ("cut", "steps", "noisy_steps", "noisy_weights"),
    [
        (Cut.full(), 10, 10, 6),
        (Cut.none(), 10, 0, 0),
        (Cut.ode_first(0.1), 30, 3, 6),
        (Cut.vertical(0.3, 0.6, "fixed"), 10, 3, 6),
        (Cut.horizontal(0.5), 10, 10, 3),
        (Cut.both(0.2, 0.7, [1, 5]), 10, 5, 2),
    ],
)
@pytest.mark.parametrize(
    ("solver", "noises"), [("euler", 1), ("fused-euler", 1), ("heun", 1), ("sra1", 2), ("torchsde:srk", 2)]
)
def test_normals_are_drawn_only_for_stochastic_coordinates_and_steps(
    cut, steps, noisy_steps, noisy_weights, solver, noises
):
    prior = OrnsteinUhlenbeck()
    process = WeightProcess(torch.zeros(6), PriorPlus(prior, bottleneck(6, cut, "2-4-2")), prior, cut)
    with CountNormals() as normals:
        path = process.sample(steps, samples=7, generator=seeded(), solver=solver)
    assert normals.count == path.gaussians == noises * noisy_weights * noisy_steps * 7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [1, 5, 16, 37])
def test_sample_i_depends_only_on_the_seed_and_i(euler, d, dtype):
    prior, cut = OrnsteinUhlenbeck(), Cut.full()
    untrained, trained = PriorPlus(prior, bottleneck(d, cut, "2-4-2")), random_posterior(prior, cut, d)

    def sample(samples, generator, drift=untrained):
        process = WeightProcess(torch.zeros(d, dtype=dtype), drift.to(dtype), prior, cut)
        return process.sample(5, samples, generator=generator, **euler).w

    few, many = sample(3, seeded(7)), sample(50, seeded(7))
    assert torch.equal(few, many[:3])
    generator = seeded(7)
    assert torch.equal(torch.cat([sample(10, generator) for _ in range(5)]), many)
    assert not torch.equal(sample(3, seeded(8)), few)
    assert len(many.flatten(1).unique(dim=0)) == 50
    # with a different number of rows, the matrix products of a trained net may sum in a different order
    few, many = (sample(n, seeded(7), trained) for n in (3, 50))
    torch.testing.assert_close(few, many[:3])


def test_sample_uses_the_noise_it_is_given(euler):
    prior, cut = Brownian(torch.tensor([2.0, 0.5])), Cut.vertical(0.5, 1)
    process = WeightProcess(torch.zeros(2), PriorPlus(prior, bottleneck(2, cut, "2-4-2")), prior, cut)
    noise = draw(4, 5, 2, 0.1, generator=seeded())
    path = process.sample(10, noise=noise, **euler)
    assert torch.allclose(path.w[:, -1], torch.tensor([2.0, 0.5]) * noise.dB.sum(1), atol=1e-15)
    with pytest.raises(
        ValueError, match=r"expected noise of shape \(samples, 10, 2\) with dt=0\.05, got \(4, 5, 2\) with dt=0\.1"
    ):
        process.sample(20, noise=noise)
