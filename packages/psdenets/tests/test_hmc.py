from __future__ import annotations

import math
import subprocess
import sys
import warnings
from itertools import pairwise

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.distributions import Categorical, Normal
from torch.nn import functional as F

from psdenets import BadInput, Config
from psdenets.data import load_splits
from psdenets.data.images import to_unit
from psdenets.data.spec import SPECS
from psdenets.models.hmc.diagnostics import (
    Cost,
    cost_of,
    duration,
    effective_sample_size,
    full_size_cost,
    mixing,
    refusal,
    seconds_per_gradient,
    split_rhat,
)
from psdenets.models.hmc.hamiltonian import sample_chain
from psdenets.models.hmc.model import HMC, Layers, Perceptron, log_posterior
from psdenets.runs.checksums import Folder
from psdenets.runs.predictions import predict
from psdenets.seeds import generator, seed_of
from psdenets.training.hmc import estimate, run_chains

FEW = {"model": "hmc", "width": 3, "prior_std": 2.0, "chains": 2, "warmup": 3, "draws": 4, "leapfrog": 2}
MOMENTS = {"warmup": 200, "draws": 800}


def at(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=at(seed), dtype=torch.float64)


def log_normal(w, std):
    return Normal(torch.zeros_like(w), torch.full_like(w, std)).log_prob(w).sum()  # plain numbers would be float32


def two_images():
    return torch.rand(2, 1, 8, 8, generator=at()), torch.tensor([3, 1])


def digits(train=200, **changes):
    config = Config(**{**FEW, **changes}, limit_train=train)
    splits = load_splits(config)
    return HMC(config, splits.spec), to_unit(splits.train.pixels), splits.train.labels, splits


def untimed(chain):
    return chain._replace(draws=None, seconds=None)


def gaussian(mean, covariance):
    precision = torch.linalg.inv(covariance)
    return lambda w: -0.5 * (w - mean) @ precision @ (w - mean)


def standard(d):
    return torch.zeros(d).double(), torch.eye(d).double()


def assert_moments(draws, mean, covariance):
    """Means and covariances within 4 standard errors, each with its own effective sample size.

    Of d means and d (d + 1) / 2 covariances, each fails by chance with probability 6e-5 (central limit theorem): 9e-4 in
    total for d = 4, 3e-4 for d = 2. The seed is fixed.
    """
    rows, columns = torch.triu_indices(len(mean), len(mean))
    products = (draws - mean)[:, rows] * (draws - mean)[:, columns]
    for values, expected in ((draws, mean), (products, covariance[rows, columns])):
        ess = effective_sample_size(values[None])
        assert ess.min() > 100  # otherwise almost any value would be within 4 standard errors
        assert ((values.mean(0) - expected).abs() <= 4 * values.std(0) / ess.sqrt()).all()


def test_chain_has_the_mean_and_covariance_of_a_correlated_gaussian():
    A = normal(4, 4, seed=1)
    mean, covariance = torch.tensor([1.0, -2.0, 0.0, 5.0]).double(), A @ A.mT + 0.5 * torch.eye(4).double()
    chain = sample_chain(gaussian(mean, covariance), torch.zeros(4).double(), **MOMENTS, leapfrog=3, seed=3)
    assert_moments(chain.draws, mean, covariance)
    assert chain.divergences == 0
    assert 0.6 < chain.accept <= 1


def test_chain_has_the_posterior_of_bayesian_linear_regression():
    """y = X w + e, w ~ N(0, I), e ~ N(0, s^2): covariance (X^T X / s^2 + I)^-1, mean covariance X^T y / s^2.

    Two leapfrog steps, not three: three would be half a period here, which turns w - mean into its negative, so that
    its square would not change.
    """
    X, s = normal(20, 2, seed=1), 0.7
    y = X @ torch.tensor([0.5, -1.5]).double() + s * normal(20, seed=2)
    covariance = torch.linalg.inv(X.mT @ X / s**2 + torch.eye(2))
    mean = covariance @ X.mT @ y / s**2

    def log_density(w):
        return -((y - X @ w) / s).square().sum() / 2 - w.square().sum() / 2

    chain = sample_chain(log_density, torch.zeros(2).double(), **MOMENTS, leapfrog=2, seed=1)
    assert_moments(chain.draws, mean, covariance)


