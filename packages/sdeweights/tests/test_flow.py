"""Hidden states along weight paths: values, orders of convergence, shared prefixes, modules."""

import itertools
import math
import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from sdeweights import (
    Brownian,
    Cut,
    Grid,
    NonFiniteState,
    OrnsteinUhlenbeck,
    PriorPlus,
    WeightProcess,
    bottleneck,
    flatten,
    flow,
    indices,
    shared_prefix,
)
from sdeweights.brownian import draw
from sdeweights.functional import Functional
from sdeweights.hidden import SCHEMES
from sdeweights.testing import drift_for, observed_order, seeded

METHODS = [*SCHEMES, "torchdiffeq:dopri5"]
CUTS = [
    Cut.full(),
    Cut.none(),
    Cut.ode_first(0.3),
    Cut.vertical(0.3, 0.6, "fixed"),
    Cut.both(0.2, 0.7, [0, 3], "learned"),
]


def tanh_layer(t, h, w):
    """h (batch, 2), w (6,): tanh(h A + b + t)."""
    return torch.tanh(h @ w[:4].view(2, 2) + w[4:] + t)


def sampled(cut, steps=10, samples=4, **how):
    process = WeightProcess(torch.linspace(-1, 1, 6), drift_for(cut, 6), OrnsteinUhlenbeck(sigma=0.5), cut)
    return process.sample(steps, samples, generator=seeded(), **how)


H0 = torch.linspace(-1, 1, 10, dtype=torch.float64).view(5, 2)


def test_euler_with_constant_weight_is_compound_interest():
    process = WeightProcess(torch.ones(1), lambda t, w: 0 * w, Brownian(), Cut.none())
    h1 = flow(lambda t, h, w: w * h, torch.full((3, 2), 2.0), process.sample(8, samples=2))
    assert h1.shape == (2, 3, 2)
    assert h1.flatten().tolist() == pytest.approx([2 * (1 + 1 / 8) ** 8] * 12, rel=1e-14)


def test_a_residual_network_is_bit_identical_to_the_euler_flow():
    path = sampled(Cut.vertical(0.3, 0.6, "fixed"), steps=9)
    for i in range(path.samples):
        h = H0
        for k in range(9):
            delta = path.times[k + 1] - path.times[k]
            h = h + tanh_layer(path.ts[k], h, path.start(k)[i]) * delta
        assert torch.equal(flow(tanh_layer, H0, path)[i], h)


