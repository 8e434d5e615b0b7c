"""What the weight noise does: weights without noise, the metrics that say whether samples differ, and their display."""

from __future__ import annotations

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import bnneval
from psdenets import Config, build, evaluate, load, preset
from psdenets.data import load_splits
from psdenets.models.laplace import unfitted
from psdenets.runs.directory import RunDir
from psdenets.runs.files import read_json
from psdenets.runs.noise import noise_metrics, samples_agree
from psdenets.runs.plots import width_ratios
from psdenets.runs.predictions import predict
from psdenets.runs.results import History, write_results
from sdeweights import Cut, Grid, OrnsteinUhlenbeck, WeightProcess

strided = partial(preset, "digits-strided")  # the network of the paper, at the size of the digits

SMALL = {"width": 2, "steps": 4, "drift": "1-4-1", "limit_train": 64, "limit_test": 30, "batch_size": 16}
KEYS = {"epistemic_share", "disagreement", "nll_one_sample", "accuracy_one_sample"}
NO_NOISE = {"nll_no_noise", "accuracy_no_noise"}
X = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def perturbed(model):
    """The model with a drift f_q that is not the prior's, as after training."""
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for block in model.deep_blocks:
            for p in block.process.drift.parameters():
                p.add_(0.1 * torch.randn(p.shape, generator=g))
    return model.eval()


@pytest.mark.parametrize(
    "options",
    [
        {"cut": "vertical"},
        {"cut": "vertical", "order": "sde-first", "ratio": 0.5, "at_t2": "learned"},
        {"cut": "horizontal"},
        {"cut": "both", "blocks": "2", "scope": "network"},
        {"cut": "full", "solver": "sra1", "ode_solver": "euler"},
        {"cut": "full", "solver": "torchsde:heun", "ode_solver": "rk4"},
        {"cut": "none"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)
def test_weights_without_noise_are_those_of_almost_no_noise(options):
    noisy = perturbed(build(strided(**SMALL, **options, head="meanfield")))
    still = perturbed(build(strided(**SMALL, **options, head="meanfield", sigma=1e-7, log_std=-16.0)))
    with torch.no_grad():
        mean, almost, sample = noisy.mean_weights(), still.draw(1), noisy.draw(1)
    assert [path.w.shape for path in mean.paths] == [path.w.shape for path in almost.paths]
    for a, b in zip(mean.paths, almost.paths, strict=True):
        assert torch.allclose(a.w, b.w, rtol=0, atol=2e-6)  # 5 standard deviations of the noise, and rounding
    assert torch.allclose(mean.head.weight, almost.head.weight, rtol=0, atol=2e-6)
    if options["cut"] != "none":
        assert max((a.w - b.w).abs().max() for a, b in zip(mean.paths, sample.paths, strict=True)) > 0.01


def test_gaussian_weights_without_noise_are_their_means():
    model = build(Config(model="mfvi", width=2)).eval()
    assert torch.equal(model.logits(X, model.mean_weights())[0], model.net(model.normalised(X)))


@pytest.mark.parametrize("predictive", ["sampled", "probit"])
def test_a_laplace_approximation_without_noise_is_the_trained_network(predictive):
    spec = load_splits(strided(**SMALL)).spec
    model = unfitted(Config(model="resnet32-laplace", width=2, predictive=predictive), spec).eval()
    head = model.net.head
    model.posterior_mean.copy_(torch.cat([head.weight.detach().flatten(), head.bias.detach()]))
    model.posterior_scale.copy_(torch.eye(len(model.posterior_mean)))
    expected = model.net(model.normalised(X)).double()
    assert torch.allclose(model.logits(X, model.mean_weights())[0], expected, rtol=0, atol=1e-5)  # float32 head


def test_metrics_of_noise_equal_those_of_their_functions():
    model = perturbed(build(strided(**SMALL, cut="full", sigma=1.0)))
    test = load_splits(model.config).test
    predictions = predict(model, test, 3, torch.Generator().manual_seed(0))
    probs, labels = predictions.probs, predictions.labels
    with torch.no_grad():
        still = model.logits(test.pixels / 255, model.mean_weights())[0].double().softmax(-1).numpy()
    expected = {
        "epistemic_share": bnneval.epistemic_share(probs),
        "disagreement": bnneval.disagreement(probs),
        "nll_one_sample": bnneval.nll_one_sample(probs, labels),
        "accuracy_one_sample": bnneval.accuracy_one_sample(probs, labels),
        "nll_no_noise": bnneval.nll(still, labels),
        "accuracy_no_noise": bnneval.accuracy(still, labels),
    }
    assert noise_metrics(model, test, predictions) == pytest.approx(expected, abs=1e-6)  # float32 logits
    assert expected["epistemic_share"] > 0.01
    assert (
        len({round(expected[name], 6) for name in ("nll_one_sample", "nll_no_noise")} | {predictions.metrics()["nll"]})
        == 3
    )


@pytest.mark.parametrize(
    ("options", "without_noise"),
    [({"model": "resnet32"}, True), ({"cut": "none"}, True), ({"model": "ensemble", "members": 2}, False)],
    ids=["resnet32", "cut none", "ensemble"],
)
def test_systems_without_noise(options, without_noise):
    model = build(strided(**options, width=2, limit_test=30)).eval()
    test = load_splits(model.config).test
    predictions = predict(model, test, model.config.system.final_samples, torch.Generator().manual_seed(0))
    found, ordinary = noise_metrics(model, test, predictions), predictions.metrics()
    assert set(found) == KEYS | (NO_NOISE if without_noise else set())
    if without_noise:
        assert found["epistemic_share"] < 1e-12  # the rounding error of an average of equal numbers
        assert found["disagreement"] == 0
        for name in ("nll", "accuracy"):
            one, none = found[f"{name}_one_sample"], found[f"{name}_no_noise"]
            assert one == pytest.approx(ordinary[name], rel=1e-12)
            assert none == pytest.approx(ordinary[name], rel=1e-6)  # float32 logits of other batches
    assert samples_agree(model.config, 0.0, 16) == ""


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"cut": "vertical"}, "raise --sigma or widen the noise with --ratio"),
        ({"cut": "vertical", "t1": 0.2, "t2": 0.6}, "raise --sigma or widen the noise with --t1 and --t2"),
        ({"cut": "both"}, "raise --sigma or widen the noise with --ratio or --share"),
        ({"cut": "full"}, "raise --sigma"),
        ({"model": "sde-bnn"}, "raise --sigma"),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else "",
)
def test_samples_that_agree_are_reported_in_one_line_with_flags_that_apply(options, advice):
    config = strided(**options, noise_scale="absolute")
    said = f"the weight samples agree (they explain 0.02 % of the entropy): {advice}"
    relative = "; --noise-scale effect makes it relative to each layer and to the cut"
    assert samples_agree(config, 0.0002, 16) == said + relative
    assert samples_agree(config.replace(noise_scale="effect"), 0.0002, 16) == said
    assert samples_agree(config, 0.0002, 1) == samples_agree(config, 0.01, 16) == ""