def test_the_same_seed_gives_the_same_bits_and_another_seed_gives_different_ones():
    density = gaussian(*standard(3))
    first, again, other = (
        sample_chain(density, torch.ones(3).double(), warmup=30, draws=20, leapfrog=4, seed=seed) for seed in (5, 5, 6)
    )
    assert torch.equal(first.draws, again.draws)
    assert untimed(first) == untimed(again)
    assert not torch.equal(first.draws, other.draws)


def test_sampling_changes_no_global_state_and_prints_nothing(capfd):
    import pyro

    pyro.get_param_store().clear()
    pyro.param("mine", torch.tensor(1.0))
    before, w0 = torch.get_rng_state(), torch.ones(3).double()
    density = gaussian(*standard(3))
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        sample_chain(density, w0, warmup=25, draws=5, leapfrog=2, seed=5)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.get_rng_state(), before)
    assert list(pyro.get_param_store()) == ["mine"]
    assert w0.tolist() == [1.0, 1.0, 1.0]
    assert not w0.requires_grad
    assert capfd.readouterr() == ("", "")
    pyro.get_param_store().clear()


@pytest.mark.parametrize("leapfrog", [1, 7])
def test_every_trajectory_takes_the_given_number_of_gradients(leapfrog):
    """By default, pyro fixes the length of a trajectory, so that the number of steps would depend on the step size."""
    counts, calls = [], 0

    def density(w):
        nonlocal calls
        calls += w.requires_grad
        return -0.5 * (w / torch.tensor([1.0, 10.0]).double()).square().sum()

    chain = sample_chain(
        density, torch.ones(2).double(), warmup=40, draws=20, leapfrog=leapfrog, seed=0,
        after_draw=lambda: counts.append(calls),
    )  # fmt: skip
    assert len(counts) == 60
    steps = [b - a for a, b in pairwise(counts)]
    assert set(steps[-20:]) == {leapfrog}
    assert min(steps) == leapfrog  # while adapting, the search for a new step size may add a few
    assert sum(step > leapfrog for step in steps) <= 2
    assert chain.gradients == calls


def test_an_exception_in_after_draw_ends_the_chain():
    class Stop(Exception):
        pass

    seen = []

    def after_draw():
        seen.append(1)
        if len(seen) == 3:
            raise Stop

    before = torch.get_rng_state()
    with pytest.raises(Stop):
        sample_chain(
            gaussian(*standard(2)), torch.zeros(2).double(),
            warmup=5, draws=5, leapfrog=2, seed=0, after_draw=after_draw,
        )  # fmt: skip
    assert len(seen) == 3
    assert torch.equal(torch.get_rng_state(), before)


def test_divergences_are_counted():
    """With one transition of warm-up, the step size fits a region where the density is flat and is too large elsewhere."""
    chain = sample_chain(lambda w: -(w**8).sum(), torch.zeros(2).double(), warmup=1, draws=50, leapfrog=20, seed=0)
    assert chain.divergences > 0
    assert torch.isfinite(chain.draws).all()
    assert chain.accept < 0.8


@pytest.mark.parametrize(
    ("w0", "message"),
    [
        (torch.zeros(2), r"float64 on the CPU, got \(2,\) in torch.float32"),
        (torch.zeros(2, 1).double(), r"w0 \(d,\)"),
        (torch.tensor([-1.0, 0.0]).double(), "finite log density at w0, got nan"),
    ],
)
def test_an_invalid_starting_point_is_refused(w0, message):
    with pytest.raises(BadInput, match=message):
        sample_chain(lambda w: w.log().sum(), w0, warmup=1, draws=1, leapfrog=1, seed=0)


@pytest.mark.parametrize(("warmup", "draws", "leapfrog"), [(-1, 1, 1), (0, 0, 1), (0, 1, 0)])
def test_a_chain_without_draws_or_steps_is_refused(warmup, draws, leapfrog):
    with pytest.raises(BadInput, match=f"got {warmup}, {draws} and {leapfrog}"):
        sample_chain(
            gaussian(*standard(1)), torch.zeros(1).double(), warmup=warmup, draws=draws, leapfrog=leapfrog, seed=0
        )


def test_a_chain_without_warmup_still_moves():
    chain = sample_chain(gaussian(*standard(2)), torch.zeros(2).double(), warmup=0, draws=4, leapfrog=1, seed=0)
    assert chain.draws.shape == (4, 2)
    assert chain.draws.std() > 0


