"""Options are passed flat and read nested; a system has its own options and no others."""

from __future__ import annotations

import json
import pydoc

import pytest

from psdenets import BadInput, Config, preset
from psdenets.cli import parse
from psdenets.config import GROUPS, known_options
from psdenets.option_help import all_groups, group_help, most_used
from psdenets.options.fields import flag
from psdenets.systems import SYSTEMS
from psdenets.train import main

SCREEN = 50  # lines

# Every field of a config.json of format 2 for `--model resnet32`, including options that a ResNet does not use.
FORMAT_2 = {
    "preset": None, "cut": "none", "order": "ode-first", "ratio": 0.1, "share": 0.5, "t1": None, "t2": None,
    "at_t2": "continue", "scope": "block", "model": "resnet32", "block": "strided", "blocks": "2-1", "width": 8,
    "activation": "swish", "gain": 1.0, "augment_channels": 4, "squeeze_input": 1, "drift": "2-128-2",
    "drift_deterministic": None, "head": "deterministic", "sigma": 0.05, "theta": 1.0, "steps": 6, "sde_steps": None,
    "hidden_method": "euler", "rtol": 0.001, "atol": 0.001, "gradient": "backprop", "compile": False, "norm": "group",
    "prior_std": 0.1, "log_std": -4.0, "noise": "local", "member": "resnet32", "members": 3, "hessian": "kron",
    "predictive": "sampled", "laplace_of": None, "chains": 4, "warmup": 200, "draws": 200, "leapfrog": 50,
    "dataset": "mnist", "data_root": None, "download": False, "augment": "jitter", "val_share": 0.1, "split_seed": 3,
    "limit_train": None, "limit_test": None, "epochs": 2, "batch_size": 64, "piece": None, "samples": 1,
    "test_samples": 1, "epoch_samples": 1, "lr": 0.003, "drift_lr": 1.0, "schedule": "one-cycle", "clip": None,
    "ema": 0.0, "kappa": None, "kappa_base": 0.001, "kappa_warmup": 0.0, "select": "last", "seed": 5, "out": "runs/a",
    "device": "auto", "threads": None, "max_seconds": None, "max_seconds_of": None, "checkpoint_seconds": 30.0,
}  # fmt: skip


def test_flat_options_are_assigned_to_their_groups():
    config = Config(cut="vertical", ratio=0.25, sigma=0.1, lr=1e-3, width=8, seed=3)
    assert config.system.cut.window == (0.75, 1.0)
    assert (config.system.process.sigma, config.training.lr, config.system.net.width, config.seed) == (0.1, 1e-3, 8, 3)
    assert config.replace(sigma=0.2).system.process.sigma == 0.2
    assert config.replace(sigma=0.2).system.cut == config.system.cut


@pytest.mark.parametrize("model", SYSTEMS)
def test_a_config_can_be_rebuilt_from_its_flat_values(model):
    config = Config(model=model, seed=4)
    again = Config(**json.loads(json.dumps(config.as_dict())))
    assert again == config
    assert hash(again) == hash(config)
    assert again.replace(width=7).as_dict() == {**config.as_dict(), "width": 7}


def test_a_config_holds_only_the_options_of_its_system():
    values = Config(model="resnet32").as_dict()
    assert "norm" in values
    assert not {"cut", "sigma", "chains", "samples", "test_samples"} & values.keys()


