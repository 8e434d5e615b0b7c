"""Tables and likelihoods of numbers: densities against scipy, metrics against numerical integration, runs on tables."""

from __future__ import annotations

import csv
import json
import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from psdenets import BadInput, Config, Run, build, compare_runs, fit, runs_table
from psdenets.data import load_splits, table_files
from psdenets.data.table_files import read_csv
from psdenets.data.tables import table_of
from psdenets.evaluate import main as evaluate
from psdenets.models.regression import cauchy, gaussian, laplace, student_t
from psdenets.predict import main as predict
from psdenets.runs.bounds import evidence_bounds
from psdenets.runs.noise import variance_share
from psdenets.train import main as train

FAMILIES = {"gaussian": (gaussian, stats.norm), "laplace": (laplace, stats.laplace),
            "student-t": (student_t, stats.t(4)), "cauchy": (cauchy, stats.cauchy)}  # fmt: skip
TINY = {"width": 4, "steps": 2, "drift": "1-4-1", "epochs": 2, "test_samples": 3, "threads": 1}


def softplus_from_one(raw):
    return math.log1p((math.e - 1) * math.exp(raw)) + 1e-4


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("predicted", [False, True])
def test_the_nll_is_that_of_scipy_in_the_unit_of_the_target(name, predicted):
    make, law = FAMILIES[name]
    likelihood = make((10.0, 4.0), predicted)
    assert likelihood.outputs(1) == 1 + predicted
    raw = 0.3
    if not predicted:
        torch.nn.init.constant_(likelihood.raw_scale, raw)
    outputs = torch.tensor([[[0.5, raw]], [[-1.0, raw]]], dtype=torch.float64)[..., : 1 + predicted]
    scale = 4 * softplus_from_one(torch.tensor(raw).item())
    expected = [-law.logpdf(13.0, 10 + 4 * m, scale) for m in (0.5, -1.0)] if name != "student-t" else [
        -stats.t.logpdf(13.0, 4, 10 + 4 * m, scale) for m in (0.5, -1.0)
    ]  # fmt: skip
    found = likelihood.nll(outputs, torch.tensor([13.0], dtype=torch.float64))
    np.testing.assert_allclose(found.detach().numpy()[:, 0], expected, rtol=1e-6)  # the parameter is float32


def test_an_untrained_scale_is_the_standard_deviation_of_the_target_and_receives_a_gradient():
    likelihood = gaussian((0.0, 3.0))
    _, scale = likelihood.located(torch.zeros(1, 2, 1))
    assert scale.detach().numpy() == pytest.approx(3.0, rel=1e-3)
    likelihood.nll(torch.zeros(1, 2, 1), torch.tensor([0.0, 1.0])).sum().backward()
    assert likelihood.raw_scale.grad > 0  # the data are narrower than the scale


@pytest.mark.parametrize("name", FAMILIES)
def test_metrics_of_a_mixture_equal_numerical_integration(name):
    make, law = FAMILIES[name]
    predictive = np.array([[[0.0, 1.0]], [[3.0, 0.5]]])
    y = np.array([0.7])

    def density(x):
        return (law.pdf(x) + law.pdf((x - 3) / 0.5) / 0.5) / 2

    def cdf(x):
        return (law.cdf(x) + law.cdf((x - 3) / 0.5)) / 2

    found = make().metrics(predictive, y)
    assert found["nll"] == pytest.approx(-math.log(density(0.7)), rel=1e-12)
    assert found["rmse"] == found["mae"] == pytest.approx(0.8)  # the mean location is 1.5
    assert make().cdf(predictive, y)[0] == pytest.approx(cdf(0.7), rel=1e-12)
    low, high = make().interval(predictive, 0.8)
    assert [cdf(low[0]), cdf(high[0])] == pytest.approx([0.1, 0.9], abs=1e-9)
    assert make().coverage(predictive, y, 0.8) == float(low[0] <= 0.7 <= high[0])
    if name == "cauchy":
        assert "crps" not in found  # E|X - y| is infinite
        return
    below, _ = integrate.quad(lambda x: cdf(x) ** 2, -np.inf, 0.7)
    above, _ = integrate.quad(lambda x: (1 - cdf(x)) ** 2, 0.7, np.inf)
    assert found["crps"] == pytest.approx(below + above, rel=0.02)  # 64 quantiles per sample; exact for the Gaussian