def test_rhat_is_1_for_independent_draws_and_large_for_separate_chains():
    """With 8 halves of 500 draws, R-hat - 1 is about (chi^2_7 / 7 - 1) / 1000: above 0.02 with probability 2e-28."""
    values = normal(4, 1000, 3)
    assert (split_rhat(values) - 1).abs().max() < 0.02
    assert split_rhat(values + 3 * torch.arange(4)[:, None, None]).min() > 1.5
    one = normal(1, 1000, 2)
    assert (split_rhat(one) - 1).abs().max() < 0.02
    assert split_rhat(one + torch.linspace(0, 8, 1000)[None, :, None]).min() > 1.5  # one chain that drifts


def test_rhat_of_two_halves_equals_the_value_computed_by_hand():
    """Halves (0, 1) and (4, 5): within 1/2, between means 8, so R-hat^2 = (1/2 * 1/2 + 8) / (1/2) = 16.5."""
    values = torch.tensor([0.0, 1.0, 4.0, 5.0]).double()[None, :, None]
    assert split_rhat(values).item() == pytest.approx(math.sqrt(16.5), rel=1e-12)


@pytest.mark.parametrize(("rho", "tolerance"), [(0.0, 0.1), (0.5, 0.2), (0.9, 0.35)])
def test_effective_sample_size_of_an_autoregressive_chain_agrees_with_its_formula(rho, tolerance):
    """n (1 - rho) / (1 + rho). The tolerances are four standard deviations of the estimate, measured over 100 seeds:
    2.4, 4.7 and 8.2 %. Each of the six comparisons fails by chance with probability 6e-5."""
    noise = normal(4, 5000, 2) * math.sqrt(1 - rho**2)
    values = [normal(4, 2, seed=1)]
    for t in range(1, 5000):
        values.append(rho * values[-1] + noise[:, t])
    expected = 20_000 * (1 - rho) / (1 + rho)
    ess = effective_sample_size(torch.stack(values, dim=1))
    assert ess.tolist() == pytest.approx([expected] * 2, rel=tolerance)


def test_effective_sample_size_of_alternating_draws_is_bounded():
    """Draws that change sign every time are worth more than independent ones; the limit is n log10 n."""
    signs = torch.tensor([1.0, -1.0]).double().repeat(50)[None, :, None]
    values = signs * (1 + 0.1 * normal(2, 100, 1))
    assert effective_sample_size(values).item() == pytest.approx(200 * math.log10(200), rel=1e-9)


def test_effective_sample_size_does_not_depend_on_how_quantities_are_grouped():
    values = normal(2, 2100, 5)  # processed three at a time, with (2100 / 2)^2 numbers each
    together = effective_sample_size(values)
    alone = torch.cat([effective_sample_size(values[..., k : k + 1]) for k in range(5)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=0)


def test_mixing_contains_the_worst_and_the_median_rhat_and_ess():
    values = normal(2, 100, 3)
    rhat, ess = split_rhat(values), effective_sample_size(values)
    expected = (rhat.max(), rhat.sort().values[1], ess.min(), ess.sort().values[1])
    assert mixing(values) == pytest.approx([value.item() for value in expected], rel=1e-12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (torch.zeros(2, 3, 1), "at least 4 draws"),
        (torch.zeros(2, 8), r"\(chains, draws, k\)"),
        (torch.full((2, 8, 1), math.nan), "finite draws"),
        (torch.cat([torch.ones(1, 8, 1), torch.rand(1, 8, 1)], -1), "got 1 of 2 constant quantities"),
    ],
)
def test_draws_without_a_defined_rhat_or_ess_are_refused(values, message):
    for diagnostic in (split_rhat, effective_sample_size):
        with pytest.raises(BadInput, match=message):
            diagnostic(values)


def test_network_computes_the_formula_in_its_docstring():
    network, x = Perceptron(6, 4, 3), normal(5, 6)
    w = normal(network.size, seed=1)
    W1, b1, W2, b2 = w[:24].reshape(4, 6), w[24:28], w[28:40].reshape(3, 4), w[40:]
    h = F.linear(x, W1 / math.sqrt(6), b1).tanh()
    torch.testing.assert_close(network(w, x), F.linear(h, W2 / 2, b2), rtol=1e-13, atol=1e-13)  # sums in another order