@pytest.mark.parametrize(("method", "fraction"), [("euler", 0.0), ("euler-mean", 0.5), ("euler-right", 1.0)])
@pytest.mark.parametrize("cut", [Cut.full(), Cut.vertical(0.3, 0.6, "fixed"), Cut.vertical(0.3, 0.6)], ids=str)
def test_euler_schemes_take_the_weights_at_the_left_end_the_mean_or_the_right_end(cut, method, fraction):
    path = sampled(cut, steps=9)
    for i in range(path.samples):
        h = H0
        for k in range(9):
            w = torch.lerp(path.start(k)[i], path.w[i, k + 1], fraction)
            t = torch.lerp(path.ts[k], path.ts[k + 1], fraction)
            h = h + tanh_layer(t, h, w) * (path.times[k + 1] - path.times[k])
        torch.testing.assert_close(flow(tanh_layer, H0, path, method)[i], h, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("cut", [Cut.ode_first(0.5), Cut.full(), Cut.sde_first(0.5, "fixed")], ids=str)
def test_the_noise_of_the_last_step_is_seen_by_the_mean_and_the_right_end_but_not_by_the_left(cut):
    path = sampled(cut, steps=1 if cut == Cut.full() else 2)  # one noisy step
    spread = {method: flow(tanh_layer, H0, path, method).std(0).max().item() for method in SCHEMES}
    assert spread["euler"] == 0
    assert spread["euler-mean"] > 0.01
    assert spread["euler-right"] > 0.01


@pytest.mark.parametrize("method", list(SCHEMES))
def test_order_of_hidden_schemes_along_a_smooth_path(method):
    # w_t = t exactly, h' = w h: h_1 = e^{1/2}
    process = WeightProcess(torch.zeros(1), lambda t, w: 1 + 0 * w, Brownian(), Cut.none())
    dts, errors = [], []
    for steps in (8, 16, 32, 64, 128):
        h1 = flow(lambda t, h, w: w * h, torch.ones(1, 1), process.sample(steps), method)
        dts.append(1 / steps)
        errors.append(abs(h1.item() - math.exp(0.5)))
    assert observed_order(dts, errors) == pytest.approx(SCHEMES[method].order, abs=0.1)


def test_adaptive_flow_meets_its_tolerance():
    process = WeightProcess(torch.zeros(1), lambda t, w: 1 + 0 * w, Brownian(), Cut.none())
    h1 = flow(lambda t, h, w: w * h, torch.ones(1, 1), process.sample(3), "torchdiffeq:dopri5")
    assert h1.item() == pytest.approx(math.exp(0.5), rel=1e-6)


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_shared_prefix_is_bit_identical_to_integrating_each_sample(cut, method):
    path = sampled(cut)
    alone = torch.cat([flow(tanh_layer, H0, path[i], method) for i in range(path.samples)])
    assert torch.equal(flow(tanh_layer, H0, path, method), alone)


@pytest.mark.parametrize(
    ("cut", "expected"), [(Cut.ode_first(0.3), 7 + 1 + 4 * 2), (Cut.none(), 10), (Cut.full(), 1 + 4 * 9)]
)
def test_shared_prefix_is_computed_once(cut, expected):
    # 10 Euler steps: those that start at t <= t1 have the same weights for all 4 samples
    calls = []

    def counted(t, h, w):
        calls.append(float(t))
        return tanh_layer(t, h, w)

    flow(counted, H0, sampled(cut))
    assert len(calls) == expected


@pytest.mark.parametrize("method", [*SCHEMES, "torchdiffeq:rk4"])
@pytest.mark.parametrize("cut", CUTS)
def test_continuing_from_the_shared_prefix_is_bit_identical_to_the_whole_flow(cut, method):
    path = sampled(cut)
    whole = flow(tanh_layer, H0, path, method, per_sample=False)
    for prefix in (shared_prefix(tanh_layer, H0, path, method), shared_prefix(tanh_layer, H0, path[:1], method)):
        assert torch.equal(flow(tanh_layer, prefix, path, method), whole)


@pytest.mark.parametrize(
    ("cut", "euler", "others"),
    [(Cut.ode_first(0.3), 8, 7), (Cut.none(), 10, 10), (Cut.full(), 1, 0), (Cut.ode_first(0.1), 10, 9)],
)
def test_the_shared_prefix_ends_where_the_samples_begin_to_differ(cut, euler, others):
    path = sampled(cut)
    steps = {method: shared_prefix(tanh_layer, H0, path, method).steps for method in SCHEMES}
    assert steps == {method: euler if method == "euler" else others for method in SCHEMES}
    assert shared_prefix(tanh_layer, H0, path, "reversible_heun", "adjoint").steps == others


def test_no_random_number_is_drawn_for_the_hidden_state():
    path = sampled(Cut.full())
    before = torch.get_rng_state()
    first = flow(tanh_layer, H0, path)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, flow(tanh_layer, H0, path))


@pytest.mark.parametrize("method", METHODS)
def test_reset_of_the_weights_does_not_move_the_hidden_state(method):
    # f_h = w with w = 0 until t2 = 0.5 and 3 after it: h_1 = h_0 + 1.5, with every scheme
    quiet = Brownian(1e-200)
    process = WeightProcess(
        torch.zeros(1), lambda t, w: 0 * w, quiet, Cut.sde_first(0.5, "fixed"), w_t2=torch.tensor([3.0])
    )
    h1 = flow(lambda t, h, w: w + 0 * h, torch.zeros(2, 1), process.sample(4, samples=3, generator=seeded()), method)
    assert h1.flatten().tolist() == pytest.approx([1.5] * 6, abs=1e-9)