def finished(path, **options):
    """The summary of a run with an untrained network, and the run."""
    config, run = strided(**SMALL, test_samples=3, **options), RunDir(path)
    model = build(config).eval()
    splits = load_splits(config)
    run.begin(config, splits.spec, {"train": 57, "val": 7, "test": 30})
    return write_results(run, config, model, splits.test, History([], 0.0, {"epochs": 0})), run


def test_a_run_whose_samples_agree_says_so_in_summary_evaluation_and_report(tmp_path, capsys):
    summary, run = finished(tmp_path / "run", sigma=1e-4)
    metrics = read_json(run.file("metrics.json"))
    line = samples_agree(load(run.path).config, metrics["epistemic_share"], 3)
    report = run.file("report.html").read_text()
    assert metrics.keys() >= KEYS | NO_NOISE
    assert summary.splitlines()[-1] == line
    assert f"test nll no noise        {metrics['nll_no_noise']:>10.4f}" in summary
    assert "What the weight noise does" in report
    assert line[1:] in report
    assert 'alt="widths"' in report
    assert evaluate.main([str(run.path), "--ood", "noise", "--limit-test", "30"]) == 0
    printed, result = capsys.readouterr().out, json.loads(run.file("evaluation/metrics.json").read_text())["metrics"]
    assert printed.count(line) == 1
    assert f"{result['accuracy_no_noise']:.6f}" in printed
    assert {name: result[name] for name in KEYS | NO_NOISE} == {name: metrics[name] for name in KEYS | NO_NOISE}
    assert {"epistemic_share", "disagreement"} == (KEYS | NO_NOISE) & result["ood"].keys()


def test_a_run_whose_samples_differ_and_one_without_noise_do_not(tmp_path, rendered):
    for name, options in {"wide": {"cut": "full", "sigma": 3.0}, "none": {"cut": "none"}}.items():
        summary, run = finished(tmp_path / name, **options)
        assert "samples agree" not in summary + run.file("report.html").read_text()
        assert run.file("plots/widths.png").exists() == (name == "wide")
        assert (read_json(run.file("metrics.json"))["epistemic_share"] > 0.01) == (name == "wide")


def test_widths_of_an_untrained_posterior_are_exactly_those_of_the_prior():
    for options in ({"cut": "horizontal"}, {"cut": "vertical", "t1": 0.2, "t2": 0.7, "at_t2": "fixed"}):
        (block,) = build(strided(**SMALL, **options)).deep_blocks
        ratio = width_ratios(block)
        assert len(ratio) == min(20_000, len(block.process.S))
        assert (ratio == 1).all()


def test_widths_of_a_stronger_mean_reversion_by_hand():
    # Euler steps of dw = -theta w dt + dB: var w_n = dt sum_k (1 - theta dt)^2k
    d, steps, cut = 30_000, 8, Cut.vertical(0.0, 0.5, "learned")
    process = WeightProcess(torch.zeros(d), lambda t, w: -6 * w, OrnsteinUhlenbeck(1.0, 0.0, 1.0), cut)
    ratio = width_ratios(SimpleNamespace(process=process, grid=Grid.of(cut, steps)))
    prior, posterior = (sum((1 - theta / steps) ** (2 * k) for k in range(4)) for theta in (1, 6))
    assert len(ratio) == 20_000
    # 20,000 ratios, each from 64 paths with a standard error below 0.1 and a bias of order 1/64: 0.02 is twice that
    assert np.mean(ratio) == pytest.approx((posterior / prior) ** 0.5, abs=0.02)
    assert np.std(ratio) < 0.1