def test_flat_is_the_inverse_of_layers():
    network = Perceptron(6, 4, 3)
    w = normal(2, 7, network.size)
    layers = network.layers(w)
    assert isinstance(layers, Layers)
    assert [tuple(part.shape[2:]) for part in layers] == [(4, 6), (4,), (3, 4), (3,)]
    assert torch.equal(layers.flat(), w)


def test_network_can_be_evaluated_with_many_weight_vectors_at_once():
    network, x = Perceptron(6, 4, 3), normal(5, 6)
    w = normal(2, 7, network.size)
    together = network(w, x)
    assert together.shape == (2, 7, 5, 3)
    torch.testing.assert_close(together[1, 3], network(w[1, 3], x), rtol=0, atol=1e-13)  # sums in another order


def test_flipping_the_signs_of_a_hidden_unit_does_not_change_the_output():
    network, x = Perceptron(6, 4, 3), normal(5, 6)
    layers = network.layers(normal(network.size))
    sign = torch.tensor([1.0, -1.0, 1.0, 1.0]).double()
    turned = Layers(layers.W1 * sign[:, None], layers.b1 * sign, layers.W2 * sign, layers.b2)
    torch.testing.assert_close(network(turned.flat(), x), network(layers.flat(), x), rtol=0, atol=1e-13)


@pytest.mark.parametrize("prior_std", [0.3, 2.0])
def test_log_posterior_agrees_with_torch_distributions(prior_std):
    network, x, labels = Perceptron(6, 4, 3), normal(5, 6), torch.tensor([0, 2, 1, 1, 0])
    w = normal(network.size, seed=1)
    expected = Categorical(logits=network(w, x)).log_prob(labels).sum() + log_normal(w, prior_std)
    got = log_posterior(w, x, labels, network, prior_std)
    assert got.item() == pytest.approx(expected.item(), abs=1e-10)
    w.requires_grad_()
    assert torch.autograd.gradcheck(lambda w: log_posterior(w, x, labels, network, prior_std), w)


def test_without_images_the_log_posterior_is_the_log_prior():
    network = Perceptron(6, 4, 3)
    w = normal(network.size)
    got = log_posterior(w, torch.zeros(0, 6).double(), torch.zeros(0, dtype=torch.int64), network, 0.5)
    assert got.item() == pytest.approx(log_normal(w, 0.5).item(), abs=1e-10)


def test_log_density_of_the_model_uses_normalised_pixels():
    model = HMC(Config(**FEW, dataset="cifar10"), SPECS["cifar10"])
    x, labels = torch.rand(2, 3, 32, 32, generator=at()), torch.tensor([3, 1])
    w = normal(model.network.size)
    pixels = ((x.double() - model.mean) / model.std).reshape(2, 3072)
    expected = log_posterior(w, pixels, labels, model.network, 2.0)
    assert model.log_density(x, labels)(w).item() == pytest.approx(expected.item(), rel=1e-12)


def test_a_new_model_draws_zero_weights_and_its_kl_is_zero():
    model = HMC(Config(**FEW), SPECS["digits"])
    x, _ = two_images()
    assert model.parameter_counts() == {"weights": 64 * 3 + 3 + 3 * 10 + 10}
    assert model.draw(3).kl.tolist() == [0.0, 0.0, 0.0]
    assert model.logits(x, model.draw(3)).shape == (3, 2, 10)
    torch.testing.assert_close(
        model.predict_proba(x, 3), torch.full((2, 10), 0.1, dtype=torch.float64), rtol=0, atol=1e-15
    )
    logits, kl = model(x)
    assert logits.shape == (2, 10)
    assert kl.item() == 0.0


def numbered(chains=2, draws=8):
    """A model in which all weights of draw t of chain k are 100 k + t."""
    model = HMC(Config(**{**FEW, "chains": chains, "draws": draws}), SPECS["digits"])
    names = 100 * torch.arange(chains)[:, None] + torch.arange(draws)
    model.draws.copy_(names[..., None].expand_as(model.draws))
    return model


def picks(model, samples, generator=None):
    return model.draw(samples, generator).weights[:, 0].int().tolist()