def test_a_file_of_format_2_is_read_and_options_of_other_systems_are_ignored():
    assert len(FORMAT_2) == 72
    config = Config.read(FORMAT_2)
    values = config.as_dict()
    assert values.keys() - FORMAT_2.keys() == {
        "likelihood", "spread", "weight_decay", "mirror", "epoch_test", "log", "start_from",
        "image_size", "aspect", "cache_dir", "workers", "balance",
    }  # fmt: skip
    assert {name: FORMAT_2[name] for name in values if name in FORMAT_2} == {
        name: value for name, value in values.items() if name in FORMAT_2
    }
    assert config.system.resnet.norm == "group"
    with pytest.raises(BadInput, match="unknown option colour"):
        Config.read({**FORMAT_2, "colour": "red"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chains": 3}, "expected --chains with --model hmc only, got it with --model psde"),
        ({"model": "hmc", "lr": 0.1}, "expected --lr with --model psde or sde-bnn or"),
        ({"cut": "diagonal"}, "expected --cut to be one of 'none', 'full', .* got diagonal"),
        ({"model": "nothing"}, "expected --model to be one of psde, .* got nothing"),
        ({"lr": "fast"}, "expected --lr to be a number, got fast"),
        ({"epochs": 1.5}, "expected --epochs to be a whole number, got 1.5"),
        ({"epochs": True}, "expected --epochs to be a whole number, got True"),
        ({"blocks": 2}, "expected --blocks to be text, got 2"),
        ({"sigma": float("nan")}, "expected --sigma to be a number, got nan"),
        ({"f_h": "3-3", "block": "3-3"}, "expected either --f-h or --block, got both"),
        (
            {"f_h": "4-4"},
            "expected --block to be one of strided, 3-1-3, 3-3, pre-3, .* or module:attribute, got '4-4'",
        ),
        ({"batchsize": 3}, "unknown option batchsize; did you mean batch_size?"),
        ({"model": "ensemble", "member": "hmc"}, "expected --member to be one of 'resnet32', 'odenet', got hmc"),
        ({"model": "ensemble", "member": "odenet", "norm": "none"}, "expected --norm with --model"),
        ({"model": "ensemble", "batch_size": 1}, "expected --batch-size of 2 or more with batch normalisation"),
    ],
)
def test_a_wrong_option_raises_bad_input(options, message):
    with pytest.raises(BadInput, match=message):
        Config(**options)


def test_an_ensemble_passes_options_on_to_its_members():
    config = Config(model="ensemble", member="odenet", steps=3)
    assert config.system.flow.steps == 3
    assert config.system.final_samples == 3
    member = config.replace(model="odenet", seed=7)
    assert (member.system.flow.steps, member.seed) == (3, 7)
    assert "members" not in member.as_dict()


def test_an_integer_is_accepted_as_a_number():
    assert Config(lr=1).training.lr == 1.0
    assert Config(lr=1) == Config(lr=1.0)


def test_parsing_a_command_line_does_not_add_aliases_to_the_options():
    parse(["--f-h", "strided"])
    assert "f_h" not in known_options()


def test_pydoc_of_config_documents_every_option():
    text = pydoc.render_doc(Config)
    for name, option in known_options().items():
        assert f" {name}: {option.text}" in text, name


def test_every_option_is_in_one_group_and_every_group_fits_on_a_screen(capsys):
    for group in GROUPS:
        shown = group_help(group.replace(" ", "-"))
        assert len(shown.splitlines()) <= SCREEN
        assert max(map(len, shown.splitlines())) <= 110
        for name, option in known_options().items():
            assert (f"  {flag(name)} " in shown or f"  {flag(name)}\n" in shown) == (option.group == group), name
    assert len(most_used().splitlines()) <= SCREEN
    assert main(["--help", "cut"]) == 0
    assert "--at-t2" in capsys.readouterr().out
    assert main(["--help-all"]) == 0
    assert capsys.readouterr().out == all_groups()
    assert main(["--help", "cats"]) == 2
    assert "expected --help with one of cut, network," in capsys.readouterr().err


def test_a_preset_drops_options_its_system_lacks_but_overriding_one_is_an_error():
    assert "head" not in preset("mnist-odenet").as_dict()
    with pytest.raises(BadInput, match="expected --head with --model psde or sde-bnn only"):
        preset("mnist-odenet", head="meanfield")


def test_values_in_a_yaml_file_are_converted_to_the_types_of_their_options(tmp_path, capsys):
    (tmp_path / "run.yaml").write_text("lr: 1e-3\nblocks: 2\nclip: null\nf_h: 3-3\n")
    assert main(["--config", str(tmp_path / "run.yaml"), "--print_config"]) == 0
    shown = capsys.readouterr().out
    assert "lr: 0.001\n" in shown
    assert "blocks: '2'\n" in shown
    assert "clip: null\n" in shown
    assert "block: 3-3\n" in shown
