"""The last-layer Laplace approximation, computed from saved tensors, agrees with laplace-torch."""

from __future__ import annotations

import copy
import sys
import warnings

import pytest
import torch

from psdenets import Config
from psdenets.data import load_splits
from psdenets.data.images import to_unit
from psdenets.data.spec import SPECS
from psdenets.data.torchvision_import import import_torchvision
from psdenets.models.laplace import LastLayerLaplace, fitted
from psdenets.models.nets.resnet import resnet_of
from psdenets.train import main

import_torchvision()
laplace = pytest.importorskip("laplace")
VALUES = {"width": 4, "limit_train": 300}


@pytest.fixture(scope="module")
def trained():
    """A network trained for 25 steps, so that both its curvature and the prior contribute to the posterior precision."""
    config = Config(model="resnet32-laplace", **VALUES)
    splits = load_splits(config)
    net = resnet_of(config, splits.spec)
    x, labels = to_unit(splits.train.pixels), splits.train.labels
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(25):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), labels).backward()
        optimizer.step()
    return net.eval().double(), splits


@pytest.fixture(scope="module", params=["full", "kron", "diag"])
def both(request, trained):
    """Our approximation, that of laplace-torch for the same network, and 60 test images."""
    net, splits = trained
    config = Config(model="resnet32-laplace", hessian=request.param, **VALUES)
    ours = fitted(config, splits.spec, copy.deepcopy(net), splits.train).double()
    x = ours.normalised(to_unit(splits.train.pixels).double())
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, splits.train.labels), batch_size=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = laplace.Laplace(
            copy.deepcopy(net), "classification", subset_of_weights="last_layer", hessian_structure=request.param
        )
        theirs.fit(loader)
        theirs.optimize_prior_precision(method="marglik")
    return ours, theirs, to_unit(splits.test.pixels[:60]).double()


def test_prior_precision_and_mean_match_laplace_torch(both):
    ours, theirs, _ = both
    torch.testing.assert_close(ours.prior_precision, theirs.prior_precision.reshape(-1), rtol=1e-6, atol=0)
    torch.testing.assert_close(ours.posterior_mean, theirs.mean, rtol=1e-12, atol=0)


def test_probit_prediction_matches_laplace_torch(both):
    ours, theirs, x = both
    ours.config = ours.config.replace(predictive="probit")
    found = ours.predict_proba(x)
    ours.config = ours.config.replace(predictive="sampled")
    expected = theirs(ours.normalised(x), pred_type="glm", link_approx="probit")
    # 1e-6: laplace-torch finds its prior precision by 100 steps of Adam, on features summed in another order
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert (found - ours.net(ours.normalised(x)).softmax(-1)).abs().max() > 1e-3  # the variance matters


def test_mean_and_covariance_of_samples_match_laplace_torch(both):
    """4,000 samples for 60 images. 1,200 bounds of 5 standard errors fail by chance for one seed in 10^3."""
    ours, theirs, x = both
    mean, covariance = theirs._glm_predictive_distribution(ours.normalised(x))
    n = 4000
    with torch.no_grad():
        logits = ours.logits(x, ours.draw(n, torch.Generator().manual_seed(0)))
    variance = covariance.diagonal(dim1=1, dim2=2)
    assert ((logits.mean(0) - mean).abs() < 5 * (variance / n).sqrt()).all()
    assert ((logits.var(0) - variance).abs() < 5 * variance * (2 / n) ** 0.5).all()
    centred = logits - logits.mean(0)
    found = torch.einsum("snc,snd->ncd", centred, centred) / (n - 1)
    scale = (variance[:, :, None] * variance[:, None]).sqrt()
    assert ((found - covariance).abs() < 6 * scale * (2 / n) ** 0.5).all()


def test_sample_i_depends_only_on_the_seed_and_i(both):
    ours, _, x = both
    two, five = (ours.logits(x, ours.draw(s, torch.Generator().manual_seed(9))) for s in (2, 5))
    torch.testing.assert_close(two, five[:2], rtol=0, atol=1e-12)


def test_a_new_model_with_the_saved_buffers_of_a_fitted_one_predicts_the_same(both):
    ours, _, x = both
    again = LastLayerLaplace(ours.config, ours.spec, resnet_of(ours.config, ours.spec)).double()
    again.load_state_dict(ours.state_dict())
    g = torch.Generator().manual_seed(1)
    first = ours.predict_proba(x, 3, g)
    assert torch.equal(again.eval().predict_proba(x, 3, torch.Generator().manual_seed(1)), first)


def test_a_missing_extra_gives_a_one_line_error_with_the_install_command(monkeypatch, capsys, tmp_path, small_resnet):
    monkeypatch.setitem(sys.modules, "laplace", None)
    args = ["--model", "resnet32-laplace", "--laplace-of", small_resnet, "--out", tmp_path / "run"]
    assert main([str(a) for a in args]) == 2
    error = capsys.readouterr().err
    assert "pip install 'psdenets[laplace]'" in error
    assert error.count("\n") == 1


def test_the_posterior_for_digits_has_650_dimensions():
    model = LastLayerLaplace(Config(model="resnet32-laplace", **VALUES | {"width": 16}), SPECS["digits"], resnet_of(
        Config(model="resnet32-laplace", **VALUES | {"width": 16}), SPECS["digits"]))  # fmt: skip
    assert model.posterior_scale.shape == (650, 650)