def test_samples_alternate_between_chains_and_bisect_time():
    assert picks(numbered(), 8) == [0, 100, 4, 104, 2, 102, 6, 106]
    assert picks(numbered(chains=1, draws=5), 5) == [0, 4, 2, 1, 3]
    assert picks(numbered(chains=3, draws=1), 3) == [0, 100, 200]


def test_sample_i_depends_only_on_i_and_not_on_the_generator():
    model = numbered(draws=7)
    assert picks(model, 5, at(1)) == picks(model, 14, at(2))[:5]
    assert sorted(picks(model, 14)) == [*range(7), *range(100, 107)]


@pytest.mark.parametrize("draws", [10, 100, 300])
@pytest.mark.parametrize("samples", [4, 16])
def test_samples_are_spread_over_the_whole_chain(draws, samples):
    times = [*sorted(picks(numbered(1, draws), min(samples, draws))), draws]
    gaps = [b - a for a, b in pairwise(times)]
    assert max(gaps) <= math.ceil(2.7 * draws / samples)  # bit reversal leaves gaps of less than 2 draws / samples


@pytest.mark.parametrize("samples", [0, 17])
def test_zero_samples_and_more_samples_than_draws_are_refused(samples):
    with pytest.raises(BadInput, match=f"expected 1 to 16 samples, 8 draws of 2 chains, got {samples}"):
        numbered().draw(samples)


def test_logits_are_computed_with_the_drawn_weights():
    model, x = HMC(Config(**FEW), SPECS["digits"]), two_images()[0]
    model.draws.copy_(normal(*model.draws.shape))
    expected = model.network(model.draws[1, 2], x.double().reshape(2, 64))
    assert torch.equal(model.draw(4).weights[3], model.draws[1, 2])
    torch.testing.assert_close(model.logits(x, model.draw(4))[3], expected, rtol=0, atol=1e-13)
    assert model.float().logits(x, model.draw(4)).dtype == torch.float32


def test_draws_are_unchanged_after_saving_and_loading(tmp_path):
    model, again = (HMC(Config(**FEW), SPECS["digits"]) for _ in range(2))
    model.draws.copy_(normal(*model.draws.shape))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    again.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert again.draws.dtype == torch.float64
    assert torch.equal(again.draws, model.draws)
    assert list(model.state_dict()) == ["draws"]


class Killed(Exception):
    pass


def killed_after(transitions):
    left = [transitions]

    def after_draw():
        left[0] -= 1
        if left[0] == 0:
            raise Killed

    return after_draw


def test_a_run_killed_within_a_chain_and_resumed_ends_with_the_same_bytes(tmp_path):
    model, x, labels, _ = digits(64, chains=3, warmup=22, draws=4)
    whole = run_chains(model, x, labels, Folder(tmp_path / "whole"))
    with pytest.raises(Killed):
        run_chains(model, x, labels, Folder(tmp_path / "killed"), killed_after(26 + 5))
    left = {path.name for path in (tmp_path / "killed").iterdir()}
    assert left == {"chain-0.safetensors", "chain-0.json", "checksums.json"}
    done = []
    resumed = run_chains(model, x, labels, Folder(tmp_path / "killed"), lambda: done.append(1))
    assert len(done) == 2 * 26  # the first chain is not sampled again
    for k in range(3):
        assert torch.equal(resumed[k].draws, whole[k].draws)
        assert untimed(resumed[k]) == untimed(whole[k])
        name = f"chain-{k}.safetensors"
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert resumed[0].seconds != whole[0].seconds  # measured times differ; those of a finished chain are kept
    assert run_chains(model, x, labels, Folder(tmp_path / "killed"))[0].seconds == resumed[0].seconds
    assert not torch.equal(whole[0].draws, whole[1].draws)
    model.keep(whole)
    assert torch.equal(model.draws[2], whole[2].draws)


def test_chain_k_starts_at_its_own_draw_from_the_prior_and_has_its_own_seed(tmp_path):
    model, x, labels, _ = digits(64, seed=9)
    w0 = 2.0 * torch.randn(model.network.size, generator=generator(9, "chain-start", 1), dtype=torch.float64)
    seed = seed_of(9, "chain", 1)
    alone = sample_chain(model.log_density(x, labels), w0, warmup=3, draws=4, leapfrog=2, seed=seed)
    assert torch.equal(run_chains(model, x, labels, Folder(tmp_path))[1].draws, alone.draws)


