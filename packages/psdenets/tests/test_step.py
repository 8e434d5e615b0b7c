"""A training step is one module that maps images, labels and a generator to losses."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from psdenets import build, preset
from psdenets.models.likelihoods import CATEGORICAL
from psdenets.training.step import TrainingStep

strided = partial(preset, "digits-strided")  # the network of the paper, at the size of the digits


def at(seed=0):
    return torch.Generator().manual_seed(seed)


def step_of(n_train=50, samples=2, piece=None, **options):
    model = build(strided(width=4, steps=4, drift="1-4-1", **options)).double()
    with torch.no_grad():
        g = at(7)
        for p in model.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return TrainingStep(model, CATEGORICAL, n_train, samples, piece)


IMAGES, LABELS = torch.rand(6, 1, 8, 8, generator=at(1), dtype=torch.float64), torch.arange(6)


def test_the_loss_is_nll_plus_tempered_kl_plus_head_kl():
    step = step_of(head="meanfield", cut="full")
    losses = step(IMAGES, LABELS, at(), 0.25)
    weights = step.model.draw(2, at())
    logits = step.model.logits(IMAGES, weights)
    assert torch.equal(losses.logits, logits)
    nll = -logits.log_softmax(-1)[:, torch.arange(6), LABELS].mean()
    expected = nll + (2 * 0.25 * weights.kl.mean() + step.model.head_kl()) / 50
    assert losses.kl.item() > 0
    assert losses.head_kl.item() > 0
    assert losses.loss.item() == pytest.approx(expected.item(), rel=1e-12)


def test_a_step_in_micro_batches_has_the_gradient_of_the_whole_batch():
    gradients = []
    for piece in (None, 4):
        step = step_of(piece=piece, cut="full")
        losses = step(IMAGES, LABELS, at(), 0.5)
        assert losses.logits.requires_grad == (piece is None)  # the backward passes of micro-batches have already run
        losses.loss.backward()
        gradients.append([p.grad for p in step.parameters()])
    assert any(g.abs().max() > 1e-3 for g in gradients[0])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)  # the same sums in another order


def test_the_generator_is_the_only_source_of_randomness():
    step = step_of(cut="full", sigma=1.0)
    first, again, other = (step(IMAGES, LABELS, at(seed), 0.5).loss.item() for seed in (0, 0, 1))
    assert first == again != other


def test_a_training_step_has_the_parameters_of_its_model():
    step = step_of()
    assert {id(p) for p in step.parameters()} == {id(p) for p in step.model.parameters()}