@pytest.mark.parametrize("method", ["torchdiffeq:rk4", "torchdiffeq:heun2", "torchdiffeq:dopri5"])
def test_stages_before_a_reset_never_use_the_weights_after_it(method):
    # f_h = w with w = 0 until t2 = 0.5 and 3 after it; the last stage of the step that ends at t2 is at t2 itself
    seen = []

    def watched(t, h, w):
        seen.append((float(t), w.item()))
        return w + 0 * h

    process = WeightProcess(
        torch.zeros(1), lambda t, w: 0 * w, Brownian(1e-200), Cut.sde_first(0.5, "fixed"), w_t2=torch.tensor([3.0])
    )
    h1 = flow(watched, torch.zeros(1, 1), process.sample(4, generator=seeded()), method)
    assert h1.item() == pytest.approx(1.5, rel=1e-12)
    weights = [round(w) for _, w in seen]
    assert weights == sorted(weights)  # no stage with w = 3 is followed by one with w = 0
    assert all(t >= 0.5 for t, w in seen if w > 1)


def test_start_for_each_sample():
    path = sampled(Cut.full(), samples=4)
    starts = torch.stack([H0 + i for i in range(4)])
    expected = torch.cat([flow(tanh_layer, H0 + i, path[i]) for i in range(4)])
    assert torch.equal(flow(tanh_layer, starts, path, per_sample=True), expected)
    assert torch.equal(flow(tanh_layer, H0.expand(4, 5, 2), path, per_sample=True), flow(tanh_layer, H0, path))
    with pytest.raises(ValueError, match=r"expected h0 of shape \(4, batch, \.\.\.\), got \(5, 2\)"):
        flow(tanh_layer, H0, path, per_sample=True)
    with pytest.raises(ValueError, match=r"expected h0 of shape \(4, batch, \.\.\.\), got \(4,\)"):
        flow(tanh_layer, H0[:4, 0], path, per_sample=True)


@pytest.mark.parametrize("shape", [(4,), (4, 2), (4, 3, 2), (4, 3, 5, 2), (4, 1, 3, 5, 2)], ids=str)
def test_a_first_axis_as_long_as_the_number_of_samples_is_ambiguous_at_every_rank(shape):
    """A batch of four or one start per sample: only the caller knows, and the shape of the result shows which it is."""
    path, h0 = sampled(Cut.full(), samples=4), torch.linspace(-1, 1, math.prod(shape)).view(shape)
    f_h = lambda t, h, w: torch.tanh(w[0] * h + t)  # noqa: E731
    with pytest.raises(
        ValueError, match=f"expected per_sample=True or False for h0 of shape {re.escape(str(shape))} and 4 samples"
    ):
        flow(f_h, h0, path)
    batch = flow(f_h, h0, path, per_sample=False)
    assert batch.shape == (4, *shape)
    if len(shape) > 1:
        paired = flow(f_h, h0, path, per_sample=True)
        assert torch.equal(paired, torch.stack([batch[i, i] for i in range(4)]))  # f_h acts on each number alone
    # an h0 of any other length is a batch, and so is that of a path with one sample
    assert flow(f_h, torch.cat([h0, h0]), path).shape == (4, 8, *shape[1:])
    assert flow(f_h, h0[:1], path[:1]).shape == (1, 1, *shape[1:])


@pytest.mark.parametrize(
    ("method", "gradient"), [*itertools.product(SCHEMES, ["backprop", "checkpoint"]), ("reversible_heun", "adjoint")]
)
def test_vectorised_samples_agree_with_a_loop_over_samples(method, gradient):
    path = sampled(Cut.ode_first(0.5))
    plain = flow(tanh_layer, H0, path, method, gradient)
    together = flow(tanh_layer, H0, path, method, gradient, vectorize=True)
    assert torch.allclose(plain, together, atol=1e-13)