def test_a_chain_of_another_run_is_refused(tmp_path):
    model, x, labels, _ = digits(64)
    run_chains(model, x, labels, Folder(tmp_path))
    other, *_ = digits(64, seed=1)
    with pytest.raises(BadInput, match="'seed': 1.*chain-0.safetensors, got one of .*'seed': 0"):
        run_chains(other, x, labels, Folder(tmp_path))


def test_missing_pyro_gives_a_one_line_error_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyro", None)
    message = "^expected pyro for --model hmc, but it is not installed: pip install 'psdenets\\[hmc\\]'$"
    with pytest.raises(BadInput, match=message):
        sample_chain(lambda w: -w.square().sum(), torch.zeros(1).double(), warmup=1, draws=1, leapfrog=1, seed=0)
    with pytest.raises(BadInput, match=message):
        split_rhat(normal(2, 8, 1))


def test_pyro_is_not_imported_before_it_is_needed():
    code = "import sys, psdenets.models.hmc.model; sys.exit('pyro' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_cost_counts_one_gradient_per_leapfrog_step():
    config = Config(**{**FEW, "chains": 4, "warmup": 300, "draws": 500, "leapfrog": 30})
    cost = cost_of(config.system.hmc, images=1000, seconds_per_image=1e-6)
    assert cost.gradients == 96_000
    assert cost.seconds == pytest.approx(96.0, rel=1e-12)


def test_the_estimated_number_of_gradients_is_close_to_that_of_a_run(tmp_path):
    model, x, labels, _ = digits(64, warmup=25)
    chains = run_chains(model, x, labels, Folder(tmp_path))
    counted, made = cost_of(model.config.system.hmc, 64, 0.0).gradients, sum(chain.gradients for chain in chains)
    assert counted < made < counted + 2 * 60  # two searches for a step size per chain, each with fewer than 30 halvings


def test_a_data_set_that_is_too_large_is_refused_with_an_estimate():
    cost = Cost(images=54_000, gradients=96_000, seconds_per_image=147_600 / (54_000 * 96_000))
    message = "expected a data set on which HMC takes at most 2 h, got mnist: 54,000 images x 96,000 gradients is about 41 h here"
    with pytest.raises(BadInput) as caught:
        refusal("mnist", cost)
    assert str(caught.value) == message
    refusal("mnist", cost, limit=150_000)
    refusal("digits", Cost(1294, 60_000, 1e-6))


def test_gradients_are_timed_and_scaled_to_all_images():
    model, x, labels, _ = digits(64)
    seconds = seconds_per_gradient(model.log_density(x, labels), normal(model.network.size))
    assert 1e-6 < seconds < 1
    cost = estimate(model, x, labels, images=50_000)
    assert cost.images == 50_000
    assert cost.gradients == 2 * 7 * 2
    assert 1e-2 < cost.seconds_per_image * 64 / seconds < 1e2  # two timings of the same thing on a busy machine


def test_the_full_size_cost_has_the_published_number_of_passes():
    """The published 5e7 passes count only the trajectories that are kept, 240 of 290 in each of three chains."""
    cost = full_size_cost(0.01)
    assert cost.gradients * 240 / 290 == pytest.approx(5e7, rel=0.02)
    assert str(cost) == "40,960 images x 61,115,760 gradients is about 793 years here"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.5, "0.5 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7200, "2 h"),
        (12_600, "3.5 h"),
        (172_800, "2 days"),
        (1e9, "32 years"),
    ],
)
def test_durations_are_shown_in_a_suitable_unit(seconds, words):
    assert duration(seconds) == words


def test_digits_are_classified_with_few_draws(tmp_path):
    model, x, labels, splits = digits(200, width=8, chains=2, warmup=50, draws=20, leapfrog=15)
    model.keep(run_chains(model, x, labels, Folder(tmp_path)))
    metrics = predict(model, splits.test, 40, at()).metrics()
    assert metrics["accuracy"] > 0.75  # 0.84 to 0.85 with four seeds; chance is 0.1
    assert metrics["kl"] == 0.0
    result = model.mixing(x, labels, to_unit(splits.test.pixels[:20]))
    assert set(result) == {"log_posterior", "log_probs", "weights"}
    assert result["log_posterior"].max_rhat < 2
