"""Training on a schedule of grids, `--steps 2,4,8`, and evaluating a run on other grids than the one of its training."""

from __future__ import annotations

import io
import json
from functools import partial

import pytest
import torch

from psdenets import BadInput, Config, build, evaluate, load, preset
from psdenets.cli import configure, parse
from psdenets.data import load_splits
from psdenets.models.windows import cuts_of, grid_of
from psdenets.runs.plots import metrics_by_steps
from psdenets.runs.predictions import predict
from psdenets.seeds import generator
from psdenets.train import main
from psdenets.training.display import Lines
from psdenets.training.loop import Trainer
from psdenets.training.micro_batches import kept_by_an_image

strided = partial(preset, "digits-strided")  # the network of the paper, at the size of the digits

SMALL = {
    "width": 2, "drift": "1-2-1", "ratio": 0.5, "limit_train": 64, "limit_test": 20, "batch_size": 16, "epochs": 3,
    "test_samples": 2,
}  # fmt: skip  # 12 training steps


def trainer_of(**options):
    config = strided(**{**SMALL, **options})
    return Trainer(config, load_splits(config), torch.device("cpu"))


def stepped(trainer, steps):
    """Train for some steps, with an evaluation after each epoch."""
    for _ in range(steps):
        trainer.step()
        if trainer.at.batch == trainer.batches:
            trainer.finish_epoch(lambda: None)
    return trainer


def grids(trainer):
    return {block.grid.steps for model in (trainer.model, trainer.evaluated) for block in model.deep_blocks}


@pytest.mark.parametrize("given", [6, "6"])
def test_one_count_is_a_number_and_does_not_refine(given):
    flow = strided(steps=given).system.flow
    assert (flow.steps, flow.counts, flow.finest, flow.starts) == (6, (6,), 6, (0.0,))


@pytest.mark.parametrize(
    "written", ["steps: 2,4,8", 'steps: "2, 4, 8"', '{"steps": "2,4,8"}', "steps: 2,4,8\nrefine_at: null"]
)
def test_a_schedule_can_be_read_from_files_and_is_written_back(written, tmp_path):
    (tmp_path / "c.yaml").write_text(written)
    config = configure(parse(["--config", str(tmp_path / "c.yaml")]))
    assert config.as_dict()["steps"] == "2,4,8"
    assert config.system.flow.counts == (2, 4, 8)
    assert Config.read(json.loads(json.dumps(config.as_dict()))) == config
    assert config.replace(steps=60).system.flow.counts == (60,)


@pytest.mark.parametrize("written", ["steps: 6", 'steps: "6"', '{"steps": 6}'])
def test_files_with_one_count_keep_loading(written, tmp_path):
    (tmp_path / "c.yaml").write_text(written)
    assert configure(parse(["--config", str(tmp_path / "c.yaml")])) == Config(steps=6)


