"""A batch that is processed in micro-batches has the gradient of the whole batch."""

from __future__ import annotations

import platform
import subprocess
import sys
from functools import partial

import pytest
import torch

from psdenets import BadInput, build, preset
from psdenets.data import load_splits
from psdenets.data.spec import SPECS
from psdenets.models.likelihoods import CATEGORICAL
from psdenets.training.allocator import keep_freed_memory
from psdenets.training.loop import Diverged, Trainer
from psdenets.training.micro_batches import in_pieces, kept_by_an_image, size_for
from psdenets.training.objective import mean_nll, objective

strided = partial(preset, "digits-strided")  # the network of the paper, at the size of the digits

CUTS = {
    "none": {"cut": "none"},
    "full": {"cut": "full"},
    "ode-first": {"cut": "vertical", "ratio": 0.25},
    "fixed": {"cut": "vertical", "order": "sde-first", "ratio": 0.25, "at_t2": "fixed"},
    "learned": {"cut": "vertical", "order": "sde-first", "ratio": 0.25, "at_t2": "learned"},
    "both": {"cut": "both", "ratio": 0.25, "share": 0.5},
    "network": {"cut": "vertical", "ratio": 0.25, "scope": "network", "blocks": "1-1"},
}


def moved(config):
    g = torch.Generator().manual_seed(7)
    model = build(config).double()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.05 * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return model


def gradients(model, loss):
    return torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)


@pytest.mark.parametrize("size", [1, 3, 4, 7])
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("of", ["elbo", "mixture"])
def test_the_gradient_in_micro_batches_equals_that_of_the_batch(cut, size, of):
    def nll(logits, labels):
        return mean_nll(CATEGORICAL.nll(logits, labels), of)

    config = strided(width=4, steps=8, drift="1-4-1", samples=2, head="meanfield", **CUTS[cut])
    model = moved(config)
    g = torch.Generator().manual_seed(0)
    x, labels = torch.rand(7, 1, 8, 8, generator=g, dtype=torch.float64), torch.arange(7)
    weights = model.draw(2, torch.Generator().manual_seed(1))
    whole = objective(nll(model.logits(x, weights), labels), weights.kl, model.head_kl(), 0.5, 7)
    expected = gradients(model, whole.loss)
    weights = model.draw(2, torch.Generator().manual_seed(1))
    pieces = in_pieces(model, nll, x, labels, weights, size)
    loss = objective(pieces.nll, weights.kl, model.head_kl(), 0.5, 7)
    assert loss.loss.item() == pytest.approx(whole.loss.item(), rel=1e-12)
    assert not pieces.logits.requires_grad
    for a, b in zip(gradients(model, loss.loss), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)  # the same sums in another order
    assert any(b.abs().max() > 1e-3 for b in expected)


def test_training_in_micro_batches_ends_with_the_same_weights_as_with_whole_batches():
    config = strided(width=4, steps=4, drift="1-4-1", batch_size=16, limit_train=64, limit_test=10, cut="full")
    ends = []
    for piece in (None, 5, 16, 99):
        trainer = Trainer(config.replace(piece=piece), load_splits(config), torch.device("cpu"))
        reports = [trainer.step() for _ in range(3)]
        ends.append((torch.cat([p.detach().flatten() for p in trainer.model.parameters()]), reports))
    for weights, reports in ends[1:]:
        # Adam divides by the root of a squared gradient, which magnifies rounding of the smallest gradients
        torch.testing.assert_close(weights, ends[0][0], rtol=0, atol=1e-3)
        assert [r.nll for r in reports] == pytest.approx([r.nll for r in ends[0][1]], rel=1e-4)
    assert torch.equal(ends[2][0], ends[0][0])  # a micro-batch as large as the batch is the whole batch
    assert torch.equal(ends[3][0], ends[0][0])


@pytest.mark.parametrize(("gradient", "steps"), [("backprop", 16), ("checkpoint", 8), ("adjoint", 2 * 17 / 16)])
@pytest.mark.parametrize("samples", [1, 3])
def test_the_bytes_kept_per_image_agree_with_a_count_by_hand(gradient, steps, samples):
    """Per step and sample, two numbers for each activation (strided: 64 + 16 + 64 pixels of four channels) and h itself.

    Checkpointing keeps the states of four segments and the four steps of one of them; the adjoint keeps one step forward
    and one backward. The scheme of the adjoint evaluates f_h 17 times in 16 steps.
    """
    config = strided(width=4, steps=16, drift="1-4-1", activation="softplus", squeeze_input=0, augment_channels=0,
                    cut="full", gradient=gradient, samples=samples)  # fmt: skip
    expected = samples * steps * 4 * (2 * 4 * (64 + 16 + 64) + 64)
    assert kept_by_an_image(config, SPECS["digits"]) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("name", ["mnist-ode-first", "cifar10-ode-first", "cifar10-cpu-ode-first"])
def test_micro_batches_of_a_preset_keep_at_most_two_gigabytes(name):
    config = preset(name)
    kept = kept_by_an_image(config, SPECS[config.dataset])
    size = size_for(128, kept)
    assert size * kept <= 2e9
    assert size in {"mnist-ode-first": {64}, "cifar10-ode-first": range(16, 33), "cifar10-cpu-ode-first": {128}}[name]


@pytest.mark.parametrize("batch", [1, 10, 128])
@pytest.mark.parametrize("kept", [0, 1, 700_000_000, 1_980_000_000, 10**12])
def test_a_micro_batch_keeps_at_most_two_gigabytes_or_is_one_image(batch, kept):
    size = size_for(batch, kept)
    assert size == 1 or size * kept <= 2e9
    assert 1 <= size <= batch


def test_a_network_that_diverges_immediately_is_reported_in_its_first_step():
    config = strided(
        width=4, steps=4, drift="1-4-1", batch_size=16, limit_train=64, limit_test=10, cut="full", gain=1e30
    )
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    with pytest.raises(Diverged):
        trainer.step()


def test_a_micro_batch_of_zero_images_is_refused():
    with pytest.raises(BadInput, match="expected --piece at least 1, got 0"):
        strided(piece=0)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_freed_memory_is_reused_instead_of_returned_to_the_system():
    script = """
import resource, sys, torch
from psdenets.models.likelihoods import CATEGORICAL
from psdenets.training.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
torch.set_num_threads(1)
for _ in range(5):
    blocks = [torch.ones(2**24) for _ in range(4)]  # 64 MB each
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    del blocks
    blocks = [torch.ones(2**24) for _ in range(4)]
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    del blocks
print(faults)
"""
    kept, plain = (
        int(subprocess.run([sys.executable, "-c", script, how], capture_output=True, text=True, check=True).stdout)
        for how in ("keep", "plain")
    )
    assert kept < 100  # four blocks are 65,536 pages
    assert plain > 10 * kept  # without the setting, all of them are requested from the system again


def test_environment_variables_of_the_allocator_take_precedence(monkeypatch):
    monkeypatch.setenv("MALLOC_MMAP_MAX_", "10")
    assert not keep_freed_memory()