def test_the_share_of_the_weights_is_their_part_of_the_variance():
    assert variance_share(np.array([[[1.0, 3.0]], [[9.0, 3.0]]])) == pytest.approx(16 / 25)


def test_columns_and_target_are_standardised_inside_the_model():
    x = np.array([[1.0, 5.0], [3.0, 5.0], [5.0, 5.0]])
    rows, spec = table_of(x, np.array([10.0, 20.0, 60.0]), "x", ["a", "b"])
    assert spec.columns == ("a", "b")
    assert spec.mean == (3.0, 5.0)
    assert spec.std[0] == pytest.approx(x[:, 0].std())
    assert spec.target == pytest.approx((30.0, np.std([10, 20, 60])))
    model = build(Config(dataset="numbers", width=3, steps=2, drift="1-2-1"), spec)
    seen = model.normalised(rows.pixels).flatten(1)
    np.testing.assert_allclose(seen[:, 0].numpy(), (x[:, 0] - 3) / x[:, 0].std(), rtol=1e-6)
    np.testing.assert_array_equal(seen[:, 1].numpy(), 0)  # a constant column says nothing


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((3, 2)), np.arange(2.0), r"expected 3 targets in x, got shape \(2,\)"),
        (np.array([[0.0, np.nan], [1.0, 2.0]]), np.arange(2.0), "got nan in row 0, column 1"),
        (np.zeros((3, 2)), np.array([0.0, np.inf, 1.0]), "expected finite targets in x, got inf"),
        (np.zeros((3, 2)), np.ones(3), "expected targets that differ in x, got 1 for all"),
        (np.array([["a"], ["b"]]), np.arange(2.0), r"expected numbers \(rows, columns\) in x"),
        (np.zeros((0, 2)), np.zeros(0), r"expected numbers \(rows, columns\) in x"),
        (np.zeros((2, 2)), np.array(["a", "b"]), "expected numbers to predict in x"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(x, y, message):
    with pytest.raises(BadInput, match=message):
        table_of(x, y, "x")


def write_csv(path, rows, names=("a", "b", "y")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def numbers(n=60, seed=0):
    g = np.random.default_rng(seed)
    x = g.normal(size=(n, 2))
    return [[*row, 5 + 2 * row[0] - row[1] + 0.1 * e] for row, e in zip(x, g.normal(size=n), strict=True)]


def test_a_csv_file_is_trained_on_evaluated_and_predicted(tmp_path, capsys, rendered):
    file, out = write_csv(tmp_path / "data.csv", numbers()), tmp_path / "run"
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in {**TINY, "epochs": 40, "lr": 0.03}.items()]
    start = ["--dataset", "csv", "--data-root", str(file), "--batch-size", "16", "--out", str(out)]
    assert train([*start, *flags]) == 0
    assert "test rmse" in capsys.readouterr().out
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["rmse"] < 1.2  # the target has a std of 2.2
    assert metrics.keys() >= {"mae", "nll", "crps", "coverage_90", "epistemic_share", "nll_no_noise", "rmse_one_sample"}
    assert {path.name for path in (out / "plots").glob("*.png")} >= {"predicted.png", "pit.png", "quantiles.png"}
    assert "90 % coverage" in (out / "report.html").read_text()
    assert evaluate([str(out), "--samples", "2", "--steps", "2,4"]) == 0
    assert "rmse" in capsys.readouterr().out
    assert predict([str(out), str(file), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == 60
    errors = [row["mean"] - y for row, (_, _, y) in zip(rows, numbers(), strict=True)]
    assert np.sqrt(np.mean(np.square(errors))) < 1.2
    assert all(row["low"] < row["mean"] < row["high"] and row["std"] >= row["epistemic_std"] for row in rows)
    assert evaluate([str(out), "--ood", "noise"]) == 2
    assert "a run on a table" in capsys.readouterr().err
    assert predict([str(out), str(write_csv(tmp_path / "b.csv", [[1, 2]], ("a", "c")))]) == 2
    assert "expected the columns a, b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,y\n1,x\n", "expected a header and rows of numbers"),
        ("a,y\n1\n", "expected 2 values in line 2"),
        ("a,y\n", "got only a header"),
        ("1 2\n3\n", "expected 2 values in line 2"),
        ("1,2\n3,?\n", "could not convert string to float: '\\?'"),
        ("", "expected a header and rows of numbers"),
    ],
)
def test_a_csv_file_that_cannot_be_read_is_refused(text, message, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(BadInput, match=message):
        read_csv(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b,y\n1,2,30\n4,5,60\n", ["a", "b", "y"]),
        ("1,2,30\n4,5,60\n", ["x1", "x2", "x3"]),
        ('"a";"b";"y"\n1;2;30\n4;5;60\n', ["a", "b", "y"]),  # as winequality-red.csv
        (" 1  2.0   30 \n 4.0 5 60\n\n", ["x1", "x2", "x3"]),  # as housing.data and yacht_hydrodynamics.data
        ("1\t2\t30\r\n4\t5\t60\r\n", ["x1", "x2", "x3"]),
    ],
)
def test_the_usual_formats_of_number_files_are_read(text, names, tmp_path):
    (tmp_path / "a.data").write_bytes(text.encode())
    found, values = read_csv(tmp_path / "a.data")
    assert found == names
    np.testing.assert_array_equal(values, [[1, 2, 30], [4, 5, 60]])
    rows, spec = table_files.csv(tmp_path / "a.data")
    assert spec.columns == tuple(names[:2])
    np.testing.assert_array_equal(rows.labels.numpy(), [30, 60])


