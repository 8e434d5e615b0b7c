"""Factors of the loss: 2 kappa / n_train for the path KL, 1 / n_train for the head's KL; the NLL is a mean over images and samples."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from psdenets import build, preset
from psdenets.models.likelihoods import CATEGORICAL
from psdenets.training.objective import kappa_at, mean_nll, objective
from psdenets.training.schedules import rate

strided = partial(preset, "digits-strided")  # the network of the paper, at the size of the digits


def test_loss_equals_the_value_computed_by_hand():
    # two samples, one image, two classes: p_0 = 1/2 and 4/5
    logits = torch.tensor([[[0.0, 0.0]], [[math.log(4.0), 0.0]]], dtype=torch.float64)
    loss = objective(
        CATEGORICAL.nll(logits, torch.tensor([0])).mean(),
        torch.tensor([3.0, 5.0]).double(),
        torch.tensor(7.0).double(),
        0.25,
        10,
    )
    nll = (math.log(2) + math.log(5 / 4)) / 2
    assert loss.nll.item() == pytest.approx(nll, rel=1e-12)
    assert loss.kl.item() == 4.0
    assert loss.loss.item() == pytest.approx(nll + (0.25 * 2 * 4 + 7) / 10, rel=1e-12)


def test_the_nll_of_the_mixture_is_that_of_the_averaged_probabilities_and_never_above_the_mean():
    # the two samples of the test above: the mixture gives the label (1/2 + 4/5) / 2 = 0.65
    nll = -torch.tensor([[0.5], [0.8]], dtype=torch.float64).log()
    assert mean_nll(nll, "mixture").item() == pytest.approx(-math.log(0.65), rel=1e-12)
    assert mean_nll(nll, "elbo").item() == pytest.approx((math.log(2) + math.log(5 / 4)) / 2, rel=1e-12)
    many = torch.rand(5, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 8
    assert mean_nll(many, "mixture") < mean_nll(many, "elbo")  # Jensen
    assert mean_nll(many[:1], "mixture").item() == pytest.approx(mean_nll(many[:1], "elbo").item(), rel=1e-12)


def test_the_mixture_does_not_punish_samples_for_disagreeing():
    """Two samples that disagree on one of two images fairly: the gradient of the elbo pulls both, the mixture's less."""
    probs = torch.tensor([0.9, 0.1], dtype=torch.float64)
    logits = (probs / (1 - probs)).log()[:, None].requires_grad_()
    pulls = [torch.autograd.grad(mean_nll(-logits.sigmoid().log(), of), logits)[0] for of in ("elbo", "mixture")]
    # d/dz of -log sigmoid(z) / 2 is -(1 - p) / 2; of the mixture -p (1 - p) / (p_1 + p_2)
    assert pulls[0].flatten().tolist() == pytest.approx([-0.05, -0.45])
    assert pulls[1].flatten().tolist() == pytest.approx([-0.09, -0.09])


@pytest.mark.parametrize("kappa", [0.0, 1e-3, 0.5, 2.0])
def test_the_kl_of_the_head_has_the_weight_1_over_n_for_every_kappa(kappa):
    logits, labels, zero = torch.zeros(1, 1, 2), torch.tensor([0]), torch.zeros(())
    without, with_head = (
        objective(CATEGORICAL.nll(logits, labels).mean(), zero[None], head, kappa, 10).loss for head in (zero, zero + 7)
    )
    assert (with_head - without).item() == pytest.approx(7 / 10, rel=1e-6)  # float32; kappa / n would give 0.7 * kappa


def test_with_kappa_one_half_the_loss_is_the_exact_negative_elbo():
    """n * loss = -E log p(D | w) + KL(q || p), with the KL of the path computed by hand."""
    model = build(strided(width=4, steps=4, drift="1-4-1", cut="full", head="meanfield")).double()
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=g, dtype=torch.float64))
    x, labels = torch.rand(6, 1, 8, 8, generator=g, dtype=torch.float64), torch.arange(6)
    weights = model.draw(1, g)
    logits = model.logits(x, weights)
    loss = objective(CATEGORICAL.nll(logits, labels).mean(), weights.kl, model.head.kl(), kappa=0.5, n_train=6)
    log_likelihood = logits[0].log_softmax(-1)[torch.arange(6), labels].sum()
    path = weights.paths[0]
    process = model.deep_blocks[0].process
    u = [
        (process.drift(path.ts[k], path.w[0, k]) - process.prior.drift(path.ts[k], path.w[0, k])) / 0.05
        for k in range(path.steps)
    ]
    path_kl = 0.5 * sum(u_k.square().sum() * (path.times[k + 1] - path.times[k]) for k, u_k in enumerate(u))
    assert path_kl.item() > 0.1
    negative_elbo = -log_likelihood + path_kl + model.head.kl()
    assert 6 * loss.loss.item() == pytest.approx(negative_elbo.item(), rel=1e-10)


def test_mean_over_images_does_not_depend_on_how_they_are_batched():
    """The published code summed batch means and divided by the number of images."""
    logits, labels = (
        torch.randn(1, 8, 3, generator=torch.Generator().manual_seed(0)),
        torch.tensor([0, 1, 2, 0, 1, 2, 0, 1]),
    )
    zero = torch.zeros(1)
    whole = objective(CATEGORICAL.nll(logits, labels).mean(), zero, zero[0], 1.0, 8).nll
    halves = [
        objective(CATEGORICAL.nll(logits[:, k : k + 4], labels[k : k + 4]).mean(), zero, zero[0], 1.0, 8).nll
        for k in (0, 4)
    ]
    assert whole.item() == pytest.approx(sum(h.item() for h in halves) / 2, rel=1e-6)


def test_kappa_rises_linearly_and_then_stays_constant():
    assert [kappa_at(e, 0.5, 4.0) for e in (0, 1, 4, 9)] == [0.0, 0.125, 0.5, 0.5]
    assert kappa_at(0, 0.5, 0.0) == 0.5


def test_schedules_have_the_correct_rates_at_start_middle_and_end():
    assert [rate("constant", p) for p in (0, 0.5, 1)] == [1, 1, 1]
    assert [rate("cosine", p) for p in (0, 0.5, 1)] == pytest.approx([1, 0.5, 0], abs=1e-12)
    assert [rate("one-cycle", p) for p in (0, 0.3, 1)] == pytest.approx([0.04, 1, 1e-4], abs=1e-12)
    assert rate("one-cycle", 0.15) == pytest.approx(0.52, abs=1e-12)