def test_the_next_grid_starts_at_the_given_fraction_or_after_equal_parts():
    given, equal = (strided(steps="2,4,8", **at).system.flow for at in ({"refine_at": "0.5,0.8"}, {}))
    assert [given.steps_at(step / 10) for step in range(10)] == [2] * 5 + [4] * 3 + [8] * 2
    assert [equal.steps_at(step / 9) for step in range(9)] == [2] * 3 + [4] * 3 + [8] * 3
    assert strided(steps="2,4", refine_at="0.5") == strided(steps="2,4", refine_at=0.5)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--steps 0", "expected --steps like 6 or 2,4,8, increasing and at least 1, got 0"),
        ("--steps 8,4", "increasing and at least 1, got '8,4'"),
        ("--steps 4,4", "increasing and at least 1, got '4,4'"),
        ("--steps 2,,8", "like 6 or 2,4,8"),
        ("--steps 2,4.5", "like 6 or 2,4,8"),
        ("--steps 2,4,8 --refine-at 0.5", "expected 2 values of --refine-at"),
        ("--steps 2,4 --refine-at 0.5,0.8", "expected 1 values of --refine-at"),
        ("--steps 2,4,8 --refine-at 0.8,0.5", "expected --refine-at like 0.5 or 0.5,0.8, increasing and in (0, 1)"),
        ("--steps 2,4,8 --refine-at 0.5,1", "increasing and in (0, 1), got '0.5,1'"),
        ("--steps 2,4 --refine-at nan", "expected --refine-at to be a number, got nan"),
        ("--steps 6 --refine-at 0.5", "expected --refine-at with several --steps like 2,4,8, got --steps 6"),
        ("--steps 1,4", "expected --steps at least 2, one for each phase of the cut, got 1"),
        ("--steps 2,4 --sde-steps 4", "expected --sde-steps from 1 to 3"),
        ("--model odenet --hidden-method dopri5 --steps 2,4", "expected a --hidden-method with fixed steps"),
        ("--model resnet32 --steps 2,4", "expected --steps with --model"),
    ],
)
def test_impossible_schedules_are_refused_in_one_line(flags, message, tmp_path, capsys):
    assert main([*flags.split(), "--out", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_grid_on_which_predictions_would_not_depend_on_the_noise_is_refused():
    # on two steps, one of them noisy, the last Euler step of h starts before the noise
    with pytest.raises(BadInput, match="noise that affects the hidden state"):
        trainer_of(steps="2,4", hidden_method="euler")


def test_coarser_grids_have_stochastic_steps_in_proportion_but_at_least_two_if_possible():
    config = strided(steps="2,4,8,16", sde_steps=6, ratio=0.5)
    (cut,) = cuts_of(config)
    assert [grid_of(config, cut, n).sde.steps for n in (2, 4, 8, 16, 32)] == [1, 2, 3, 6, 12]
    assert grid_of(config, cut) == grid_of(config, cut, 16) == grid_of(config.replace(steps=16), cut)
    one = config.replace(sde_steps=1)
    assert [grid_of(one, cut, n).sde.steps for n in (2, 4, 8, 16, 32)] == [1, 1, 1, 1, 2]


def test_training_goes_through_the_grids_and_evaluates_on_the_current_one():
    trainer = trainer_of(steps="2,4,8", refine_at="0.25,0.5", ema=0.9)  # 12 steps: from steps 3 and 6 on
    found = []
    for _ in range(12):
        stepped(trainer, 1)
        found.append((trainer.solver_steps, *grids(trainer)))
    assert found == [(2, 2)] * 3 + [(4, 4)] * 3 + [(8, 8)] * 6
    assert [record["epoch"] for record in trainer.at.history] == [1, 2, 3]


def test_one_count_trains_exactly_like_a_schedule_before_its_first_refinement():
    whole, schedule = stepped(trainer_of(steps=4), 6), stepped(trainer_of(steps="4,8"), 6)
    one, other = (trainer.snapshot().tensors for trainer in (whole, schedule))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert whole.at.history[0]["val"] == schedule.at.history[0]["val"]
    stepped(schedule, 1)
    assert grids(schedule) == {8}


def test_a_run_that_ends_early_is_evaluated_on_the_last_grid():
    trainer = stepped(trainer_of(steps="2,4,8"), 1)
    assert grids(trainer) == {2}
    assert {block.grid.steps for block in trainer.finished().deep_blocks} == {8}


def test_the_best_epoch_is_one_of_the_last_grid():
    trainer = stepped(trainer_of(steps="2,4", refine_at=0.5, select="best"), 4)
    trainer.at.best_val = (2.0, 0.0)  # better than any later epoch
    stepped(trainer, 2)
    assert trainer.at.best_val == (2.0, 0.0)
    stepped(trainer, 2)
    assert trainer.at.best_epoch == 2


@pytest.mark.parametrize("done", [3, 5, 6, 7, 10])
def test_a_resumed_run_is_bit_identical(done):
    options = {"steps": "2,4,8", "refine_at": "0.25,0.5", "ema": 0.9, "select": "best"}
    whole = stepped(trainer_of(**options), 12)
    resumed = trainer_of(**options)
    resumed.restore(stepped(trainer_of(**options), done).snapshot())
    stepped(resumed, 12 - done)
    a, b = whole.snapshot(), resumed.snapshot()
    assert a.tensors.keys() == b.tensors.keys()
    assert all(torch.equal(a.tensors[name], b.tensors[name]) for name in a.tensors)
    timeless = [[{**r, "seconds": 0} for r in t.at.history] for t in (whole, resumed)]
    assert timeless[0] == timeless[1]


@pytest.mark.parametrize(("epochs", "grid"), [(0, 2), (1, 4)])
def test_a_run_stopped_before_the_evaluation_of_an_epoch_evaluates_on_the_same_grid(epochs, grid):
    options = {"steps": "2,4", "refine_at": 1 / 3}  # the second epoch is the first one on the finer grid
    first = stepped(trainer_of(**options), 4 * epochs)
    for _ in range(first.batches):
        first.step()
    second = trainer_of(**options)
    second.restore(first.snapshot())
    records = [t.finish_epoch(lambda: None) for t in (first, second)]
    assert grids(second) == {grid}
    assert records[0]["val"] == records[1]["val"]


def test_a_line_says_when_the_grid_is_refined():
    trainer, stream = trainer_of(steps="2,4,8", refine_at="0.25,0.5"), io.StringIO()
    lines = Lines(stream)
    for _ in range(8):
        lines.step(trainer, trainer.step())
        if trainer.at.batch == trainer.batches:
            trainer.finish_epoch(lambda: None)
    found = [line for line in stream.getvalue().splitlines() if "refined" in line]
    assert found == [f"epoch {e} batch {b}: refined to {n} steps per block" for e, b, n in ((1, 4, 4), (2, 3, 8))]


def test_the_estimate_of_the_remaining_time_counts_the_solver_steps():
    trainer = trainer_of(steps="2,4,8", refine_at="0.25,0.5")
    assert trainer.solver_steps_left == pytest.approx(3 * 2 + 3 * 4 + 6 * 8)
    stepped(trainer, 4)
    assert trainer.solver_steps_left == pytest.approx(2 * 4 + 6 * 8)
    stepped(trainer, 8)
    assert trainer.solver_steps_left == 0


def test_micro_batches_are_small_enough_for_the_finest_grid():
    spec = load_splits(strided()).spec
    schedule, finest = (kept_by_an_image(strided(**{**SMALL, "steps": steps}), spec) for steps in ("2,4,8", 8))
    assert schedule == finest


@pytest.mark.parametrize("model", ["odenet", "mfvi-odenet", "mfvi-hyperodenet"])
def test_networks_without_a_process_of_noise_are_refined_too(model):
    own = {"drift": "1-2-1"} if model == "mfvi-hyperodenet" else {}
    options = {name: value for name, value in SMALL.items() if name not in ("drift", "ratio", "test_samples")}
    x = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    config = Config(model=model, **options, **own, steps="2,4")
    trainer = Trainer(config, load_splits(config), torch.device("cpu"))
    coarse, fine = (build(config.replace(steps=steps)).eval() for steps in (2, 4))
    logits = torch.no_grad()(lambda net: net.logits(x, net.mean_weights()))
    for net in (coarse, fine):
        net.load_state_dict(trainer.model.state_dict())
    assert torch.equal(logits(trainer.model), logits(coarse))
    assert torch.equal(logits(trainer.finished()), logits(fine))
    assert not torch.equal(logits(coarse), logits(fine))


@pytest.fixture(scope="module")
def refined_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "refined"
    flags = [text for name, value in SMALL.items() for text in ("--" + name.replace("_", "-"), str(value))]
    assert main(["--out", str(path), "--preset", "digits-strided", *flags, "--steps", "2,4", "--sde-steps", "2"]) == 0
    return path


def evaluated(run, out, *flags):
    assert evaluate.main([str(run), "--out", str(out), *flags]) == 0
    return json.loads((out / "metrics.json").read_text())


def test_a_refined_run_is_evaluated_on_its_last_grid(refined_run, tmp_path):
    result = evaluated(refined_run, tmp_path / "e")
    final = json.loads((refined_run / "metrics.json").read_text())
    assert result["steps"] == 4
    assert [result["metrics"][name] for name in ("accuracy", "nll")] == [final[name] for name in ("accuracy", "nll")]
    assert "by_steps" not in result


def test_a_run_is_evaluated_on_any_grid(refined_run, tmp_path):
    result = evaluated(refined_run, tmp_path / "e", "--steps", "12")
    model = load(refined_run, steps=12)
    found = predict(model, load_splits(model.config).test, 2, generator(0, "final")).metrics()
    assert result["steps"] == 12
    assert result["metrics"]["nll"] == pytest.approx(found["nll"], rel=1e-12)
    assert [block.grid.steps for block in model.deep_blocks] == [12]
    assert [block.grid.sde.steps for block in model.deep_blocks] == [6]  # --sde-steps 2 of 4
    assert not (tmp_path / "e" / "steps.png").exists()


def test_several_grids_are_evaluated_plotted_and_shown_as_a_table(refined_run, tmp_path, capsys, rendered):
    result = evaluated(refined_run, tmp_path / "e", "--steps", "2,4,8")
    assert list(result["by_steps"]) == ["2", "4", "8"]
    assert result["steps"] == 8
    assert result["by_steps"]["8"]["nll"] == result["metrics"]["nll"]
    final = json.loads((refined_run / "metrics.json").read_text())
    assert result["by_steps"]["4"]["nll"] == final["nll"]
    assert result["by_steps"]["2"]["nll"] != final["nll"]
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("steps ")] == list(
        "248"
    )
    assert (tmp_path / "e" / "steps.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("1", "expected --steps at least 2, one for each phase of the cut, got 1"),
        ("1,8", "expected --steps at least 2, one for each phase of the cut, got 1"),
        ("8,4", "expected --steps like 6 or 2,4,8, increasing and at least 1, got 8,4"),
        ("many", "expected --steps like 6 or 2,4,8"),
    ],
)
def test_a_grid_that_does_not_fit_is_refused_in_one_line_and_writes_nothing(
    steps, message, refined_run, tmp_path, capsys
):
    assert evaluate.main([str(refined_run), "--out", str(tmp_path / "e"), "--steps", steps]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize(("model", "got"), [("odenet", "--hidden-method dopri5"), ("resnet32", "--model resnet32")])
def test_a_run_without_a_fixed_number_of_steps_is_refused(model, got, run_of, tmp_path, capsys):
    assert evaluate.main([str(run_of(model)), "--out", str(tmp_path / "e"), "--steps", "8"]) == 2
    assert f"a scheme with fixed steps, got {got}" in capsys.readouterr().err
    assert evaluated(run_of(model), tmp_path / "e")["steps"] is None


@pytest.mark.parametrize("model", ["mfvi-odenet", "mfvi-hyperodenet"])
def test_odenets_with_fixed_steps_are_evaluated_on_any_grid(model, run_of, tmp_path):
    result = evaluated(run_of(model), tmp_path / "e", "--steps", "3,6", "--samples", "2")
    assert result["by_steps"]["3"]["nll"] != result["by_steps"]["6"]["nll"]


def test_ticks_of_many_grids_keep_their_distance_and_include_the_last():
    row = {"accuracy": 0.9, "nll": 0.3, "ece": 0.1}
    figure = metrics_by_steps(dict.fromkeys((*range(2, 12), 16, 60), row), trained=8)
    ticks = [int(tick) for tick in figure.axes[0].get_xticks()]
    assert sorted(ticks) == [2, 4, 7, 11, 16, 60]