def test_a_folder_says_which_columns_to_use(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "data.txt").write_text("1 10 7\n2 20 8\n3 40 9\n")
    pixels, target = table_files.csv(tmp_path).rows
    np.testing.assert_array_equal(target.numpy(), [7, 8, 9])  # the last column
    (tmp_path / "data" / "index_features.txt").write_text("2\n0\n")
    (tmp_path / "data" / "index_target.txt").write_text("1\n")
    (pixels, target), spec = table_files.csv(tmp_path)
    assert spec.columns == ("x3", "x1")
    np.testing.assert_array_equal(pixels.flatten(1).numpy(), [[7, 1], [8, 2], [9, 3]])
    np.testing.assert_array_equal(target.numpy(), [10, 20, 40])
    (tmp_path / "data" / "index_target.txt").write_text("3\n")
    with pytest.raises(BadInput, match="expected columns from 0 to 2 and one target"):
        table_files.csv(tmp_path)


def test_a_missing_value_of_a_csv_file_is_refused(tmp_path):
    with pytest.raises(BadInput, match="expected finite numbers in .*, got nan in row 1, column 0"):
        load_splits(Config(dataset="csv", data_root=str(write_csv(tmp_path / "a.csv", [[1, 2, 3], ["", 2, 4]]))))


@pytest.mark.parametrize("cut", ["none", "full", "vertical", "horizontal", "both"])
def test_every_cut_trains_on_a_table(cut, tmp_path):
    run = fit(None, dataset="diabetes", cut=cut, out=str(tmp_path / cut), progress="none", **{**TINY, "epochs": 1})
    assert math.isfinite(run.metrics["nll"])
    assert "rmse" in repr(run)