def test_any_module_is_a_hidden_drift_of_its_flat_weights():
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    w0, f_h = flatten(net)
    assert len(w0) == 9 + 8
    assert torch.equal(f_h(torch.tensor(0.0), H0, w0), net(H0))
    views = f_h.unflatten(w0)
    assert list(views) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert torch.equal(torch.cat([v.reshape(-1) for v in views.values()]), w0)
    assert not list(f_h.parameters())
    assert not f_h.state_dict()
    path = WeightProcess(w0, lambda t, w: 0 * w, Brownian(), Cut.none()).sample(4)
    assert torch.equal(flow(net, H0, path), flow(f_h, H0, path))
    with pytest.raises(ValueError, match=r"expected w of shape \(17,\), got \(5,\)"):
        f_h(torch.tensor(0.0), H0, torch.zeros(5))
    with pytest.raises(ValueError, match="expected a module with parameters, got Tanh without"):
        flatten(nn.Tanh())


def test_a_module_with_a_time_argument_receives_the_time():
    class Timed(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1))

        def forward(self, t, h):
            return self.scale * t + 0 * h

    w0, f_h = flatten(Timed())
    assert f_h.takes_time
    path = WeightProcess(w0, lambda t, w: 0 * w, Brownian(), Cut.none()).sample(10)
    assert flow(f_h, torch.zeros(1, 1), path, "midpoint").item() == pytest.approx(0.5, abs=1e-14)


@pytest.mark.parametrize(
    ("signature", "forward"),
    [("h, t", lambda self, h, t: h), ("t, h, w", lambda self, t, h, w: h)],
)
def test_a_module_with_unexpected_arguments_is_rejected(signature, forward):
    module = type("Other", (nn.Linear,), {"forward": forward})(2, 2)
    with pytest.raises(ValueError, match=rf"expected forward\(h\) or forward\(t, h\), got forward\({signature}\)"):
        flatten(module)


def test_frozen_parameters_are_weights_like_the_others():
    net = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).requires_grad_(False)
    w0, f_h = flatten(net)
    assert len(w0) == f_h.d == 12
    process = WeightProcess(
        w0, lambda t, w: 0 * w, Brownian(), Cut.horizontal(indices.by_name(net, "1.*")), allow_leak=True
    )
    flow(f_h, H0, process.sample(4, generator=seeded())).sum().backward()
    assert process.w0.grad.abs().min() > 0


def test_module_with_buffers_and_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(2, 2, bias=False)
            self.b = nn.Linear(2, 2, bias=False)
            self.b.weight = self.a.weight
            self.register_buffer("scale", torch.tensor(0.5))

        def forward(self, h):
            return self.scale * self.b(torch.tanh(self.a(h)))

    net = Tied()
    w0, f_h = flatten(net)
    assert len(w0) == 4
    assert torch.equal(f_h(torch.tensor(0.0), H0, w0), net(H0))
    assert torch.equal(
        f_h(torch.tensor(0.0), H0, 2 * w0), 0.5 * torch.tanh(H0 @ (2 * net.a.weight.T)) @ (2 * net.a.weight.T)
    )


