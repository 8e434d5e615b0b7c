"""All commands work with a hidden drift, a prior, a likelihood and a data set from the user's own Python file."""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from psdenets import BadInput, Config, build, load
from psdenets.data import load_splits
from psdenets.evaluate import main as evaluate
from psdenets.predict import main as predict
from psdenets.references import resolve, restore, sources
from psdenets.runs.directory import RunDir
from psdenets.train import main

CODE = """
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from psdenets.models.likelihoods import Categorical
from sdeweights import OrnsteinUhlenbeck, Prior


class Drift(nn.Module):
    def __init__(self, channels, width, activation, generator):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        with torch.no_grad():
            self.conv.weight.copy_(0.1 * torch.randn(self.conv.weight.shape, generator=generator))
            self.conv.bias.zero_()

    def forward(self, t, h):
        return torch.tanh(self.conv(h)) * (1 + t)


def prior(*, sigma, theta):
    return OrnsteinUhlenbeck(theta=2 * theta, sigma=sigma)


def load(root):
    digits = load_digits()
    few = digits.target < 3
    pixels = np.round(digits.images[few] * (255 / 16)).astype(np.uint8)
    return pixels, digits.target[few], ["zero", "one", "two"]


class HalfTempered(Categorical):
    def nll(self, outputs, targets):
        return 0.5 * super().nll(outputs, targets)


def sine(*, sigma, theta):
    return Prior(lambda t, w: -theta * torch.sin(w), lambda t, w: sigma * torch.ones_like(w))


def number(*args, **kwargs):
    return 3
"""
OWN = ["--f-h", "mynets:Drift", "--prior", "mynets:prior", "--dataset", "mynets:load"]
OWN += ["--likelihood", "mynets:HalfTempered"]
BRIEF = ["--epochs", "1", "--width", "4", "--drift", "1-4-1", "--batch-size", "32", "--test-samples", "2"]


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The current directory, with mynets.py in it."""
    (tmp_path / "mynets.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "mynets", raising=False)
    yield tmp_path
    sys.modules.pop("mynets", None)


def forget():
    sys.modules.pop("mynets", None)


def elsewhere(path, monkeypatch):
    """Change to a new directory and forget mynets, as in a later session."""
    path.mkdir()
    monkeypatch.chdir(path)
    forget()


def test_all_commands_work_with_the_users_own_code(own, monkeypatch, capsys):
    run = own / "run"
    assert main([*OWN, *BRIEF, "--out", str(run)]) == 0
    config = json.loads((run / "config.json").read_text())
    assert config["block"] == "mynets:Drift"
    assert config["sources"]["mynets"]["file"] == str(own / "mynets.py")
    assert len(config["sources"]["mynets"]["sha256"]) == 64
    assert "mynets:Drift" in (run / "report.html").read_text()

    elsewhere(own / "other", monkeypatch)
    model = load(run, allow_code=True)
    process = model.deep_blocks[0].process
    assert type(model.likelihood).__name__ == "HalfTempered"
    assert model.spec.classes == ("zero", "one", "two")
    assert process.prior.drift(process.w0.new_zeros(()), process.w0.detach() * 0 + 1)[0].item() == pytest.approx(-2.0)
    with np.load(run / "predictions.npz") as archive:
        assert archive["probs"].shape[2] == 3
    forget()
    assert evaluate([str(run), "--samples", "2", "--allow-code"]) == 0
    Image.fromarray(np.zeros((8, 8), np.uint8)).save("black.png")
    forget()
    capsys.readouterr()
    assert predict([str(run), "black.png", "--json", "--allow-code"]) == 0
    assert set(json.loads(capsys.readouterr().out)["probabilities"]) == {"zero", "one", "two"}


def test_a_resumed_run_with_the_users_own_code_ends_with_the_same_bytes(own, monkeypatch):
    whole, cut = own / "whole", own / "cut"
    flags = [*OWN, *BRIEF, "--epochs", "2"]
    assert main([*flags, "--out", str(whole)]) == 0
    from psdenets.training.loop import Trainer

    real, left = Trainer.step, [9]

    def step(self):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", step)
        assert main([*flags, "--checkpoint-seconds", "0", "--out", str(cut)]) == 130
    elsewhere(own / "later", monkeypatch)
    assert main(["--resume", "--allow-code", "--out", str(cut)]) == 0
    assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


@pytest.mark.parametrize("recorded", [True, False], ids=["with its file", "without"])
def test_no_code_of_a_run_directory_is_executed_without_consent(recorded, own, capsys):
    """A run directory may come from someone else, so neither its references nor its files are imported."""
    run = own / "run"
    assert main(["--f-h", "mynets:Drift", *BRIEF, "--limit-train", "64", "--out", str(run)]) == 0
    witness = own / "executed"
    evil = f"open({str(witness)!r}, 'w')\n"
    (own / "mynets.py").write_text(evil)
    config = json.loads((run / "config.json").read_text())
    digest = hashlib.sha256(evil.encode()).hexdigest()
    config["sources"] = {"mynets": {"file": str(own / "mynets.py"), "sha256": digest}} if recorded else {}
    (run / "config.json").write_text(json.dumps(config))
    RunDir(run).record()
    forget()
    for command, flags in ((predict, ["x.png"]), (evaluate, [])):
        capsys.readouterr()
        assert command([str(run), *flags]) == 2
        assert "refers to code outside psdenets (mynets:Drift), which would be executed" in capsys.readouterr().err
    (run / "metrics.json").unlink()
    assert main(["--resume", "--out", str(run)]) == 2
    with pytest.raises(BadInput, match="allow_code=True"):
        load(run)
    assert not witness.exists()


def test_changed_code_is_not_executed_even_with_consent(own):
    run = own / "run"
    assert main(["--f-h", "mynets:Drift", *BRIEF, "--limit-train", "64", "--out", str(run)]) == 0
    (own / "mynets.py").write_text(f"open({str(own / 'executed')!r}, 'w')\n")
    forget()
    with pytest.raises(BadInput, match="as it was when the run began"):
        load(run, allow_code=True)
    assert not (own / "executed").exists()


def test_code_that_has_changed_or_is_missing_gives_a_one_line_error(own, monkeypatch, capsys):
    run = own / "run"
    assert main(["--f-h", "mynets:Drift", *BRIEF, "--limit-train", "64", "--out", str(run)]) == 0
    elsewhere(own / "other", monkeypatch)
    (own / "mynets.py").write_text(CODE + "\n# changed\n")
    with pytest.raises(BadInput, match="as it was when the run began"):
        load(run, allow_code=True)
    (own / "mynets.py").unlink()
    forget()
    capsys.readouterr()
    assert predict([str(run), "x.png", "--allow-code"]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert f"no module mynets for 'mynets' in {own / 'other'}" in line
    # a file with the same name and content in the current directory is used instead
    (own / "other" / "mynets.py").write_text(CODE)
    assert load(run, allow_code=True).config.system.flow.block == "mynets:Drift"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--f-h", "mynets:Nothing"], "no attribute Nothing in"),
        (["--f-h", "nowhere:Drift"], "no module nowhere for 'nowhere:Drift' in"),
        (["--f-h", "broken:Drift"], "importing broken for 'broken:Drift' failed: ZeroDivisionError"),
        (["--f-h", "mynets:number"], "expected the hidden drift mynets:number to make an nn.Module, got int"),
        (["--prior", "mynets:number"], "expected the prior mynets:number to make an sdeweights.Prior, got int"),
        (["--dataset", "mynets:number"], "expected mynets:number to return a Pool or (pixels, labels, class names)"),
        (["--f-h", "3-3", "--block", "3-3"], "expected either --f-h or --block, got both"),
        (["--f-h", "mynets:sine"], "expected mynets:sine with the signature in the README of psdenets"),
        (["--prior", "mynets:Drift"], "got: missing a required argument"),
        (["--dataset", "mynets:sine"], "expected mynets:sine with the signature"),
        (["--likelihood", "mynets:number"], "expected mynets:number to make a Likelihood, got int"),
        (["--solver", "nothing"], "expected solver to be one of"),
        (["--ode-solver", "nothing"], "expected ode_solver to be one of"),
        (["--prior", "mynets:sine"], "another prior"),
        (
            ["--preset", "digits-strided", "--prior", "mynets:sine", "--piece", "4"],
            "choose --solver euler --ode-solver euler",
        ),
        (["--prior", "brownian", "--theta", "2"], "expected --theta with --prior ou"),
    ],
)
def test_a_mistake_in_a_reference_gives_a_one_line_error(flags, message, own, capsys):
    (own / "broken.py").write_text("1 / 0\n")
    assert main([*flags, "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (own / "run").exists()


def test_two_runs_may_refer_to_different_files_of_the_same_name(tmp_path, monkeypatch):
    """In one process, each run gets the code of its own file, even if the file is in a package."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("a", 1), ("b", 2)):
        (tmp_path / name / "pack").mkdir(parents=True)
        (tmp_path / name / "pack" / "__init__.py").write_text("")
        (tmp_path / name / "pack" / "mine.py").write_text(f"value = {value}\n")
    recorded = []
    for name in ("a", "b"):
        monkeypatch.chdir(tmp_path / name)
        for module in ("pack", "pack.mine"):
            sys.modules.pop(module, None)
        recorded.append(sources(["pack.mine:value"]))
    values = []
    for run in (*recorded, recorded[0]):
        restore(run)
        values.append(resolve("pack.mine:value"))
    assert values == [1, 2, 1]