@pytest.mark.parametrize("model", ["odenet", "mfvi-odenet", "mfvi-hyperodenet"])
def test_other_systems_of_continuous_depth_train_on_a_table(model, tmp_path):
    run = fit(None, dataset="cos", model=model, spread="predicted", out=str(tmp_path / "a"), progress="none", width=4,
              steps=2, epochs=1)  # fmt: skip
    assert math.isfinite(run.metrics["nll"])


def test_systems_without_a_likelihood_of_numbers_refuse_them(tmp_path):
    with pytest.raises(BadInput, match="expected --likelihood gaussian or .* for the numbers of --dataset cos"):
        fit(None, dataset="cos", model="hmc", out=str(tmp_path / "a"), progress="none")


def test_a_likelihood_of_numbers_refuses_classes():
    with pytest.raises(BadInput, match="expected --likelihood categorical for 10 classes, got laplace"):
        build(Config(likelihood="laplace"))


def test_arrays_of_two_axes_are_tables_with_numbers_or_classes(tmp_path):
    table = np.array(numbers())
    x, y = table[:, :2], table[:, 2]
    a = fit(None, data=(x, y, x[:20], y[:20]), out=str(tmp_path / "a"), progress="none", batch_size=16, **TINY)
    assert a.config.dataset == "numbers"
    assert a.predictions.probs.shape == (3, 20, 2)
    np.testing.assert_allclose(a.predictions.labels, y[:20], rtol=1e-6)
    words = np.where(y > 5, "high", "low")
    b = fit(None, data=(torch.tensor(x), words), out=str(tmp_path / "b"), progress="none", batch_size=16, **TINY)
    assert b.config.dataset == "table"
    assert b.model.spec.classes == ("high", "low")
    assert b.metrics["accuracy"] >= 0
    again = fit(None, data=(x, y, x[:20], y[:20]), out=str(tmp_path / "a"), resume=True, progress="none")
    assert again.metrics == a.metrics


def test_an_interrupted_run_on_a_table_resumes_to_the_same_bytes(tmp_path):
    class Stop(Exception):
        pass

    from psdenets import Callback

    class StopAtStep(Callback):
        def on_step(self, step):
            if step.step == 7:
                raise Stop

    options = {
        **TINY,
        "dataset": "cos",
        "hold": 2.0,
        "batch_size": 100,
        "samples": 2,
        "objective": "mixture",
        "progress": "none",
    }
    whole = fit(None, out=str(tmp_path / "a"), **options)
    with pytest.raises(Stop):
        fit(None, out=str(tmp_path / "b"), callbacks=[StopAtStep()], **options)
    resumed = fit(None, out=str(tmp_path / "b"), resume=True, progress="none")
    for name in ("model.safetensors", "predictions.npz"):
        assert (whole.path / name).read_bytes() == (resumed.path / name).read_bytes()
    assert [record["train"] for record in whole.history] == [record["train"] for record in resumed.history]


def test_runs_on_numbers_are_listed_and_compared(tmp_path):
    options = {**TINY, "dataset": "cos", "hold": 2.0, "progress": "none"}
    a = fit(None, out=str(tmp_path / "a"), **options)
    b = fit(None, out=str(tmp_path / "b"), seed=1, **options)
    text = str(runs_table([a, b]))
    assert "rmse" in text
    assert "accuracy" not in text
    found = compare_runs(a, b)
    assert found["rmse"].a == pytest.approx(a.metrics["rmse"])
    assert found["nll"].difference == pytest.approx(a.metrics["nll"] - b.metrics["nll"])
    assert found["mae"].low <= found["mae"].difference <= found["mae"].high
    assert a.plot_function().axes
    assert a.plot_curves().axes
    with pytest.raises(BadInput, match="expected a run that predicts classes"):
        a.plot_entropy()
    assert Run.load(a.path).predictions.metrics()["crps"] == a.metrics["crps"]