class Normed(nn.Module):
    """A module with running averages."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)

    def forward(self, h):
        return self.norm(self.layer(h))


def test_running_averages_are_updated_in_the_module_that_is_called():
    net = Normed()
    w0, f_h = flatten(net)
    path = WeightProcess(w0, lambda t, w: 0 * w, Brownian(), Cut.none()).sample(4)
    flow(f_h, H0, path)  # a copy
    assert net.norm.num_batches_tracked == 0
    assert f_h.module.norm.num_batches_tracked == 4
    assert set(f_h.state_dict()) == {f"module.norm.{x}" for x in ("running_mean", "running_var", "num_batches_tracked")}
    h1 = flow(net, H0, path)  # itself
    assert net.norm.num_batches_tracked == 4
    f_h.eval()
    assert not torch.allclose(flow(f_h, H0, path), h1)
    assert torch.equal(flow(net.eval(), H0, path), flow(f_h, H0, path))


@pytest.mark.parametrize("vectorize", [False, True])
def test_dropout_draws_a_mask_per_sample_and_none_in_evaluation(vectorize):
    net = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    w0, f_h = flatten(net)
    path = WeightProcess(w0, lambda t, w: 0 * w, Brownian(), Cut.sde_first(0.5, "fixed")).sample(2, samples=3)
    path = replace(
        path, w=path.w[:1].expand(3, -1, -1), shared=-1
    )  # equal weights, so any difference comes from dropout
    torch.manual_seed(0)
    h1 = flow(f_h, torch.ones(50, 2), path, vectorize=vectorize)
    assert (h1[0] != h1[1]).any()
    f_h.eval()
    h1 = flow(f_h, torch.ones(50, 2), path, vectorize=vectorize)
    assert torch.equal(h1[0], h1[1])


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
def test_checkpoint_repeats_the_same_dropout_in_the_backward_pass(gradient):
    w0, f_h = flatten(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    process = WeightProcess(w0, lambda t, w: 0 * w, Brownian(), Cut.none())
    torch.manual_seed(0)
    h1 = flow(f_h, torch.ones(50, 2), process.sample(9), gradient=gradient)
    torch.manual_seed(0)
    plain = flow(f_h, torch.ones(50, 2), process.sample(9))
    assert torch.equal(*(torch.autograd.grad(h.sum(), process.w0)[0] for h in (h1, plain)))


def test_the_adjoint_rejects_dropout():
    w0, f_h = flatten(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    path = WeightProcess(w0, lambda t, w: 0 * w, Brownian(), Cut.none()).sample(9)
    with pytest.raises(ValueError, match='expected f_h without random numbers such as dropout for gradient="adjoint"'):
        flow(f_h, torch.ones(5, 2), path, "reversible_heun", "adjoint")
    f_h.eval()
    assert torch.isfinite(flow(f_h, torch.ones(5, 2), path, "reversible_heun", "adjoint")).all()


def test_convolution_runs_along_a_path_in_float32():
    net = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Softplus(), nn.Conv2d(4, 3, 3, padding=1)).float()
    w0, f_h = flatten(net)
    cut = Cut.ode_first(0.5)
    prior = OrnsteinUhlenbeck(sigma=0.1)
    process = WeightProcess(w0, PriorPlus(prior, bottleneck(len(w0), cut, "2-8-2").float()), prior, cut)
    h0 = torch.rand(2, 3, 8, 8, dtype=torch.float32)
    h1 = flow(f_h, h0, process.sample(6, 5, generator=seeded()))
    assert h1.shape == (5, 2, 3, 8, 8)
    assert h1.dtype == torch.float32
    assert h1.std(0).max() > 0
    vectorised = flow(f_h, h0, process.sample(6, 5, generator=seeded()), vectorize=True)
    assert torch.allclose(h1, vectorised, atol=1e-5)


def test_an_exploding_hidden_state_is_reported_with_sample_step_and_time():
    path = sampled(Cut.full())
    with pytest.raises(
        NonFiniteState,
        match=r"h became non-finite in sample 0, sde phase \(0, 1\), step 3 of 10, t=0\.3; "
        r"norm of h one step before: \d\.\d+e\+\d+, norm of w: 1\.8",
    ):
        flow(lambda t, h, w: 1e10 * h**9, H0 + 10, path)
    with pytest.raises(NonFiniteState, match=r"sample 0, ode phase \(0\.6, 1\), step 7 of 10"):
        flow(lambda t, h, w: torch.where(t > 0.59, math.inf, 0.0) + 0 * h, H0, sampled(Cut.vertical(0.3, 0.6)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda path: flow(tanh_layer, H0, path, "rk5"),
            "expected method to be one of euler, euler-mean, euler-right, midpoint, rk4, reversible_heun, torchdiffeq:METHOD, got 'rk5'",
        ),
        (
            lambda path: flow(tanh_layer, H0, path, gradient="magic"),
            "expected gradient to be one of backprop, checkpoint, adjoint, got 'magic'",
        ),
        (
            lambda path: flow(tanh_layer, H0.float(), path),
            r"expected h0 of shape \(batch, \.\.\.\), torch\.float64 on cpu like the path, got \(5, 2\), torch\.float32",
        ),
        (
            lambda path: flow(tanh_layer, H0, path, "torchdiffeq:dopri5", "adjoint"),
            'expected gradient="backprop" and vectorize=False with torchdiffeq:dopri5',
        ),
        (lambda path: flow(tanh_layer, H0, path, 4), "expected method to be one of euler, .*, got 4"),
        (
            lambda path: flow(tanh_layer, H0, path, "torchdiffeq:dopri"),
            "expected a method of torchdiffeq, one of .*dopri5.*, got 'dopri'",
        ),
        (
            lambda path: flow(tanh_layer, [[0.0, 0.0]], path),
            "expected h0 as a Tensor and path as a WeightPath, got list and WeightPath",
        ),
        (lambda path: flow(tanh_layer, H0, path.w), "expected h0 as a Tensor and path as a WeightPath, got .* Tensor"),
        (lambda path: flow(lambda t, h, w: 0.0, H0, path), r"of the shape \(5, 2\) of h, got float"),
        (
            lambda path: flow(lambda t, h, w: h[:, :1], H0, path),
            r"expected f_h\(t, h, w\) of the shape \(5, 2\) of h, got \(5, 1\)",
        ),
    ],
)
def test_bad_arguments_are_rejected_with_a_one_line_error(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call(sampled(Cut.full()))
    assert "\n" not in str(caught.value)


def test_joint_system_of_hidden_state_and_weights_gives_the_same_bits():
    """(h, w) as one equation with zero noise on h, eq. (10), solved by the same Euler-Maruyama steps."""
    cut, steps = Cut.vertical(0.3, 0.6), 10
    drift = lambda t, w: torch.sin(w) + t  # noqa: E731
    process = WeightProcess(torch.linspace(-1, 1, 6), drift, Brownian(0.5), cut)
    sde = Grid.of(cut, steps).sde
    noise = draw(1, sde.steps, 6, 0.1, generator=seeded())
    path = process.sample(steps, noise=noise)
    apart = flow(tanh_layer, H0[:1], path)[0]

    h, w = H0[:1], process.w0.detach().unsqueeze(0)
    for k in range(steps):
        t, dt = path.ts[k], path.times[k + 1] - path.times[k]
        dB = noise.dB[:, k - sde.first] if sde.first <= k < sde.last else torch.zeros(1, 6)
        h, w = h + tanh_layer(t, h, w[0]) * dt, w + drift(t, w) * dt + 0.5 * dB
    assert torch.equal(apart, h)
    assert torch.equal(path.w[:, -1], w)


@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
def test_passing_the_weights_in_parts_does_not_change_the_gradients(gradient, monkeypatch):
    taken, parts = [], Functional.parts
    monkeypatch.setattr(Functional, "parts", lambda self, w: taken.append(len(w)) or parts(self, w))
    w0, f_h = flatten(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double())
    process = WeightProcess(w0, drift_for(Cut.full(), len(w0)), OrnsteinUhlenbeck(), Cut.vertical(0.2, 0.8, "learned"))
    path = process.sample(6, samples=2, generator=seeded())
    results = []
    for f in (f_h, lambda t, h, w: f_h(t, h, w)):  # a plain function receives whole rows
        h1 = flow(f, H0, path, gradient=gradient)
        to = (path.w, process.w_t2)
        results.append((h1, *torch.autograd.grad(h1.square().sum(), to, retain_graph=True)))
    (h_parts, *g_parts), (h_rows, *g_rows) = results
    assert taken == [2 * 7]
    assert torch.equal(h_parts, h_rows)
    for mine, theirs in zip(g_parts, g_rows, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-14)
        assert mine.abs().sum() > 0


def test_the_parts_of_a_row_concatenate_to_the_row():
    module = nn.Linear(2, 3)
    _, f_h = flatten(module)
    rows = torch.arange(18.0).view(2, 9)
    for row, parts in zip(rows, f_h.parts(rows), strict=True):
        assert torch.equal(torch.cat(parts), row)
        h = torch.ones(1, 2)
        assert torch.equal(f_h(torch.zeros(()), h, parts), f_h(torch.zeros(()), h, row))
    with pytest.raises(ValueError, match=r"expected rows w of shape \(9,\), got \(8,\)"):
        f_h.parts(torch.zeros(2, 8))