def test_resolve_imports_any_module():
    assert resolve("math:pi") == pytest.approx(np.pi)


def test_a_brownian_prior_has_no_drift():
    process = build(Config(prior="brownian", width=2, drift="1-2-1")).deep_blocks[0].process
    w = process.w0.detach() + 1
    assert process.prior.drift(w.new_zeros(()), w).abs().max() == 0


@pytest.mark.parametrize("schemes", [("euler", "euler"), ("heun", "rk4"), ("torchsde:euler", "torchdiffeq:midpoint")])
def test_any_scheme_of_sdeweights_integrates_the_weights(schemes, own):
    solver, ode_solver = schemes
    config = Config(cut="vertical", ratio=0.5, prior="mynets:sine", width=2, drift="1-2-1", sigma=1.0,
                    solver=solver, ode_solver=ode_solver)  # fmt: skip
    block = build(config).deep_blocks[0]
    path = block.draw(2, torch.Generator().manual_seed(0))
    again = block.process.sample(
        block.grid, 2, generator=torch.Generator().manual_seed(0), solver=solver, ode_solver=ode_solver
    )
    assert torch.equal(path.w, again.w)
    euler = block.process.sample(block.grid, 2, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(path.w, euler.w, atol=1e-6) == (schemes == ("euler", "euler"))


def test_the_users_own_data_set_is_split_like_any_other(own):
    config = Config(dataset="mynets:load")
    splits = load_splits(config)
    assert splits.spec.size == "1 x 8 x 8"
    assert (len(splits.test), len(splits.val)) == (107, 43)  # a fifth of 537, a tenth of the rest
    assert set(splits.train.labels.tolist()) == {0, 1, 2}
