from __future__ import annotations

import json

import pytest
import yaml

from psdenets.config import Config
from psdenets.train import main


def failing(capsys, *args):
    """Run training with a bad command line and return its one-line error message."""
    status = main([str(a) for a in args])
    out, err = capsys.readouterr()
    assert status == 2
    assert err.count("\n") == 1
    assert err.startswith("psdenets.train: error: ")
    assert out == ""
    return err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--ratio", "0"], "expected --ratio in (0, 1], got 0.0"),
        (["--ratio", "1.5"], "expected --ratio in (0, 1], got 1.5"),
        (["--t1", "0.6", "--t2", "0.3"], "expected 0 <= t1 < t2 <= 1, got t1=0.6, t2=0.3"),
        (["--t1", "0.5", "--t2", "0.5"], "expected 0 <= t1 < t2 <= 1"),
        (["--t1", "0.2"], "expected --t1 and --t2 together"),
        (["--cut", "horizontal", "--t1", "0.1", "--t2", "0.2"], "expected --t1 with --cut vertical or both only"),
        (["--cut", "horizontal", "--ratio", "0.3"], "expected --ratio with --cut vertical or both only"),
        (["--cut", "vertical", "--share", "0.3"], "expected --share with --cut horizontal or both only"),
        (["--cut", "full", "--scope", "network"], "--scope"),
        (["--t1", "0.1", "--t2", "0.2", "--ratio", "0.3"], "expected either --t1 and --t2 or --ratio and --order"),
        (["--at-t2", "learned"], "expected --at-t2 learned with depth left after t2 < 1"),
        (["--t1", "0.2", "--t2", "0.8", "--steps", "2"], "expected --steps at least 3, one for each phase"),
        (["--preset", "mnist-odefirst"], "did you mean mnist-ode-first"),
        (["--batchsize", "3"], "unknown flag --batchsize; did you mean --batch-size?"),
        (["--batch_size", "3"], "unknown flag --batch_size; did you mean --batch-size?"),
        (
            ["--cut", "diagonal"],
            "expected --cut to be one of 'none', 'full', 'vertical', 'horizontal', 'both', got diagonal",
        ),
        (["--epochs", "many"], "expected --epochs to be a whole number, got many"),
        (["--epochs", "0"], "expected --epochs at least 1, got 0"),
        (["--lr", "nan"], "expected --lr to be a number, got nan"),
        (["--batch-size", "5000"], "expected --batch-size of at most the 1294 training images, got 5000"),
        (["--blocks", "2-x"], "expected --blocks like"),
        (["--sde-steps", "6"], "expected --sde-steps from 1 to 3"),
        (["--cut", "full", "--sde-steps", "2"], "expected --sde-steps only with a cut in depth"),
        (["--drift", "wide"], "expected --drift like"),
        (["--cut", "horizontal", "--share", "1e-6"], "expected a share of at least one"),
        (["--blocks", "1-1-1-1-1"], "that can be halved 5 times"),
        (["--preset", "digits-strided", "--blocks", "1-1-1-1-1"], "multiples of 32"),
        (["--model", "odenet", "--cut", "none"], "expected --cut with --model psde only, got it with --model odenet"),
        (["--device", "cuda:7"], "--device cuda:7: not available on this machine"),
        (["--resume"], "expected --out RUN_DIR with --resume"),
        (["--resume", "False"], "False"),  # the published code's --fix_w1 False meant True
        (["--dataset", "mnist", "--data-root", "nowhere"], "no mnist under nowhere: looked for MNIST/raw/"),
        (["--config", "no-such-file.yaml"], "no-such-file.yaml"),
    ],
)
def test_bad_input_gives_a_one_line_error_and_exit_status_2(args, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert message in failing(capsys, *args)
    assert list(tmp_path.iterdir()) == []


def test_the_error_for_missing_data_names_the_directory_and_both_remedies(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("PSDENETS_DATA", str(tmp_path / "here"))
    line = failing(capsys, "--dataset", "cifar10")
    assert f"no cifar10 under {tmp_path / 'here'}" in line
    assert "cifar-10-batches-bin/data_batch_1.bin" in line
    assert "--data-root" in line
    assert "--download" in line


def test_a_directory_that_contains_a_run_is_left_unchanged(capsys, small_run, small):
    before = {path: path.stat().st_mtime_ns for path in small_run.rglob("*")}
    assert "holds a run" in failing(capsys, "--out", small_run, *small)
    assert {path: path.stat().st_mtime_ns for path in small_run.rglob("*")} == before


def test_a_directory_with_other_files_is_left_unchanged(capsys, tmp_path, small):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "holds other files" in failing(capsys, "--out", tmp_path, *small)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_output_of_print_config_can_be_passed_to_config(capsys, tmp_path):
    assert main(["--preset", "mnist-fix-w2", "--seed", "7", "--print_config"]) == 0
    text = capsys.readouterr().out
    values = yaml.safe_load(text)
    assert Config(**values).system.cut.at_t2 == "learned"
    (tmp_path / "run.yaml").write_text(text)
    assert main(["--config", str(tmp_path / "run.yaml"), "--lr", "0.5", "--print_config"]) == 0
    again = yaml.safe_load(capsys.readouterr().out)
    assert again == {**values, "lr": 0.5}


def test_flags_override_the_preset(capsys):
    main(["--preset", "mnist-ode-first", "--steps", "5", "--print_config"])
    values = yaml.safe_load(capsys.readouterr().out)
    assert (values["steps"], values["lr"], values["dataset"]) == (5, 1e-3, "mnist")


def test_a_baseline_needs_no_cut(capsys):
    main(["--model", "odenet", "--print_config"])
    values = yaml.safe_load(capsys.readouterr().out)
    assert "cut" not in values
    assert values["steps"] == 6


def test_presets_are_listed(capsys):
    assert main(["--list-presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("cifar10-ode-first-70 ") and "(0.3, 1)" in line for line in lines)


def test_help_lists_the_documented_flags(command):
    result = command("train", "--help")
    assert result.returncode == 0
    documented = (
        "--cut --order --ratio --share --t1 --t2 --at-t2 --model --preset --dataset --data-root --epochs --steps "
        "--batch-size --samples --test-samples --seed --limit-train --limit-test --out --resume --device --max-seconds "
        "--scope --head --kappa --config --print_config --list-presets"
    )
    for name in documented.split():
        assert f"{name} " in result.stdout or f"{name}\n" in result.stdout, name


def test_help_and_print_config_import_neither_torch_nor_sklearn_nor_matplotlib():
    import subprocess
    import sys

    code = (
        "import sys; from psdenets.train import main; main(['--help-all']); main(['--print_config']); "
        "print(sorted({'torch', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.endswith(
        "\n[]\n"
    )


def test_the_config_of_a_run_can_be_used_for_another_run(small_run, capsys):
    assert main(["--config", str(small_run / "config.json"), "--out", "elsewhere", "--print_config"]) == 0
    values = yaml.safe_load(capsys.readouterr().out)
    assert values == {**json.loads((small_run / "config.json").read_text()), "out": "elsewhere"}
