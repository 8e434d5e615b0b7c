"""A module of stochastic depth: values, KL and gradients against loops, seeds, saved states, frozen paths, other networks."""

import copy
import io
import math
import pickle
import re
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sdeweights import (
    Brownian,
    Cut,
    FrozenDepth,
    GaussianStart,
    Grid,
    LogNormal,
    OrnsteinUhlenbeck,
    Positive,
    PriorPlus,
    StochasticDepth,
    WeightProcess,
    bottleneck,
    flatten,
    flow,
    path_kl,
)
from sdeweights.hidden import SCHEMES
from sdeweights.testing import affine_posterior, random_posterior, seeded

D = 3
CUTS = [
    Cut.full(),
    Cut.none(),
    Cut.ode_first(0.3),
    Cut.vertical(0.3, 0.6, "learned"),
    Cut.vertical(0.3, 0.6, "fixed"),
    Cut.both(0.2, 0.7, 0.4),
]
PRIOR = OrnsteinUhlenbeck(theta=0.7, mu=0.1, sigma=0.3)
SLOW_RULE = "ignore:There is a performance drop:UserWarning"  # torch loops over an operator that it cannot vectorise


def mlp(d=D, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(d, 5), nn.Tanh(), nn.Linear(5, d))


def inputs(n=6, d=D):
    return torch.linspace(-1, 1, n * d).view(n, d)


def trained_drift(net, cut, prior=PRIOR):
    """f_p plus a network that is not zero, so the KL is not zero either."""
    return random_posterior(prior, cut, len(flatten(net)[0]), hidden="2-3").to(torch.get_default_dtype())


def layer_of(net=None, cut=CUTS[2], prior=PRIOR, **how):
    net = mlp() if net is None else net
    if "drift" not in how:
        how["drift"] = trained_drift(net, cut, prior)
    return StochasticDepth(net, cut=cut, prior=prior, **{"steps": 6} | how)


@pytest.mark.parametrize("loop", [True, False])
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_output_kl_and_gradients_equal_those_of_sample_and_flow(cut, loop):
    net, x = mlp(), inputs()
    layer = layer_of(net, cut, samples=4, loop=loop)
    loss = layer(x, generator=seeded(1)).square().mean() + layer.kl / 10
    found = torch.autograd.grad(loss, list(layer.parameters()), materialize_grads=True)

    w0, f_h = flatten(net)
    process = WeightProcess(w0, trained_drift(net, cut), PRIOR, cut)
    path = process.sample(6, 4, generator=seeded(1))
    ends = torch.cat([flow(f_h, x, path[i], "euler-mean") for i in range(4)])
    kl = sum(path[i].kl.sum() for i in range(4)) / 4
    wanted = torch.autograd.grad(ends.square().mean() + kl / 10, list(process.parameters()), materialize_grads=True)
    assert len(found) == len(wanted) > 5
    torch.testing.assert_close(layer.kl, kl, rtol=1e-14, atol=0)
    for mine, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-11, atol=1e-13)  # sums in another order
    assert found[0].abs().min() > 0  # w0