def test_the_function_of_a_run_on_arrays_is_drawn_with_given_rows(tmp_path):
    x, y = np.linspace(-1, 1, 50)[:, None], np.linspace(0, 3, 50)
    run = fit(None, data=(x, y), out=str(tmp_path / "a"), progress="none", **TINY)
    with pytest.raises(BadInput, match=r"expected data=\(x, y\) to draw"):
        run.plot_function()
    points = [line.get_xydata() for line in run.plot_function((x, y)).axes[0].lines]
    drawn = [each for each in points if len(each) == 50]
    assert any(np.allclose(each, np.stack([x[:, 0], y], 1), atol=1e-6) for each in drawn)  # rows are float32


def test_bounds_on_the_evidence_of_a_toy_are_those_of_its_densities(tmp_path):
    run = fit(dataset="cos", cut="full", hold=2.0, out=str(tmp_path / "a"), progress="none", **{**TINY, "epochs": 1})
    rows = load_splits(run.config).train
    found = evidence_bounds(run.model, rows, 3, torch.Generator().manual_seed(0))
    weights = run.model.draw(3, torch.Generator().manual_seed(0))
    location, scale = run.model.likelihood.predictive(run.model.logits(rows.pixels, weights)).unbind(-1)
    densities = torch.distributions.Normal(location, scale).log_prob(rows.labels).sum(-1)
    assert found.elbo == pytest.approx((densities - weights.kl.double()).mean().item(), rel=1e-5)  # float32
    assert found.importance > found.elbo


def test_the_best_weights_are_those_with_the_lowest_nll_of_validation_rows(tmp_path):
    run = fit(
        None, dataset="cos", hold=2.0, out=str(tmp_path / "a"), select="best", progress="none", **{**TINY, "epochs": 4}
    )
    best = min(run.history, key=lambda record: record["val"]["nll"])
    assert run.metrics["selected_epoch"] == best["epoch"]


FILE = np.array(numbers(40))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((FILE[:, :2], FILE[:-1, 2]), "expected 40 targets in y, got shape"),
        ((FILE[:, :2], FILE[:, 2:]), r"expected 40 targets in y, got shape \(40, 1\)"),
        ((FILE[:, :2], FILE[:, 2].astype(complex)), "expected y to be one whole number or text"),
        ((FILE[:, :2], np.where(FILE[:, 2] > 6, np.nan, FILE[:, 2])), "expected finite targets in y, got nan"),
        ((np.where(FILE > 6, np.nan, FILE), FILE[:, 2]), "expected finite numbers in x, got nan in row"),
        ((FILE[:, :2], FILE[:, 2], FILE[:, :1], FILE[:, 2]), "expected 2 columns in x_test, got 1"),
        ((FILE[:, :2], FILE[:, 2], FILE[:, :2], FILE[1:, 2]), "expected 40 targets in y_test"),
    ],
    ids=["short y", "y of two axes", "complex y", "NaN in y", "NaN in x", "columns of x_test", "short y_test"],
)
def test_a_bad_table_is_refused_before_anything_is_written(data, message, tmp_path):
    with pytest.raises(BadInput, match=message):
        fit(None, data=data, out=str(tmp_path / "a"), progress="none", **TINY)
    assert not (tmp_path / "a").exists()


def test_a_second_fit_into_the_folder_of_a_run_on_a_table_is_refused_and_changes_nothing(tmp_path):
    options = {
        **TINY,
        "data": (FILE[:, :2], FILE[:, 2]),
        "out": str(tmp_path / "a"),
        "batch_size": 16,
        "progress": "none",
    }
    fit(None, **options)
    before = {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()}
    with pytest.raises(BadInput, match="expected a new --out, got .*, which holds a run"):
        fit(None, **options)
    assert {path: path.read_bytes() for path in (tmp_path / "a").rglob("*") if path.is_file()} == before
