"""Weight processes with both Euler solvers: which parts are deterministic, what happens at t2, what a path stores."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from sdeweights import (
    BottleneckDrift,
    Brownian,
    Cut,
    Grid,
    NonFiniteState,
    OrnsteinUhlenbeck,
    Prior,
    PriorPlus,
    SplitDrift,
    WeightPath,
    WeightProcess,
    bottleneck,
    path_kl,
)
from sdeweights.brownian import draw
from sdeweights.testing import (
    EULERS,
    affine_posterior,
    cuts,
    drift_for,
    observed_order,
    random_posterior,
    seeded,
    vectors,
)

D = 6
PRIOR = OrnsteinUhlenbeck(sigma=0.3)


def process_for(cut, prior=PRIOR, **how):
    w0 = torch.linspace(-1, 1, D)
    return WeightProcess(w0, random_posterior(prior, cut, D), prior, cut, **how)


CUTS = [
    Cut.full(),
    Cut.none(),
    Cut.vertical(0.3, 0.6),
    Cut.vertical(0.3, 0.6, "fixed"),
    Cut.vertical(0.3, 0.6, "learned"),
    Cut.ode_first(0.1),
    Cut.sde_first(0.2),
    Cut.sde_first(0.2, "learned"),
    Cut.horizontal(0.5),
    Cut.horizontal([5, 0]),
    Cut.both(0.2, 0.7, 0.5),
    Cut.both(0.2, 0.7, [1, 4], "fixed"),
    Cut.both(0.2, 0.7, [1, 4], "learned"),
]


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize(
    ("solver", "ode_solver"), [*EULERS.values(), ("sra1", "midpoint"), ("torchsde:heun", "midpoint")]
)
def test_deterministic_weights_are_bit_identical_in_a_thousand_samples(cut, solver, ode_solver):
    with torch.no_grad():
        path = process_for(cut).sample(10, samples=1000, generator=seeded(), solver=solver, ode_solver=ode_solver)
    same = (path.w == path.w[:1]).all(0)  # (steps + 1, d)
    S = cut.indices(D)
    first, last = path.times.index(cut.t1), path.times.index(cut.t2)
    expected = torch.ones(11, D, dtype=torch.bool)
    if not cut.deterministic:
        expected[first + 1 : last + 1, S] = False
        if not cut.resets:
            expected[last:, S] = False
    assert torch.equal(same, expected)


PER_COORDINATE = OrnsteinUhlenbeck(0.7, 0.3, torch.tensor([0.2, -0.5, 1.0, 0.7, 0.3, 0.9], dtype=torch.float64))


@pytest.mark.parametrize(
    "prior", [PRIOR, PER_COORDINATE, Brownian(0.4)], ids=["OU", "sigma per coordinate", "Brownian"]
)
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_every_step_of_euler_adds_drift_and_the_noise_of_its_own_coordinate(euler, cut, prior):
    process, grid, S = process_for(cut, prior), Grid.of(cut, 10), cut.indices(D)
    noise = None
    if grid.sde is not None:
        dt = (cut.t2 - cut.t1) / grid.sde.steps
        noise = draw(3, grid.sde.steps, len(S), dt, generator=seeded())
    path = process.sample(grid, noise=noise, **euler)
    g = prior.diffusion(path.ts[0], path.w[0, 0]).expand(D)[S]
    for k in range(10):
        w, t, dt = path.start(k), path.ts[k], path.times[k + 1] - path.times[k]
        expected = w + process.drift(t, w) * dt
        if grid.sde is not None and grid.sde.first <= k < grid.sde.last:
            expected[:, S] += g * noise.dB[:, k - grid.sde.first]
        assert torch.allclose(path.w[:, k + 1], expected, rtol=1e-12, atol=1e-13)
    if noise is not None:
        assert torch.allclose(path.kl, path_kl(process.drift, prior, path, cut), rtol=1e-12)


@pytest.mark.parametrize("cut", [cut for cut in CUTS if cut.resets], ids=str)
def test_variance_vanishes_after_a_reset_and_the_state_jumps(euler, cut):
    w_t2 = torch.full((D,), 9.0)
    process = process_for(cut, w_t2=w_t2)
    with torch.no_grad():
        path = process.sample(10, samples=1000, generator=seeded(), **euler)
    S, k = cut.indices(D), path.times.index(cut.t2)
    assert path.reset == k
    assert (path.after_reset[:, S] == 9).all()
    assert (path.at(cut.t2)[:, S] == 9).all()
    assert torch.equal(path.at(cut.t2, left=True), path.w[:, k])
    assert path.w[:, k, S].var(0).min() > 0
    assert (path.w[:, k + 1 :] == path.w[:1, k + 1 :]).all()
    D_set = cut.complement(D)
    assert torch.equal(path.after_reset[:, D_set], path.w[:, k, D_set])  # the other coordinates continue


def test_a_reset_does_not_change_the_kl(euler):
    free, reset = (process_for(Cut.vertical(0.3, 0.6, policy)) for policy in ("continue", "fixed"))
    kls = [process.sample(10, 5, generator=seeded(), **euler).kl for process in (free, reset)]
    assert torch.equal(*kls)


def test_the_default_reset_value_is_the_initial_w0_and_learned_values_are_trained(euler):
    fixed, learned = process_for(Cut.vertical(0.3, 0.6, "fixed")), process_for(Cut.vertical(0.3, 0.6, "learned"))
    assert torch.equal(fixed.w_t2, fixed.w0)
    assert "w_t2" not in dict(fixed.named_parameters())
    assert "w_t2" in fixed.state_dict()
    assert "w_t2" in dict(learned.named_parameters())
    with torch.no_grad():
        fixed.w0 += 1
    assert not torch.equal(fixed.w_t2, fixed.w0)  # a copy
    learned.sample(10, generator=seeded(), **euler).w[:, -1].sum().backward()
    assert learned.w_t2.grad.abs().min() > 0
    assert learned.w0.grad.abs().max() == 0  # the end does not depend on w0


def test_a_given_value_after_t2_is_copied():
    given = torch.ones(D)
    processes = [process_for(Cut.vertical(0.3, 0.6, policy), w_t2=given) for policy in ("fixed", "learned")]
    given += 1
    assert all((process.w_t2 == 1).all() for process in processes)


def test_parameter_count_matches_the_paper():
    d, h = 10, 2 * 128 * 2 + 4 * (2 + 128 + 2)
    for cut, extra in [(Cut.ode_first(0.1), 0), (Cut.sde_first(0.1, "fixed"), 0), (Cut.sde_first(0.1, "learned"), d)]:
        process = WeightProcess(torch.zeros(d), PriorPlus(PRIOR, BottleneckDrift(d, "2-128-2")), PRIOR, cut)
        assert sum(p.numel() for p in process.parameters()) == d + (8 * d + h) + extra


def test_a_parameter_given_as_start_is_trained_itself_and_a_plain_tensor_is_copied():
    parameter = nn.Parameter(torch.zeros(3))
    assert WeightProcess(parameter, lambda t, w: -w, PRIOR, Cut.full()).w0 is parameter
    tensor = torch.zeros(3, requires_grad=True)
    WeightProcess(tensor, lambda t, w: -w, PRIOR, Cut.none()).sample(1).w.sum().backward()
    assert torch.equal(tensor.grad, torch.ones(3))  # w0 + w1 with w1 = w0 (1 - 1)
    plain = torch.zeros(3)
    process = WeightProcess(plain, lambda t, w: -w, PRIOR, Cut.full())
    assert process.w0.requires_grad
    plain += 1
    assert (process.w0 == 0).all()


def test_a_frozen_w0_stays_frozen(euler):
    frozen = nn.Parameter(torch.ones(D), requires_grad=False)
    process = process_for(Cut.sde_first(0.2, "learned"), w_t2=frozen)
    assert process.w_t2 is frozen
    process = WeightProcess(frozen, random_posterior(PRIOR, Cut.full(), D), PRIOR, Cut.full())
    assert process.w0 is frozen
    assert "w0" in process.state_dict()
    process.sample(4, generator=seeded(), **euler).w.sum().backward()
    assert frozen.grad is None


def test_numpy_integers_are_accepted():
    path = process_for(Cut.vertical(0.3, 0.6)).sample(np.int64(10), np.int32(2), generator=seeded())
    assert path.w.shape == (2, 11, D)


def test_the_same_seed_gives_the_same_bits(euler):
    process = process_for(Cut.vertical(0.3, 0.6))
    a, b = (process.sample(10, 4, generator=seeded(3), **euler) for _ in range(2))
    assert torch.equal(a.w, b.w)
    assert torch.equal(a.kl, b.kl)


def test_joint_and_separate_integration_of_a_split_drift_agree(euler):
    cut = Cut.both(0.2, 0.7, [1, 4], "fixed")
    split = process_for(cut)
    joint = WeightProcess(split.w0.detach(), lambda t, w: split.drift(t, w), PRIOR, cut, allow_leak=True)
    a, b = split.sample(10, 5, generator=seeded(), **euler), joint.sample(10, 5, generator=seeded())
    assert torch.allclose(a.w, b.w, atol=1e-13)
    assert torch.allclose(a.kl, b.kl, atol=1e-13)
    assert torch.allclose(a.after_reset, b.after_reset, atol=1e-13)


def test_order_of_the_coordinates_does_not_matter():
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    place = torch.argsort(order)
    w0 = torch.linspace(-1, 1, D)
    drift = lambda t, w: torch.sin(w) + t  # noqa: E731
    cut = Cut.horizontal([0, 1, 2])
    moved = Cut.horizontal(place[:3].tolist())
    plain = WeightProcess(w0, drift, PRIOR, cut, allow_leak=True).sample(8, 3, generator=seeded())
    noise_order = torch.argsort(place[:3])
    noise = draw(3, 8, 3, 1 / 8, generator=seeded())
    other = WeightProcess(w0[order], drift, PRIOR, moved, allow_leak=True).sample(
        8, noise=noise._replace(dB=noise.dB[..., noise_order])
    )
    assert torch.allclose(other.w[..., place], plain.w, atol=1e-14)


def test_the_jacobian_of_a_split_drift_is_exactly_zero_across_the_split():
    cut = Cut.horizontal([1, 4])
    for net in (bottleneck(D, cut, "2-8-2", generator=seeded()), drift_for(cut, D)):
        drift = PriorPlus(PRIOR, net)
        for p in drift.parameters():
            p.data += 0.3
        J = torch.autograd.functional.jacobian(lambda w, f=drift: f(torch.tensor(0.4), w), torch.linspace(-1, 1, D))
        S, rest = cut.indices(D), cut.complement(D)
        assert (J[rest][:, S] == 0).all()
        assert (J[S][:, rest] == 0).all()
        assert J[S][:, S].abs().max() > 0
        assert J[rest][:, rest].abs().max() > 0


@pytest.mark.parametrize(("hidden", "slope"), [("2-128-2", 8), ("1-32-1", 6), ("1-64-1", 6), ((3,), 10)])
def test_bottleneck_parameters_are_affine_in_the_number_of_weights(hidden, slope):
    # first layer: first * d; last layer: last * d, and bias, two gate parameters and shift for each of d
    counts = [sum(p.numel() for p in BottleneckDrift(d, hidden).parameters()) for d in (10, 110, 1010)]
    assert counts[1] - counts[0] == slope * 100
    assert counts[2] - counts[1] == slope * 900


def test_bottleneck_depends_on_time_and_starts_at_zero():
    net = BottleneckDrift(5, "2-8-2", generator=seeded())
    w = torch.ones(3, 5)
    assert (net(torch.tensor(0.5), w) == 0).all()
    net.layers[-1].weight.data.fill_(1.0)
    assert not torch.allclose(net(torch.tensor(0.1), w), net(torch.tensor(0.9), w))
    assert torch.equal(BottleneckDrift(5, "2-8-2", generator=seeded()).layers[0].weight, net.layers[0].weight)


def test_the_untrained_posterior_is_the_prior_for_every_cut(euler):
    for cut in CUTS:
        process = WeightProcess(torch.ones(D), PriorPlus(PRIOR, bottleneck(D, cut, "2-8-2")), PRIOR, cut)
        assert (process.sample(10, 3, generator=seeded(), **euler).kl == 0).all()


def test_all_cuts_without_a_reset_coincide_if_the_noise_is_zero(euler):
    quiet = OrnsteinUhlenbeck(sigma=1e-14)
    ends = []
    for cut in CUTS:
        if not cut.resets:
            process = WeightProcess(torch.ones(D), PriorPlus(quiet, bottleneck(D, cut, "2-8-2")), quiet, cut)
            ends.append(process.sample(10, 2, generator=seeded(), **euler).w[:, -1])
    for end in ends:
        assert torch.allclose(end, torch.full((2, D), 0.9**10), atol=1e-12)


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_euler_evaluates_the_drift_once_per_step(euler, cut):
    assert process_for(cut).sample(10, 3, generator=seeded(), **euler).evaluations == 10


def test_number_of_evaluations_of_other_schemes():
    process = process_for(Cut.vertical(0.3, 0.6))  # 3 + 3 + 4 steps
    assert process.sample(10, ode_solver="rk4").evaluations == 4 * 3 + 3 + 4 * 4
    assert process.sample(10, solver="sra1", ode_solver="midpoint").evaluations == 2 * 3 + 2 * 3 + 2 * 4


def test_path_is_linear_between_grid_points():
    path = process_for(Cut.full()).sample(4, 2, generator=seeded())
    assert torch.allclose(path.at(0.375), (path.w[:, 1] + path.w[:, 2]) / 2, atol=1e-15)
    assert torch.equal(path.at(torch.tensor(0.5)), path.w[:, 2])
    assert torch.equal(path.at(1), path.w[:, 4])
    assert torch.equal(path.at(0), path.w[:, 0])
    with pytest.raises(ValueError, match=r"expected 0\.0 <= t <= 1\.0, got 1\.5"):
        path.at(1.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("t2", [0.7, 0.3, 2 / 3])  # 0.7 is smaller, 0.3 and 2/3 are larger in float32
def test_at_of_a_time_in_ts_returns_the_grid_point_for_every_dtype(t2, dtype):
    cut = Cut.sde_first(t2, "fixed")
    process = WeightProcess(torch.ones(2, dtype=dtype), lambda t, w: 1 - w, Brownian(), cut)
    path = process.sample(10, 3, generator=seeded())
    k = path.reset
    for t in (path.ts[k], path.ts[k].item(), t2):
        assert (path.at(t) == 1).all()  # the right limit
        assert torch.equal(path.at(t, left=True), path.w[:, k])
    assert (path.w[:, k] != 1).all()
    for k, t in enumerate(path.ts):
        assert torch.equal(path.at(t, left=True), path.w[:, k])
    assert path.ts[-1].item() == 1


def test_path_lists_its_phases():
    path = process_for(Cut.vertical(0.3, 0.6)).sample(10, 2, generator=seeded())
    assert [(p.kind, p.start, p.stop, p.steps) for p in path[0].phases] == [
        ("ode", 0.0, 0.3, 3),
        ("sde", 0.3, 0.6, 3),
        ("ode", 0.6, 1.0, 4),
    ]


def test_a_pickled_path_keeps_its_numbers_but_not_its_noise(euler):
    with torch.no_grad():
        path = process_for(Cut.vertical(0.3, 0.6, "fixed")).sample(10, 2, generator=seeded(), **euler)
    for other in (pickle.loads(pickle.dumps(path)), copy.deepcopy(path)):
        assert torch.equal(other.w, path.w)
        assert torch.equal(other.at(0.6), path.at(0.6))
        with pytest.raises(ValueError, match="expected a path sampled by a WeightProcess, got one without its noise"):
            other.kl_stl  # noqa: B018


def test_indexing_a_path_gives_a_path(euler):
    process = process_for(Cut.vertical(0.3, 0.6, "learned"))
    path = process.sample(10, 4, generator=seeded(), **euler)
    one = path[2]
    assert torch.equal(one.w, path.w[2:3])
    assert torch.equal(one.after_reset, path.after_reset[2:3])
    assert torch.equal(one.kl_stl, path.kl_stl[2:3])
    assert torch.equal(path[-1].w, path[3].w)
    assert torch.equal(path[1:3].kl, path.kl[1:3])
    with pytest.raises(IndexError, match="expected a sample below 4, got 4"):
        path[4]


def test_a_path_built_by_hand_has_a_kl():
    ts = torch.tensor([0.0, 0.3, 0.6, 1.0], dtype=torch.float32)
    path = WeightPath(ts, torch.zeros(2, 4, 1, dtype=torch.float32), torch.zeros(2, dtype=torch.float32))
    kl = path_kl(lambda t, w: w + 1, Brownian(0.5), path, Cut.vertical(0.3, 0.6))
    assert kl.tolist() == pytest.approx([0.5 * 4 * 0.3] * 2, rel=1e-6)
    with pytest.raises(ValueError, match="expected a path sampled by a WeightProcess"):
        path.kl_stl  # noqa: B018
    with pytest.raises(ValueError, match=r"expected ts \(n,\), w \(samples, n, d\) and kl \(samples,\), got"):
        WeightPath(ts, torch.zeros(2, 3, 1), torch.zeros(2))


@pytest.mark.parametrize(("solver", "ode_solver"), [("sra1", "rk4"), *EULERS.values()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
)
def test_dtype_and_device_come_from_w0(dtype, device, solver, ode_solver):
    for cut in CUTS:
        drift = PriorPlus(OrnsteinUhlenbeck(sigma=0.1), bottleneck(D, cut, "2-8-2")).to(dtype=dtype, device=device)
        process = WeightProcess(torch.ones(D, dtype=dtype, device=device), drift, drift.prior, cut)
        generator = torch.Generator(device).manual_seed(0)
        path = process.sample(10, 2, generator=generator, solver=solver, ode_solver=ode_solver)
        for tensor in (path.ts, path.w, path.kl, path.kl_stl):
            assert tensor.dtype == dtype
            assert tensor.device.type == device
        assert path.ts[0] == 0
        assert path.ts[-1] == 1


def test_process_moves_between_dtypes(euler):
    process = process_for(Cut.both(0.2, 0.7, [1, 4], "learned")).to(torch.float32)
    path = process.sample(10, 2, generator=seeded(), **euler)
    assert path.w.dtype == path.kl.dtype == torch.float32
    start = torch.zeros(D, requires_grad=True)  # moved even though it is not a parameter
    process = WeightProcess(start, random_posterior(PRIOR, Cut.full(), D), PRIOR, Cut.full()).to(torch.float32)
    process.sample(10, generator=seeded(), **euler).w.sum().backward()
    assert process.w0.dtype == torch.float32
    assert start.grad.abs().min() > 0


def test_sigma_is_unchanged_after_a_move_to_float32_and_back():
    prior = OrnsteinUhlenbeck(sigma=0.1)
    process = WeightProcess(torch.zeros(D), drift_for(Cut.full(), D), prior, Cut.full()).float().double()
    assert prior.diffusion(torch.tensor(0.0), process.w0).item() == 0.1


@pytest.mark.parametrize("cut", [cut for cut in CUTS if not cut.deterministic], ids=str)
def test_saved_loaded_and_copied_processes_give_the_same_bits(euler, cut):
    def fresh():
        return WeightProcess(torch.zeros(D), PriorPlus(PRIOR, bottleneck(D, cut, "2-4-2")), PRIOR, cut)

    process = fresh()
    with torch.no_grad():
        for i, p in enumerate([*process.parameters(), *process.buffers()]):
            if p.is_floating_point():
                p += 0.1 * torch.randn(p.shape, generator=seeded(i))
    loaded = fresh()
    loaded.load_state_dict(process.state_dict(), strict=True)
    assert not set(process.state_dict()) & {"S", "D"}  # computed from the cut
    pickled = pickle.loads(pickle.dumps(process))
    for other in (loaded, copy.deepcopy(process), pickled):
        paths = [p.sample(10, 3, generator=seeded(), **euler) for p in (process, other)]
        assert torch.equal(paths[0].w, paths[1].w)
        assert torch.equal(paths[0].kl, paths[1].kl)
    assert pickled.drift.prior is pickled.prior


@given(cut=cuts(D), w0=vectors(D), steps=st.integers(3, 20), seed=st.integers(0, 1000))
def test_any_cut_gives_a_path_from_w0_at_0_to_1_with_a_nonnegative_kl(euler, cut, w0, steps, seed):
    process = WeightProcess(w0, random_posterior(PRIOR, cut, D, seed), PRIOR, cut)
    path = process.sample(steps, 2, generator=seeded(seed), **euler)
    assert path.w.shape == (2, steps + 1, D)
    assert (path.w[:, 0] == w0).all()
    assert path.ts[0] == 0
    assert path.ts[-1] == 1
    assert (path.kl == 0).all() if cut.deterministic else (path.kl > 0).all()
    assert path.gaussians == 2 * len(cut.indices(D)) * sum(
        p.steps for p in Grid.of(cut, steps).phases if p.kind == "sde"
    )


@given(cut=cuts(D), steps=st.integers(4, 12), seed=st.integers(0, 100))
def test_with_constant_drift_the_end_depends_only_on_the_sum_of_the_noise(euler, cut, steps, seed):
    """w(1) = 1 + 0.5 (B(t2) - B(t1)) on S and 1 on D, on every grid."""
    assume(not cut.deterministic and not cut.resets)
    fine, S = Grid.of(cut, steps).refine(2), cut.indices(D)
    prior = Brownian(0.5)
    process = WeightProcess(torch.zeros(D), affine_posterior(prior, cut, D, constant=1.0), prior, cut)
    dt = (fine.sde.stop - fine.sde.start) / fine.sde.steps
    noise = draw(2, fine.sde.steps, len(S), dt, generator=seeded(seed))
    expected = torch.ones(2, D).index_add(-1, S, 0.5 * noise.dB.sum(1))
    for grid, increments in ((fine, noise), (Grid.of(cut, steps), noise.coarsen(2))):
        path = process.sample(grid, noise=increments, **euler)
        assert torch.allclose(path.w[:, -1], expected, rtol=0, atol=1e-12)


def test_an_exploding_state_is_reported_with_phase_step_time_and_norm():
    prior = Prior(lambda t, w: 0 * w, 1e-3)
    process = WeightProcess(torch.tensor([1.0]), lambda t, w: w**9 * 10, prior, Cut.vertical(0.3, 0.6))
    with pytest.raises(
        NonFiniteState,
        match=r"w became non-finite in the sde phase \(0\.3, 0\.6\), step \d of 10, t=0\.\d; norm of w one step before: ",
    ):
        process.sample(10, generator=seeded())
    with pytest.raises(
        NonFiniteState,
        match=r"in the ode phase \(0, 1\): torchdiffeq:dopri5 gave up in step 1 of 10, between t=0 and t=0\.1 "
        r"\(underflow in dt .*norm of the state at the start: 2",
    ):
        WeightProcess(torch.tensor([2.0]), lambda t, w: w**3 * 10, prior, Cut.none()).sample(
            10, ode_solver="torchdiffeq:dopri5"
        )


def test_an_exploding_state_is_not_mistaken_for_a_vanishing_diffusion():
    prior = Prior(lambda t, w: 0 * w, lambda t, w: 1 / (1 + w**4))  # 0 once w^4 overflows
    process = WeightProcess(torch.tensor([50.0]), lambda t, w: w**9, prior, Cut.full())
    with pytest.raises(NonFiniteState, match=r"w became non-finite in the sde phase \(0, 1\), step \d of 20"):
        process.sample(20, generator=seeded())


def test_finite_weights_whose_sum_overflows_are_not_an_error():
    process = WeightProcess(torch.full((4,), 1e308), lambda t, w: 0 * w, Brownian(), Cut.full())
    assert torch.isfinite(process.sample(4, generator=seeded()).w).all()


def test_an_overflowing_kl_is_an_error():
    process = WeightProcess(torch.tensor([1.0]), lambda t, w: 1e200 + 0 * w, Brownian(1.0), Cut.full())
    with pytest.raises(NonFiniteState, match="the KL is not finite though w is; largest norm of w: 1e"):
        process.sample(10, generator=seeded())


def test_brownian_paths_are_hoelder_continuous_of_order_one_half():
    process = WeightProcess(torch.zeros(1), lambda t, w: 0 * w, Brownian(), Cut.full())
    with torch.no_grad():
        w = process.sample(1024, 200, generator=seeded()).w[..., 0]
    lags = [1, 4, 16, 64]
    spread = [(w[:, lag:] - w[:, :-lag]).square().mean().sqrt().item() for lag in lags]
    assert observed_order([lag / 1024 for lag in lags], spread) == pytest.approx(0.5, abs=0.03)
    assert math.isclose(spread[0], (1 / 1024) ** 0.5, rel_tol=0.02)


def test_split_drift_rejects_repeated_or_out_of_range_indices():
    with pytest.raises(ValueError, match="expected distinct indices, got one more than once"):
        SplitDrift(lambda t, w: w, lambda t, w: w, [0, 0], 2)
    with pytest.raises(ValueError, match="expected indices from 0 to 1, got 0 to 2"):
        SplitDrift(lambda t, w: w, lambda t, w: w, [0, 2], 2)


def test_the_grid_of_another_cut_is_rejected():
    with pytest.raises(
        ValueError,
        match=r"expected a grid with the phases \[\('sde', 0\.0, 1\.0\)\] of the cut, got \[\('ode', 0\.0, 0\.9\)",
    ):
        process_for(Cut.full()).sample(Grid.of(Cut.ode_first(0.1), 10))


@pytest.mark.parametrize("stochastic", [1.0, (0,)])
def test_a_path_sampled_without_gradients_has_none_after_a_learned_reset(euler, stochastic):
    cut = Cut.both(0.2, 0.5, stochastic, at_t2="learned")
    process = WeightProcess(torch.zeros(2), random_posterior(PRIOR, cut, 2), PRIOR, cut)
    with torch.no_grad():
        path = process.sample(10, 2, generator=seeded(), **euler)
    assert not path.after_reset.requires_grad
    assert process.sample(10, 2, generator=seeded(), **euler).after_reset.requires_grad