def test_output_is_an_euler_loop_over_the_layers_of_a_residual_network():
    net, x = mlp(), inputs()
    layer = layer_of(net, samples=2)
    y = layer(x, generator=seeded(2))
    names = [name for name, _ in net.named_parameters()]
    for i in range(2):
        h = x
        for k in range(6):
            dt = layer.path.times[k + 1] - layer.path.times[k]
            w = (layer.path.w[i, k] + layer.path.w[i, k + 1]) / 2
            parts = torch.split(w, [p.numel() for p in net.parameters()])
            weights = {n: part.view(p.shape) for n, part, p in zip(names, parts, net.parameters(), strict=True)}
            h = h + torch.func.functional_call(net, weights, (h,)) * dt
        torch.testing.assert_close(y[i], h, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_kl_is_the_mean_path_kl_of_the_samples(cut):
    layer = layer_of(cut=cut, samples=5, seed=0)
    layer(inputs())
    process = layer.process
    each = path_kl(process.drift, process.prior, layer.path, cut)
    assert each.shape == (5,)
    assert layer.kl.item() == pytest.approx(each.mean().item(), rel=1e-12, abs=1e-15)
    assert (layer.kl > 0) == (cut != Cut.none())


@pytest.mark.parametrize("samples", [None, 1, 4])
@pytest.mark.parametrize(("cut", "length"), [(Cut.full(), 1.0), (Cut.ode_first(0.25), 0.25), (Cut.none(), 0.0)])
def test_kl_of_a_constant_gap_is_one_half_of_its_square_over_sigma_times_the_length_of_the_window(cut, length, samples):
    net, prior = mlp(), Brownian(0.5)
    d = len(flatten(net)[0])
    layer = layer_of(net, cut, prior, drift=affine_posterior(prior, cut, d, constant=0.2), samples=samples, steps=8)
    layer(inputs())
    assert layer.kl.item() == pytest.approx(0.5 * d * (0.2 / 0.5) ** 2 * length, rel=1e-12)


def test_the_default_drift_is_the_prior_drift_plus_a_network_that_is_zero_initially():
    net = mlp()
    layer = StochasticDepth(net, cut=Cut.full(), prior=PRIOR, steps=6, hidden="2-4", samples=3, seed=0)
    w0, f_h = flatten(net)
    path = WeightProcess(w0, PRIOR.drift, PRIOR, Cut.full()).sample(6, 3, generator=seeded(0))
    torch.testing.assert_close(layer(inputs()), flow(f_h, inputs(), path, "euler-mean", per_sample=False))
    assert layer.kl == 0
    assert isinstance(layer.process.drift, PriorPlus)
    assert sum(p.numel() for p in layer.process.drift.parameters()) == sum(
        p.numel() for p in bottleneck(len(w0), Cut.full(), "2-4").parameters()
    )


class Constant(nn.Module):
    """dh/dt = w."""

    def __init__(self, d):
        super().__init__()
        self.w = nn.Parameter(torch.linspace(-1, 1, d))

    def forward(self, h):
        return self.w + 0 * h


def test_law_of_the_weights_and_of_the_output_is_that_of_ornstein_uhlenbeck():
    """2,000 paths of 10 independent weights: s.e. of a mean 0.0045 at most, of a standard deviation 0.5 %.

    Euler with 200 steps adds 0.3 % to the standard deviations. Bounds of five s.e.: a chance of 1e-6 per number.
    """
    theta, mu, sigma, d = 1.5, 0.4, 0.8, 10
    prior = OrnsteinUhlenbeck(theta, mu, sigma)
    layer = StochasticDepth(Constant(d), cut=Cut.full(), prior=prior, steps=200, samples=2000, seed=0, hidden="1")
    with torch.no_grad():
        integral = layer(torch.zeros(1, d)).squeeze(1)  # int w dt
    e, w0 = math.exp(-theta), torch.linspace(-1, 1, d)
    sd = sigma * math.sqrt((1 - e**2) / (2 * theta))
    spread = layer.path.w[:, -1] - (mu + (w0 - mu) * e)
    assert spread.mean().item() == pytest.approx(0, abs=0.02)
    assert spread.std().item() == pytest.approx(sd, rel=0.03)
    sd = sigma / theta * math.sqrt(1 - 2 * (1 - e) / theta + (1 - e**2) / (2 * theta))
    spread = integral - (mu + (w0 - mu) * (1 - e) / theta)
    assert spread.mean().item() == pytest.approx(0, abs=0.02)
    assert spread.std().item() == pytest.approx(sd, rel=0.03)


def test_samples_are_independent():
    """The noise of 4,000 weights in two samples: a correlation above 0.08 has a chance of 4e-7."""
    layer = StochasticDepth(Constant(4000), cut=Cut.full(), prior=Brownian(), steps=2, samples=3, seed=0, hidden="1")
    with torch.no_grad():
        y = layer(torch.zeros(1, 4000)).squeeze(1)
    correlations = torch.corrcoef(y - torch.linspace(-1, 1, 4000))
    assert (correlations - torch.eye(3)).abs().max() < 0.08


@pytest.mark.parametrize(("gradient", "exact"), [("checkpoint", True), ("adjoint", False)])
def test_gradient_modes_agree_with_backprop(gradient, exact):
    results = []
    for mode in ("backprop", gradient):
        layer = layer_of(samples=3, seed=0, gradient=mode, method="reversible_heun", loop=True)
        loss = layer(inputs()).square().mean() + layer.kl
        results.append(torch.autograd.grad(loss, list(layer.parameters()), materialize_grads=True))
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0 if exact else 1e-11, atol=0 if exact else 1e-13)


def test_the_adjoint_selects_the_reversible_scheme():
    assert layer_of(gradient="adjoint").method == "reversible_heun"
    assert layer_of().method == "euler-mean"


@pytest.mark.parametrize(("d_in", "d_out"), [(2, 2), (7, 3), (1, 10)])
def test_encoder_depth_head_in_five_lines_trains(d_in, d_out):
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    x = torch.randn(128, d_in)
    y = (torch.sin(3 * x[:, 0]) * d_out / 2 + d_out / 2).long().clamp(0, d_out - 1)

    f_h = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16))
    depth = StochasticDepth(f_h, cut=Cut.ode_first(0.3), prior=OrnsteinUhlenbeck(sigma=0.2), steps=6, seed=0)
    net = nn.Sequential(nn.Linear(d_in, 16), depth, nn.Linear(16, d_out))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        losses.append(F.cross_entropy(net(x), y) + depth.kl / len(x))
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert sum(losses[-5:]) / 5 < 0.6 * losses[0]
    assert depth.kl > 0

    depth.samples = 8
    with torch.no_grad():
        probs = net(x).softmax(-1)
    assert probs.shape == (8, 128, d_out)
    assert probs.std(0).max() > 0


def test_output_shape_is_that_of_the_input_or_has_a_sample_axis():
    x = inputs()
    for samples, shape in ((None, (6, D)), (1, (1, 6, D)), (4, (4, 6, D)), (6, (6, 6, D))):
        assert layer_of(samples=samples)(x).shape == shape
    layer = layer_of(samples=4, seed=0)
    four = layer(x)
    layer.samples = None
    torch.testing.assert_close(layer.manual_seed(0)(x), four[0], rtol=1e-13, atol=1e-13)
    assert layer_of()(torch.zeros(2, 5, D)).shape == (2, 5, D)


