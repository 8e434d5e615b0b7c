"""Toy data sets: the laws of their data, local features, and networks that are uncertain between and beyond the data."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import psdenets
from psdenets import Config
from psdenets.data import tables
from psdenets.errors import BadInput
from psdenets.models.registry import build
from psdenets.nn.heads import head_of
from psdenets.nn.hidden_drifts import hidden_drift
from psdenets.options.process import HeadOptions
from psdenets.systems import SYSTEMS

TOYS = ("gap", "cos", "heteroscedastic", "bimodal")
# Toys within seconds: coarse depth, so weights are held less strongly, and few epochs.
QUICK = {"steps": 6, "hold": 4.0, "epochs": 25, "samples": 1, "test_samples": 8, "progress": "none"}


def points(name):
    """x and y of a toy, float64."""
    rows = getattr(tables, name)(Path()).rows
    return rows.pixels.flatten().double().numpy(), rows.labels.double().numpy()


def at(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", TOYS)
def test_a_toy_has_a_thousand_points_between_minus_two_and_two(name):
    x, y = points(name)
    assert x.shape == y.shape == (1000,)
    assert np.abs(x).max() <= 2
    assert np.abs(np.mean(x > 0) - 0.5) < 4 * 0.5 / math.sqrt(1000)  # 4 s.e.: fails by chance with probability 6e-5


def test_there_are_no_data_in_the_gap():
    x, _ = points("gap")
    assert np.abs(x).min() >= 0.7
    assert (
        np.abs(x).min() < 0.72
    )  # none of 1,000 points within 0.02 of the gap: probability (1 - 0.04 / 2.6)^1000 = 2e-7


@pytest.mark.parametrize(("name", "mean"), [("gap", np.sin), ("cos", np.cos)])
def test_noise_has_a_standard_deviation_of_one_tenth(name, mean):
    x, y = points(name)
    noise = y - mean(3 * x)
    # 1,000 points: the mean has a standard error of 0.1 / sqrt(1000), the std of 0.1 / sqrt(2000); 4 s.e., 6e-5 each
    assert abs(noise.mean()) < 4 * 0.1 / math.sqrt(1000)
    assert noise.std() == pytest.approx(0.1, abs=4 * 0.1 / math.sqrt(2000))


def test_heteroscedastic_noise_grows_as_stated():
    x, y = points("heteroscedastic")
    e = (y - x - 0.5 * np.sin(3 * x)) / (0.05 + 0.2 * (x + 2))
    for part in (e[x < -1], e[np.abs(x) <= 1], e[x > 1]):  # standard normals; 4 s.e. of each std, 6e-5 each
        assert part.std() == pytest.approx(1, abs=4 / math.sqrt(2 * len(part)))


def test_bimodal_targets_are_plus_and_minus_five_whatever_x_is():
    x, y = points("bimodal")
    assert set(y.tolist()) == {5.0, -5.0}
    for part in (y[x < 0], y[x >= 0]):
        assert abs((part > 0).mean() - 0.5) < 4 * 0.5 / math.sqrt(len(part))  # 4 s.e., probability 6e-5 each


def test_bumps_are_local_and_have_a_mean_square_of_one():
    f_h = hidden_drift("bumps", 2, 32, "tanh", at())
    z = torch.linspace(-5, 5, 101)[:, None]
    bumps = f_h.bumps(z)
    torch.testing.assert_close(bumps.square().mean(1), torch.ones(101))
    large = bumps.abs() > 0.05 * bumps.max()
    distance = (z - f_h.centres).abs()
    inside = z[:, 0].abs() <= 3
    assert large[inside].sum(1).max() <= 5
    assert distance[inside][large[inside]].max() < 0.5  # in standard deviations of the column
    last = bumps[-1].argmax()
    assert f_h.centres[last] == 3
    assert bumps[-1, last].item() == pytest.approx(math.sqrt(32), rel=1e-3)  # at z = 5, beyond all centres


def test_bumps_keep_the_column_and_move_the_other_channels():
    f_h = hidden_drift("bumps", 3, 8, "tanh", at())
    h = torch.randn(5, 3, 1, 1, generator=at(1))
    out = f_h(torch.tensor(0.3), h)
    assert out.shape == h.shape
    assert out[:, 0].eq(0).all()
    rows = h[..., 0, 0]
    features = torch.cat([f_h.bumps(rows[:, :1]), rows[:, 1:], torch.full((5, 1), 0.3)], 1)  # and time
    torch.testing.assert_close(out[:, 1:, 0, 0], features @ f_h.weight.T + f_h.bias)


@pytest.mark.parametrize("width", [8, 32, 40])
def test_the_first_half_of_the_bumps_is_spread_over_the_whole_range(width):
    centres = hidden_drift("bumps", 2, width, "tanh", at()).centres
    torch.testing.assert_close(centres.sort().values, torch.linspace(-3, 3, width))
    first = centres[: width // 2].sort().values
    assert first.diff().max() < 2.5 * 6 / (width - 1)


def test_bumps_need_a_channel_that_moves():
    with pytest.raises(BadInput, match="--augment-channels at least 1"):
        build(Config(dataset="gap", augment_channels=0), tables.gap(Path()).spec)


def test_a_fixed_head_sums_the_added_features_and_has_nothing_to_train():
    head = head_of(HeadOptions(head="fixed"), 5, 2, at(), added=4)
    s = 1 / math.sqrt(2)
    torch.testing.assert_close(head.weight, torch.tensor([[0, s, 0, s, 0], [0, 0, s, 0, s]]))
    assert head.bias.tolist() == [0, 0]
    assert not [p for p in head.parameters() if p.requires_grad]
    assert head.kl() == 0
    with pytest.raises(BadInput, match="--augment-channels at least 2"):
        head_of(HeadOptions(head="fixed"), 5, 2, at(), added=1)


def test_a_rate_that_is_too_large_for_the_steps_is_refused():
    with pytest.raises(BadInput, match="--hold below 12"):
        build(Config(dataset="gap", cut="full", steps=6), tables.gap(Path()).spec)


@pytest.mark.parametrize("cut", ["vertical", "full", "both"])
def test_the_posterior_starts_narrower_than_the_prior(cut):
    spec = tables.gap(Path()).spec
    x = torch.linspace(-2, 2, 9)[:, None, None, None]
    spread = {}
    for hold in (0.0, 20.0):
        model = build(Config(dataset="gap", cut=cut, hold=hold), spec)
        spread[hold], _ = model.predict_batches([x], 200, at())
    # 0.58 sigma against about 1 / 20 of sigma; the ratio of two stds of 200 samples has a standard error of 7 %
    assert (spread[0.0][..., 0].std(0) / spread[20.0][..., 0].std(0)).min() > 4


def test_flags_override_the_defaults_of_a_toy():
    options = Config(dataset="gap", sigma=0.5, block="1-1", head="deterministic", stem="linear").system
    assert (options.process.sigma, options.flow.block, options.head.head) == (0.5, "1-1", "deterministic")
    assert Config(dataset="heteroscedastic").system.prediction.spread == "predicted"
    assert all(set(TOYS) <= set(SYSTEMS[name].per_dataset) for name in ("psde", "sde-bnn"))


@pytest.mark.parametrize("name", ["gap", "cos", "heteroscedastic"])
def test_a_toy_trains_and_beats_a_constant_prediction(name, tmp_path, rendered):
    run = psdenets.fit(dataset=name, out=str(tmp_path / "run"), **QUICK)
    _, y = points(name)
    assert run.metrics["rmse"] < 0.6 * y.std()
    assert run.metrics["nll"] < math.log(y.std()) + 1.4189 - 0.3  # of a Gaussian with the mean and std of all y
    assert (tmp_path / "run" / "plots" / "function.png").exists()


def epistemic(model, low, high):
    """Mean std of the location over 64 weight samples, for low <= |x| <= high."""
    half = torch.linspace(low, high, 41)
    x = torch.cat([-half, half])[:, None, None, None]
    predictive, _ = model.predict_batches([x], 64, at())
    return predictive[..., 0].std(0).mean().item()


@pytest.mark.deep
@pytest.mark.parametrize("cut", ["vertical", "full", "both"])
def test_weights_are_uncertain_between_and_beyond_the_data(cut, tmp_path):
    """Five seeds with the same 200 test points, so their mean coverage has a standard error of 0.02, not of 0.01."""
    found = []
    for seed in range(5):
        run = psdenets.fit(dataset="gap", cut=cut, seed=seed, out=str(tmp_path / str(seed)), progress="none")
        inside, gap, outside = (epistemic(run.model, *ends) for ends in ((0.8, 1.9), (0.0, 0.35), (2.6, 3.2)))
        assert gap > 3 * inside
        assert outside > 3 * inside
        found.append([run.metrics["coverage_90"], run.metrics["rmse"]])
    coverage, rmse = np.mean(found, axis=0)
    assert 0.85 <= coverage <= 0.95
    assert rmse < 0.11