@pytest.mark.parametrize("loop", [True, False])
def test_layers_with_a_sample_axis_follow_each_other_with_per_sample(loop):
    first = layer_of(samples=3, seed=1, loop=loop)
    second = layer_of(mlp(seed=1), samples=3, seed=2, per_sample=True, loop=loop)
    y = nn.Sequential(first, nn.Tanh(), second)(inputs())
    assert y.shape == (3, 6, D)
    between = torch.tanh(first.manual_seed(1)(inputs()))
    path = second.path
    alone = [flow(second.f_h, between[i], path[i], "euler-mean")[0] for i in range(3)]
    torch.testing.assert_close(y, torch.stack(alone), rtol=1e-12, atol=1e-13)
    assert torch.equal(second.frozen(3, seeded(5))(between), second(between, generator=seeded(5))) or not loop
    with pytest.raises(ValueError, match=r"expected h0 of shape \(3, batch, \.\.\.\), got \(6, 3\)"):
        second(inputs())
    with pytest.raises(ValueError, match=r"expected inputs of shape \(3, N, \.\.\.\), got \(6, 3\)"):
        second.frozen(3)(inputs())
    with pytest.raises(ValueError, match="expected samples to be an integer with per_sample=True, got None"):
        second.samples = None


def test_a_layer_called_twice_draws_two_paths_unless_it_gets_one():
    layer, x = layer_of(seed=0), inputs()
    h = layer(x)
    first = layer.path
    layer(h)
    assert not torch.equal(first.w, layer.path.w)
    assert layer.kl == layer.path.kl.mean() != first.kl.mean()  # that of the last call
    path = layer.draw(seeded(3))
    y = layer(layer(x, path=path), path=path)
    assert layer.path is path
    expected = flow(layer.f_h, flow(layer.f_h, x, path, "euler-mean")[0], path, "euler-mean")[0]
    assert torch.equal(y, expected)


def test_gradients_reach_what_comes_before_the_layer():
    x = inputs().requires_grad_()
    layer_of(samples=2, seed=0)(x).sum().backward()
    assert x.grad.abs().min() > 0


class Gru(nn.Module):
    """dh/dt = GRU(h, h) - h."""

    def __init__(self, d, **how):
        super().__init__()
        self.cell = nn.GRUCell(d, d, **how)

    def forward(self, h):
        return self.cell(h, h) - h


def torchvision_models():
    """torchvision.models; if its compiled library does not fit this torch, the operators that it misses are declared."""
    try:
        import torchvision
    except ImportError:
        pytest.skip("needs torchvision")
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torchvision_models.library = library  # a schema lives as long as its library
        import torchvision
    return torchvision.models


def resnet_stage(norm_layer=lambda channels: nn.GroupNorm(4, channels)):
    """The first stage of ResNet-18, two basic blocks, with a sixth of its channels."""
    models = torchvision_models()
    block = models.resnet.BasicBlock
    assert isinstance(models.resnet18(norm_layer=norm_layer).layer1[0], block)
    return nn.Sequential(*(block(8, 8, norm_layer=norm_layer) for _ in range(2)))


def whole_resnet_stage():
    return torchvision_models().resnet18(norm_layer=lambda channels: nn.GroupNorm(8, channels)).layer1


ARCHITECTURES = {
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (4, 5, 8)),
    "mlp": (lambda: mlp(4), (5, 4)),
    "gru": (lambda: Gru(4), (5, 4)),
    "resnet": (resnet_stage, (2, 8, 6, 6)),
}


@pytest.mark.filterwarnings(SLOW_RULE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_goes_forward_and_backward_looped_and_vectorised(name, dtype):
    torch.set_default_dtype(dtype)
    torch.manual_seed(0)
    make, shape = ARCHITECTURES[name]
    net, x = make(), torch.randn(shape)
    results = []
    for loop in (True, False):
        layer = layer_of(net, Cut.ode_first(0.5), OrnsteinUhlenbeck(sigma=0.1), steps=4, samples=3, seed=0, loop=loop)
        y = layer(x)
        assert y.shape == (3, *shape)
        assert y.dtype == layer.kl.dtype == dtype
        assert y.std(0).max() > 0
        grads = torch.autograd.grad(y.square().mean(), list(layer.parameters()), retain_graph=True)
        assert all(torch.isfinite(g).all() for g in grads)
        assert (grads[0] != 0).double().mean() > 0.9  # attention does not depend on the bias of its keys
        assert all(g.abs().max() > 0 for g in grads)
        assert all(g.abs().max() > 0 for g in torch.autograd.grad(layer.kl, list(layer.process.drift.parameters())))
        results.append((y, *grads))
    tolerance = 1e-5 if dtype == torch.float32 else 1e-13  # rounding of other kernels, relative to the largest number
    for looped, vectorised in zip(*results, strict=True):
        assert (looped - vectorised).abs().max() < tolerance * looped.abs().max()


@pytest.mark.filterwarnings(SLOW_RULE)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_architecture_evaluates_without_gradients(name):
    make, shape = ARCHITECTURES[name]
    torch.manual_seed(0)
    layer = StochasticDepth(make(), cut=Cut.full(), prior=OrnsteinUhlenbeck(sigma=0.1), steps=3, samples=2, seed=0)
    x = torch.randn(shape)
    with_graph = layer(x)
    layer.eval()
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            torch.testing.assert_close(layer.manual_seed(0)(x), with_graph, rtol=1e-10, atol=1e-10)
            assert not layer.kl.requires_grad


def test_a_whole_stage_of_resnet18_is_a_layer():
    torch.set_default_dtype(torch.float32)
    stage = whole_resnet_stage()
    layer = StochasticDepth(stage, cut=Cut.ode_first(0.5), prior=OrnsteinUhlenbeck(sigma=0.05), steps=2, seed=0)
    x = torch.randn(2, 64, 8, 8)
    y = layer(x)
    assert y.shape == x.shape
    y.mean().backward()
    assert layer.process.w0.grad.abs().max() > 0
    assert layer.process.d == sum(p.numel() for p in stage.parameters()) == 147_968


def test_a_module_that_vmap_cannot_vectorise_is_rejected_unless_looped():
    class Sequences(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(4, 4, batch_first=True)

        def forward(self, h):
            return self.gru(h)[0] - h

    x = torch.randn(2, 5, 4)
    with pytest.raises(
        ValueError, match="expected f_h to be a module that torch.vmap can vectorise, got Sequences; pass loop=True"
    ):
        layer_of(Sequences(), samples=3)(x)
    layer = layer_of(Sequences(), samples=3, loop=True)
    layer(x).sum().backward()
    assert layer.process.w0.grad.abs().min() > 0
    assert layer_of(Sequences())(x).shape == x.shape  # one path needs no vmap


class Timed(nn.Module):
    """dh/dt = w t."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))

    def forward(self, t, h=None):
        return self.w * t + 0 * (0 if h is None else h)


def test_time_is_passed_only_on_request():
    h1 = layer_of(Timed(), Cut.none(), drift=lambda t, w: 0 * w, takes_time=True)(torch.zeros(2, 1))
    assert h1.tolist() == [[pytest.approx(0.5)]] * 2  # int t dt, exact for euler-mean
    layer = layer_of(Timed(), Cut.none(), drift=lambda t, w: 0 * w)  # forward(h) by its signature too
    assert layer(torch.ones(2, 1)).tolist() == [[pytest.approx((1 + 1 / 6) ** 6)]] * 2
    with pytest.raises(ValueError, match=r"expected forward\(t, h\) with takes_time=True, got forward\(input\)"):
        layer_of(nn.Linear(2, 2), takes_time=True)
    both = type("Both", (nn.Linear,), {"forward": lambda self, t, h: h})(2, 2)
    with pytest.raises(ValueError, match=r"expected forward\(h\) with takes_time=False, got forward\(t, h\)"):
        layer_of(both)


@pytest.mark.parametrize("loop", [True, False])
def test_equal_seeds_give_equal_bytes(loop):
    net, x = mlp(), inputs()
    a, b = (layer_of(net, samples=3, seed=7, loop=loop) for _ in range(2))
    first, second = a(x), a(x)
    assert torch.equal(first, b(x))
    assert torch.equal(second, b(x))
    assert not torch.equal(first, second)
    assert torch.equal(a.manual_seed(7)(x), first)
    assert torch.equal(a(x, generator=seeded(7)), first)
    assert not torch.equal(a.manual_seed(8)(x), first)


def test_without_a_seed_the_noise_is_that_of_the_global_generator():
    layer, x = layer_of(samples=2), inputs()
    assert layer.generator is None
    torch.manual_seed(3)
    first = layer(x)
    assert not torch.equal(layer(x), first)
    torch.manual_seed(3)
    assert torch.equal(layer(x), first)


def test_a_seeded_layer_leaves_the_global_generator_alone():
    layer = layer_of(samples=2, seed=0)
    before = torch.get_rng_state()
    layer(inputs())
    layer.frozen(4)
    assert torch.equal(torch.get_rng_state(), before)


def test_sample_i_does_not_depend_on_the_number_of_samples():
    two, five = (layer_of(samples=samples, seed=0, loop=True)(inputs()) for samples in (2, 5))
    torch.testing.assert_close(two, five[:2], rtol=0, atol=1e-14)  # matrix products of other sizes round differently


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_training_and_evaluation_both_draw(mode):
    layer = getattr(layer_of(samples=2, seed=0), mode)()
    y = layer(inputs())
    assert (y[0] != y[1]).any()


@pytest.mark.parametrize("samples", [None, 3])
def test_without_noise_every_sample_is_the_mean(samples):
    prior = OrnsteinUhlenbeck(2.0, 0.5, 1.0)
    layer = StochasticDepth(Constant(4), cut=Cut.full(), prior=prior, steps=400, samples=samples, hidden="1")
    layer.noise = False
    y = layer(torch.zeros(2, 4))
    assert y.shape == ((2, 4) if samples is None else (3, 2, 4))
    integral = 0.5 + (torch.linspace(-1, 1, 4) - 0.5) * (1 - math.exp(-2)) / 2
    torch.testing.assert_close(y, integral.expand_as(y), rtol=0, atol=3e-3)  # dt
    assert torch.equal(layer(torch.zeros(2, 4)), y)
    layer.noise = True
    assert not torch.equal(layer(torch.zeros(2, 4)), y)


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_the_mean_path_has_zero_increments(cut):
    layer = layer_of(cut=cut)
    path = layer.mean_path()
    assert path.samples == 1
    layer.noise = False
    layer.samples = 3
    y = layer(inputs())
    assert torch.equal(y, flow(layer.f_h, inputs(), path, "euler-mean").expand(3, -1, -1))
    assert layer.kl.item() == pytest.approx(path.kl.item(), rel=1e-14)
    if not cut.resets:
        w, drift = layer.process.w0, layer.process.drift
        for k in range(6):
            w = w + drift(path.ts[k], w) * (path.times[k + 1] - path.times[k])
        torch.testing.assert_close(path.w[0, -1], w, rtol=1e-12, atol=1e-12)


def test_the_mean_path_of_a_scheme_with_two_normals_per_step():
    layer = layer_of(solver="sra1")
    assert torch.isfinite(layer(inputs(), path=layer.mean_path())).all()


def test_kl_before_the_first_forward_pass_is_an_error():
    layer = layer_of()
    for read in (lambda: layer.kl, lambda: layer.path):
        with pytest.raises(RuntimeError, match="expected a forward pass before kl or path is read"):
            read()


def test_copies_and_pickles_have_the_same_weights_and_generator_but_no_kl():
    layer, x = layer_of(samples=2, seed=0), inputs()
    layer(x)
    copies = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))]
    expected = layer(x)
    for other in copies:
        with pytest.raises(RuntimeError, match="expected a forward pass"):
            _ = other.kl
        assert torch.equal(other(x), expected)
        assert torch.equal(other.kl, layer.kl)
        with torch.no_grad():
            other.process.w0.zero_()
    assert layer.process.w0.abs().min() > 0


def test_the_layer_is_a_copy_of_the_module():
    net = mlp()
    layer, x = layer_of(net, seed=0), inputs()
    before = layer(x)
    with torch.no_grad():
        net[0].weight.zero_()
    assert torch.equal(layer.manual_seed(0)(x), before)
    assert len(list(layer.f_h.parameters())) == 0


def test_the_layer_moves_to_another_dtype():
    torch.set_default_dtype(torch.float32)
    prior = OrnsteinUhlenbeck(sigma=torch.full((38,), 0.3))
    net = mlp()
    layer = StochasticDepth(net, cut=Cut.ode_first(0.3), prior=prior, steps=6, samples=3, seed=0)
    x = inputs()
    single = layer(x)
    assert single.dtype == layer.kl.dtype == torch.float32
    assert layer.double()(x.double()).dtype == layer.kl.dtype == torch.float64
    with pytest.raises(ValueError, match=r"torch\.float64 on cpu like the path, got \(6, 3\), torch\.float32"):
        layer(x)
    # the same Brownian motion cannot be drawn in another dtype, but the mean path can be computed
    layer.noise = False
    precise = layer(x.double())
    torch.testing.assert_close(layer.float()(x).double(), precise, rtol=1e-5, atol=1e-6)


def test_the_generator_restarts_on_another_device():
    layer = layer_of(seed=0)
    layer.generator.manual_seed(99)
    assert layer.generator.initial_seed() == 99  # unchanged on the same device
    layer._generator = type("Elsewhere", (), {"device": torch.device("meta")})()
    assert layer.generator.device == layer.process.w0.device
    assert layer.generator.initial_seed() == 0


def test_a_trainable_sigma_gets_a_gradient():
    sigma = nn.Parameter(torch.tensor(0.3))
    layer = layer_of(prior=OrnsteinUhlenbeck(sigma=sigma), samples=2, seed=0)
    (layer(inputs()).square().mean() + layer.kl).backward()
    assert sigma.grad != 0
    assert any(p is sigma for p in layer.parameters())


def saved(module):
    """A state that went through a file."""
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def test_a_saved_state_restores_the_outputs():
    layer, x = layer_of(seed=0, samples=2), inputs()
    other = layer_of(mlp(seed=5), drift=random_posterior(PRIOR, CUTS[2], 38, seed=9), seed=0, samples=2)
    assert not torch.equal(other(x), layer(x))
    other.load_state_dict(saved(layer))
    assert torch.equal(other.manual_seed(0)(x), layer.manual_seed(0)(x))
    assert torch.equal(other.kl, layer.kl)


def test_a_saved_state_describes_cut_prior_and_steps():
    state = saved(nn.Sequential(nn.Linear(2, D), layer_of()))["1._extra_state"]
    assert state["cut"] == "Cut(t1=0.7, t2=1.0, stochastic=1.0, at_t2='continue')"
    assert state["prior"] == "OrnsteinUhlenbeck(theta=0.7, mu=0.1, sigma=0.3)"
    assert state["steps"] == 6
    layer_of(steps=12).load_state_dict(layer_of(steps=6).state_dict())  # weights are continuous in depth


def fixed(*values):
    return OrnsteinUhlenbeck(sigma=torch.tensor(values).repeat(19))


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (
            {"cut": Cut.ode_first(0.4)},
            "(t1=0.7, t2=1.0, stochastic=1.0, at_t2='continue'), got Cut(t1=0.6, t2=1.0, stochastic=1.0, at_t2='continue')",
        ),
        (
            {"prior": OrnsteinUhlenbeck(theta=0.7, mu=0.1, sigma=0.31)},
            "with OrnsteinUhlenbeck(theta=0.7, mu=0.1, sigma=0.3), got OrnsteinUhlenbeck(theta=0.7, mu=0.1, sigma=0.31)",
        ),
        ({"prior": Brownian(0.3)}, "got Brownian(sigma=0.3)"),
        ({"prior": fixed(0.3, 0.4)}, "got OrnsteinUhlenbeck(theta=1, mu=0, sigma=<38 values, "),
        (
            {"cut": Cut.both(0.7, 1.0, range(30)), "prior": Brownian(0.3)},
            "got Cut(t1=0.7, t2=1.0, stochastic=<30 indices, ",
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else ", ".join(value),
)
def test_the_state_of_another_cut_or_prior_is_rejected_and_both_are_named(theirs, message):
    layer = layer_of()
    net = nn.Sequential(nn.Linear(2, D), layer)
    before = copy.deepcopy(layer.state_dict())
    other = nn.Sequential(nn.Linear(2, D), layer_of(mlp(seed=4), **{"cut": CUTS[2], "prior": PRIOR} | theirs))
    for strict in (True, False):
        with pytest.raises(ValueError, match=re.escape(message)) as caught:
            net.load_state_dict(saved(other), strict=strict)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 300
    after = layer.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items() if isinstance(value, torch.Tensor))


def test_fixed_tensors_of_a_prior_are_compared_by_value():
    state = layer_of(prior=fixed(0.3, 0.4)).state_dict()
    layer_of(prior=fixed(0.3, 0.4)).load_state_dict(state)
    layer_of(prior=fixed(0.3, 0.4)).float().load_state_dict(state)  # the dtype does not matter
    with pytest.raises(ValueError, match="values, .* got .* values, "):
        layer_of(prior=fixed(0.3, 0.5)).load_state_dict(state)


def test_a_trained_sigma_is_loaded_and_not_compared():
    layers = [layer_of(prior=OrnsteinUhlenbeck(sigma=nn.Parameter(torch.tensor(s)))) for s in (0.3, 0.5)]
    layers[0].load_state_dict(layers[1].state_dict())
    assert layers[0].process.prior._diffusion.value == 0.5


START = GaussianStart(0.2, prior_mean=0.1, prior_std=0.5)
FLEXIBLE = OrnsteinUhlenbeck(LogNormal(0.7, 0.3), 0.1, Positive(0.3))


@pytest.mark.parametrize("loop", [True, False])
@pytest.mark.parametrize("method", SCHEMES)
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_a_random_start_and_random_coefficients_give_outputs_of_sample_and_flow(cut, method, loop):
    net, x = mlp(), inputs()
    layer = layer_of(net, cut, FLEXIBLE, samples=4, loop=loop, start=START, method=method)
    y = layer(x, generator=seeded(1))
    process = WeightProcess(flatten(net)[0], layer.process.drift, FLEXIBLE, cut, start=START)
    path = process.sample(6, 4, generator=seeded(1))
    f_h = flatten(net)[1]
    wanted = torch.cat([flow(f_h, x, path[i], method) for i in range(4)])
    torch.testing.assert_close(y, wanted, rtol=1e-11, atol=1e-12)  # a sample alone and all at once
    torch.testing.assert_close(layer.kl, path.kl.mean(), rtol=1e-12, atol=0)
    torch.testing.assert_close(layer.frozen(4, seeded(1))(x), wanted, rtol=1e-11, atol=1e-12)
    assert len(y[:, 0, 0].unique()) == 4


def test_the_kl_of_a_layer_includes_that_of_its_start_once():
    net = mlp()
    layer = StochasticDepth(net, cut=Cut.full(), prior=PRIOR, steps=4, samples=3, start=START)  # f_q = f_p
    layer(inputs())
    w0 = flatten(net)[0]
    q, p = torch.distributions.Normal(w0, 0.2), torch.distributions.Normal(0.1, 0.5)
    expected = torch.distributions.kl_divergence(q, p).sum().item()
    assert layer.kl.item() == pytest.approx(expected, rel=1e-12)
    layer.noise = False
    layer(inputs())
    assert layer.kl.item() == pytest.approx(expected, rel=1e-12)
    assert torch.equal(layer.path.w[:, 0], w0.expand(3, -1))


def test_training_changes_start_theta_and_sigma():
    prior = OrnsteinUhlenbeck(LogNormal(0.7, 0.3), 0.1, Positive(0.3))
    layer = layer_of(prior=prior, samples=2, seed=0, start=START)
    before = {name: p.detach().clone() for name, p in layer.named_parameters() if ".net." not in name}
    assert len(before) == 5  # w0, its standard deviation, two of theta, one of sigma
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    (layer(inputs()).square().mean() + layer.kl / 10).backward()
    optimizer.step()
    assert all((layer.get_parameter(name) != value).all() for name, value in before.items())


def test_a_saved_state_with_a_random_start_is_restored_and_compared():
    layers = [layer_of(mlp(seed=s), prior=FLEXIBLE, seed=0, samples=2, start=START) for s in (0, 3)]
    layers[1].load_state_dict(saved(layers[0]))
    assert torch.equal(layers[0](inputs()), layers[1](inputs()))
    start = "GaussianStart(prior_mean=0.1, prior_std=0.5)"
    assert saved(layers[0])["_extra_state"]["start"] == start
    others = {
        "a fixed w_0, got " + start: layer_of(prior=FLEXIBLE),
        "GaussianStart(prior_mean=0, prior_std=0.5), got " + start: layer_of(
            prior=FLEXIBLE, start=GaussianStart(0.2, 0.0, 0.5)
        ),
        "theta=LogNormal(median=0.7, spread=0.4)": layer_of(
            prior=OrnsteinUhlenbeck(LogNormal(0.7, 0.4), 0.1, Positive(0.3)), start=START
        ),
    }
    for message, other in others.items():
        with pytest.raises(ValueError, match=re.escape(message)):
            other.load_state_dict(saved(layers[0]))
    with pytest.raises(ValueError, match=re.escape(f"{start}, got a fixed w_0")):
        layers[0].load_state_dict(saved(layer_of(prior=FLEXIBLE)))


def test_the_state_of_a_layer_with_a_fixed_start_has_the_keys_it_always_had():
    assert list(layer_of().get_extra_state()) == ["cut", "prior", "steps", "method"]


def test_a_module_that_changes_the_shape_is_rejected_with_a_reason():
    for samples in (None, 2):
        with pytest.raises(
            ValueError,
            match=r"of the shape \(6, 3\) of h, got \(6, 5\): f_h is dh/dt, so layers that change the shape belong before",
        ):
            layer_of(nn.Linear(3, 5), samples=samples)(inputs())
    with pytest.raises(ValueError, match=r"of the shape \(2, 4, 6, 6\) of h, got \(2, 4, 3, 3\): f_h is dh/dt"):
        layer_of(nn.Conv2d(4, 4, 3, stride=2, padding=1))(torch.zeros(2, 4, 6, 6))
    with pytest.raises(ValueError, match=r"of the shape \(2, 4, 3\) of h, got tuple"):
        layer_of(nn.GRU(3, 3))(torch.zeros(2, 4, 3))


def norm_net(norm):
    return nn.Sequential(nn.Linear(D, D), norm)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: norm_net(nn.BatchNorm1d(D)), "without running statistics, got BatchNorm1d at '1'.*use GroupNorm"),
        (lambda: nn.BatchNorm1d(D), "without running statistics, got BatchNorm1d: they"),
        (lambda: norm_net(nn.InstanceNorm1d(D, track_running_stats=True)), "running statistics, got InstanceNorm1d"),
        (lambda: resnet_stage(nn.BatchNorm2d), "without running statistics, got BatchNorm2d at '0.bn1'"),
        (lambda: norm_net(nn.Dropout(0.2)), r"expected f_h without dropout, got p=0\.2 in Dropout at '1'.*pass p=0"),
        (lambda: norm_net(nn.AlphaDropout()), "expected f_h without dropout, got p=0.5 in AlphaDropout"),
        (lambda: nn.TransformerEncoderLayer(4, 2), "without dropout, got p=0.1 in MultiheadAttention at 'self_attn'"),
        (lambda: nn.GRU(3, 3, 2, dropout=0.3), "expected f_h without dropout, got p=0.3 in GRU"),
    ],
)  # fmt: skip
def test_dropout_and_running_statistics_are_rejected_by_name(make, message):
    for mode in (True, False):
        with pytest.raises(ValueError, match=message):
            layer_of(make().train(mode), drift=lambda t, w: -w)


@pytest.mark.parametrize("loop", [True, False])
def test_batch_norm_without_running_statistics_and_dropout_of_zero_are_accepted(loop):
    net = nn.Sequential(nn.Linear(D, D), nn.BatchNorm1d(D, track_running_stats=False), nn.Dropout(0.0))
    layer, x = layer_of(net, samples=2, seed=0, loop=loop), inputs()
    y = layer(x)
    assert torch.equal(layer.eval().manual_seed(0)(x), y)


def test_functional_dropout_is_found_when_it_draws():
    net = type(
        "Dropping", (nn.Linear,), {"forward": lambda self, h: F.dropout(F.linear(h, self.weight), 0.5, self.training)}
    )
    for samples in (None, 2):
        layer = layer_of(net(D, D), samples=samples, seed=0)
        with pytest.raises(ValueError, match="expected f_h without random numbers, got one that draws them"):
            layer(inputs())
        layer.eval()(inputs())


def test_a_module_that_changes_its_buffers_is_rejected():
    class Counting(nn.Linear):
        def __init__(self):
            super().__init__(D, D)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, h):
            self.calls += 1
            return super().forward(h)

    with pytest.raises(ValueError, match="expected f_h to keep its buffers, got a new value of 'module.calls'"):
        layer_of(Counting())(inputs())


def test_constant_buffers_are_kept_and_moved():
    class Scaled(nn.Linear):
        def __init__(self):
            super().__init__(D, D)
            self.register_buffer("scale", torch.tensor(0.5))

        def forward(self, h):
            return self.scale * super().forward(h)

    layer = layer_of(Scaled(), samples=2)
    assert layer.state_dict()["f_h.module.scale"] == 0.5
    layer(inputs())
    assert layer.frozen(2).float()(inputs().float()).dtype == torch.float32
    assert layer.f_h.module.scale.dtype == torch.float64  # the frozen module has its own
    assert layer.float()(inputs().float()).dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layer_of(lambda h: h, drift=None), "expected f_h to be an nn.Module, got function"),
        (lambda: layer_of(layer_of(), drift=None), "expected f_h without a StochasticDepth inside"),
        (lambda: layer_of(nn.Tanh(), drift=None), "expected a module with parameters, got Tanh"),
        (lambda: StochasticDepth(mlp(), cut="full", prior=PRIOR), "expected cut to be a Cut, got str"),
        (lambda: StochasticDepth(mlp(), cut=Cut.full(), prior=0.1), "expected prior to be a Prior, got float"),
        (lambda: layer_of(samples=0), "expected samples to be an integer >= 1, got 0"),
        (lambda: layer_of(samples=2.0), "expected samples to be an integer >= 1, got 2.0"),
        (lambda: layer_of(per_sample=True), "expected samples to be an integer with per_sample=True, got None"),
        (lambda: layer_of().frozen(0), "expected samples to be an integer >= 1, got 0"),
        (lambda: layer_of(steps=1), "expected at least 2 steps"),
        (lambda: layer_of(steps=Grid.of(Cut.full(), 4)), "expected a grid with the phases"),
        (lambda: layer_of(method="rk5"), "expected method to be one of euler, .*, got 'rk5'"),
        (lambda: layer_of(gradient="magic"), "expected gradient to be one of backprop, checkpoint, adjoint, got 'magic'"),
        (lambda: layer_of(gradient="adjoint", method="rk4"), 'expected method="reversible_heun" with gradient="adjoint"'),
        (lambda: layer_of(solver="magic"), "got 'magic'"),
        (lambda: layer_of(cut=Cut.ode_first(0.1), method="euler"), "expected noise that affects h, got 'euler' and one"),
        (lambda: layer_of(cut=Cut.vertical(0.3, 0.4, "fixed"), method="euler"), "expected noise that affects h"),
        (lambda: layer_of(cut=Cut.horizontal(0.5), drift=lambda t, w: -w), "allow_leak=True"),
        (lambda: layer_of(seed=0)(inputs(), generator=seeded(), path=layer_of().draw()), "a generator or a path, got both"),
        (lambda: layer_of()(inputs(), path=layer_of(samples=2).draw()), "samples=1 of 38 weights, got 2 of 38"),
        (lambda: layer_of()(inputs(), path=3), "expected a WeightPath with samples=1 of 38 weights, got int"),
        (lambda: layer_of()([1.0]), "expected h0 as a Tensor"),
    ],
)  # fmt: skip
def test_bad_arguments_are_rejected_with_a_one_line_error(call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_leak_is_accepted_on_request():
    layer_of(cut=Cut.horizontal(0.5), drift=lambda t, w: -w, allow_leak=True)(inputs())


def test_other_errors_of_a_vectorised_module_are_passed_on():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        layer_of(mlp(4), samples=2)(inputs(d=3))


@pytest.mark.parametrize("method", list(SCHEMES))
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_frozen_outputs_equal_those_of_the_layer_with_the_same_generator(cut, method):
    x = inputs()
    layer = layer_of(cut=cut, samples=4, method=method, loop=True)
    frozen = layer.frozen(samples=4, generator=seeded(3))
    y = layer(x, generator=seeded(3))
    assert isinstance(frozen, FrozenDepth)
    assert torch.equal(frozen(x), y)
    assert torch.equal(frozen(x), frozen(x))
    layer.loop = False
    torch.testing.assert_close(frozen(x), layer(x, generator=seeded(3)), rtol=1e-12, atol=1e-13)


def test_a_frozen_module_has_buffers_only_and_does_not_follow_the_layer():
    layer, x = layer_of(seed=0, samples=2, loop=True), inputs()
    frozen = layer.frozen(samples=8, generator=seeded(1))
    before = frozen(x)
    assert before.shape == (8, 6, D)
    assert not list(frozen.parameters())
    assert not before.requires_grad
    assert all(not b.requires_grad for b in frozen.buffers())
    assert torch.equal(layer.manual_seed(0)(x), layer.frozen(2, seeded(0))(x))
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(1)
    assert torch.equal(frozen(x), before)
    other = layer.frozen(samples=8, generator=seeded(2))
    other.load_state_dict(saved(frozen))
    assert torch.equal(other(x), before)
    assert torch.equal(copy.deepcopy(frozen)(x), before)
    assert frozen.float()(x.float()).dtype == torch.float32


@pytest.mark.parametrize(("method", "expected"), [("euler", 8 + 3 * 2), ("euler-mean", 7 + 3 * 3)])
def test_a_frozen_module_computes_the_steps_that_samples_share_once(method, expected):
    frozen = layer_of(steps=10, method=method).frozen(samples=3)  # 7 of 10 steps are deterministic
    calls = []
    frozen.f_h.register_forward_hook(lambda *_: calls.append(1))
    frozen(inputs())
    assert len(calls) == expected


def test_a_frozen_layer_without_noise_is_the_mean():
    layer = layer_of(seed=0)
    layer.noise = False
    assert torch.equal(layer.frozen()(inputs())[0], layer(inputs()))


def whole_network(name):
    make, shape = ARCHITECTURES[name]
    torch.manual_seed(0)
    layer = StochasticDepth(make(), cut=Cut.ode_first(0.5), prior=OrnsteinUhlenbeck(sigma=0.1), steps=3)
    net = nn.Sequential(nn.Tanh(), layer.frozen(samples=2, generator=seeded(0)), nn.Linear(shape[-1], 2))
    return net.eval(), torch.randn(shape)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_network_with_frozen_paths_can_be_exported_for_any_batch_size(name):
    net, x = whole_network(name)
    exported = torch.export.export(net, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    larger = torch.cat([x, x + 1])
    assert net(larger).shape[:2] == (2, 2 * len(x))
    torch.testing.assert_close(exported.module()(larger), net(larger), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_network_with_frozen_paths_compiles_to_one_graph(name):
    net, x = whole_network(name)
    torch._dynamo.reset()
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)  # needs no C++ compiler
    torch.testing.assert_close(compiled(x), net(x), rtol=1e-10, atol=1e-10)
