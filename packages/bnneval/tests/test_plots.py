"""The figures show the numbers they were given."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import bnneval
from bnneval import plots


def texts(axes):
    return [t.get_text() for t in axes.get_legend().get_texts()]


def test_reliability_bars_are_the_accuracies_and_the_gaps_reach_the_confidences():
    probs, labels = np.array([[0.95, 0.05]] * 4 + [[0.6, 0.4]]), [0, 0, 0, 1, 1]
    diagram = bnneval.reliability(probs, labels, bins=10)
    upper, lower = plots.reliability_diagram(diagram, bnneval.ece(probs, labels, 10)).axes
    heights = [bar.get_height() for bar in upper.containers[0]]
    assert heights == [0.0, 0.75]
    tops = [bar.get_y() + bar.get_height() for bar in upper.containers[1]]
    assert tops == pytest.approx([0.6, 0.95])
    assert upper.get_title() == "ECE = 28.00 %"
    assert [bar.get_height() for bar in lower.containers[0]] == [1, 4]
    assert [text.get_text() for text in lower.texts] == ["1", "4"]


def test_reliability_bars_have_exact_binomial_intervals():
    probs, labels = np.array([[0.95, 0.05]] * 4 + [[0.6, 0.4]]), [0, 0, 0, 1, 1]
    diagram = bnneval.reliability(probs, labels, bins=10)
    for level in (0.95, 0.5):
        upper = plots.reliability_diagram(diagram, 0.28, level=level).axes[0]
        (lines,) = upper.containers[2].lines[2]
        ends = [segment[:, 1].tolist() for segment in lines.get_segments()]
        low, high = bnneval.clopper_pearson([0, 3], [1, 4], level)
        assert np.allclose(ends, np.column_stack([low, high]), atol=1e-12)


def boxes(axes):
    return [bar.get_window_extent() for bar in axes.patches]


@pytest.mark.parametrize("alone", [False, True])
def test_the_legend_of_a_reliability_diagram_covers_no_bar(alone):
    rng = np.random.default_rng(0)
    probs, labels = rng.dirichlet(np.full(3, 0.3), 500), rng.integers(3, size=500)
    diagram = bnneval.reliability(probs, labels)
    ax = Figure(layout="constrained").subplots() if alone else None
    figure = plots.reliability_diagram(diagram, 0.1, ax=ax)
    FigureCanvasAgg(figure).draw()
    (legend,) = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    area = legend.get_window_extent()
    assert not any(area.overlaps(axes.get_window_extent()) for axes in figure.axes)
    assert not any(area.overlaps(box) for axes in figure.axes for box in boxes(axes))
    assert figure.bbox.containsx(area.x0)
    assert figure.bbox.containsy(area.y0)


def test_a_reliability_diagram_in_one_axes_writes_the_counts_above_the_bars():
    diagram = bnneval.reliability([[0.95, 0.05]] * 4 + [[0.6, 0.4]], [0, 0, 0, 1, 1], bins=10)
    ax = Figure().subplots()
    plots.reliability_diagram(diagram, 0.28, ax=ax)
    assert [(text.get_text(), text.xy) for text in ax.texts] == [
        ("1", pytest.approx((0.55, 1))),
        ("4", pytest.approx((0.95, 1))),
    ]


CURVE = bnneval.risk_coverage([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]], [0, 1, 0])
DRAWN = {
    "reliability": lambda ax: plots.reliability_diagram(bnneval.reliability([[0.9, 0.1]], [0]), 0.1, ax=ax),
    "entropy": lambda ax: plots.entropy_histograms({"a": np.zeros(3)}, 2, ax=ax),
    "roc": lambda ax: plots.roc_curve({"a": bnneval.roc([1], [2])}, ax=ax),
    "risk": lambda ax: plots.risk_coverage_curve({"a": CURVE}, ax=ax),
    "pit": lambda ax: plots.pit_diagram(bnneval.pit_histogram([0.1, 0.4], bins=4), ax=ax),
    "quantiles": lambda ax: plots.quantile_diagram({"a": bnneval.quantile_calibration([0.4, 0.6])}, ax=ax),
}


@pytest.mark.parametrize("name", DRAWN)
def test_every_plot_draws_into_the_axes_of_the_caller_and_returns_their_figure(name):
    figure = Figure()
    left, right = figure.subplots(ncols=2)
    assert DRAWN[name](right) is figure
    assert right.get_legend() is not None or right.lines
    assert not left.lines
    assert not left.patches
    assert DRAWN[name](None) is not figure


def test_a_pair_of_axes_takes_accuracies_and_counts():
    upper, lower = Figure().subplots(nrows=2)
    plots.reliability_diagram(bnneval.reliability([[0.9, 0.1]] * 3, [0, 0, 1], bins=4), 0.2, ax=(upper, lower))
    assert [bar.get_height() for bar in upper.containers[0]] == pytest.approx([2 / 3])
    assert [bar.get_height() for bar in lower.containers[0]] == [3]


def test_a_risk_coverage_curve_shows_the_chosen_threshold_and_its_bound():
    rng = np.random.default_rng(1)
    confidence = rng.uniform(0.5, 1, 500)
    probs, labels = np.column_stack([confidence, 1 - confidence]), (rng.random(500) > confidence).astype(int)
    chosen = bnneval.abstention_threshold(probs, labels, 0.2, level=0.9)
    (axes,) = plots.risk_coverage_curve({"model": bnneval.risk_coverage(probs, labels)}, chosen, "validation").axes
    curve, asked, point = axes.lines
    assert len(curve.get_xdata()) == 500
    assert set(asked.get_ydata()) == {0.2}
    assert (point.get_xdata()[0], point.get_ydata()[0]) == (chosen.coverage, chosen.risk)
    (bound,) = axes.collections
    assert bound.get_segments()[0].tolist() == [[chosen.coverage, chosen.risk], [chosen.coverage, chosen.upper]]
    aurc = bnneval.aurc(probs, labels)
    kept = f"confidence ≥ {chosen.threshold:.4f} keeps {100 * chosen.coverage:.1f} %"
    assert texts(axes) == [f"model: AURC = {aurc:.4f}", "risk asked for: 20 %", kept, "bound with 90 % confidence"]
    assert axes.get_title() == "validation"


def test_a_rule_that_keeps_nothing_is_drawn_at_coverage_0():
    chosen = bnneval.abstention_threshold([[0.9, 0.1]], [1], 0.1)
    (axes,) = plots.risk_coverage_curve({"a": CURVE}, chosen).axes
    assert axes.lines[2].get_xydata().tolist() == [[0, 0]]


def test_entropy_legend_has_mean_and_std_of_every_sample():
    entropies = {"in-distribution": np.array([0.0, 0.2]), "OOD": np.array([2.0, 2.2])}
    (axes,) = plots.entropy_histograms(entropies, classes=10).axes
    assert texts(axes) == ["in-distribution: 0.100 ± 0.100", "OOD: 2.100 ± 0.100"]
    assert axes.get_xlim() == (0, np.log(10))


def test_densities_integrate_to_one_with_certain_predictions_included():
    (axes,) = plots.entropy_histograms({"a": np.zeros(50)}, classes=10, bins=10).axes
    density, edges, _ = axes.patches[1].get_data()
    assert density @ np.diff(edges) == pytest.approx(1)
    assert density[0] == pytest.approx(10 / np.log(10))  # all in the first of ten bins


def test_every_set_and_curve_is_drawn_and_no_two_look_alike():
    many = {f"model {k}": np.array([0.1 * k, 0.2]) for k in range(12)}
    (axes,) = plots.entropy_histograms(many, classes=10).axes
    assert len(texts(axes)) == 12
    (axes,) = plots.roc_curve({name: bnneval.roc(scores, [0.3, 0.4]) for name, scores in many.items()}).axes
    assert len(texts(axes)) == 12
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines[:12]}) == 12


def test_titles_name_the_sets():
    (axes,) = plots.roc_curve({"entropy": bnneval.roc([1], [2])}, "cifar10 against svhn").axes
    assert axes.get_title() == "cifar10 against svhn"
    (axes,) = plots.entropy_histograms({"a": np.zeros(3)}, 2, title="cifar10").axes
    assert axes.get_title() == "cifar10"


def test_roc_legend_has_the_area():
    (axes,) = plots.roc_curve({"entropy": bnneval.roc([0.1, 0.4], [0.4, 0.9])}).axes
    assert texts(axes) == ["entropy: AUC = 0.875"]
    x, y = axes.lines[0].get_data()
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0, 1, 1)


def test_entropy_by_severity_draws_one_line_per_corruption_and_the_pooled_mean(photos, tmp_path):
    def predict(images):
        first = 1 - images.reshape(len(images), -1).mean(axis=1) / 300
        return np.column_stack([first, 1 - first])

    shift = bnneval.evaluate_shift(predict, photos, np.zeros(8, int), ("fog", "contrast"), (1, 2, 3))
    figure = plots.entropy_by_severity(shift)
    (axes,) = figure.axes
    assert axes.lines[2].get_ydata().tolist() == [cell.entropy_mean for cell in shift.by_severity.values()]
    assert [path.suffix for path in plots.save(figure, tmp_path / "shift")] == [".pdf", ".png"]
    assert (tmp_path / "shift.pdf").read_bytes().startswith(b"%PDF")


def test_pit_bars_are_densities_and_the_band_has_two_binomial_standard_deviations():
    figure = plots.pit_diagram(bnneval.pit_histogram([0.1] * 30 + [0.4] * 20 + [0.6] * 50, bins=4), "fold 1")
    (axes,) = figure.axes
    assert [bar.get_height() for bar in axes.containers[0]] == pytest.approx([0.3 * 4, 0.2 * 4, 0.5 * 4, 0])
    (band,) = [patch for patch in axes.patches if hasattr(patch, "get_data")]
    upper, edges, lower = band.get_data()
    std = 4 * np.sqrt(1 / 4 * 3 / 4 / 100)
    assert upper == pytest.approx([1 + 2 * std] * 4)
    assert lower == pytest.approx([1 - 2 * std] * 4)
    assert edges.tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert axes.get_title() == "fold 1"


def test_quantile_curves_are_the_observed_shares_and_the_legend_has_the_errors():
    curves = {
        "wide": bnneval.quantile_calibration([0.4, 0.6], levels=[0.25, 0.75]),
        "low": bnneval.quantile_calibration([1.0], levels=[0.5]),
    }
    (axes,) = plots.quantile_diagram(curves, "two models").axes
    assert texts(axes) == ["wide: error = 25.00 %", "low: error = 50.00 %"]
    assert [line.get_ydata().tolist() for line in axes.lines[:2]] == [[0, 1], [0]]
    assert axes.get_title() == "two models"


def test_colours_differ_in_lightness():
    # Lightness is 0.2126 R + 0.7152 G + 0.0722 B of linear light.
    def luminance(colour):
        channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        return float((channels**2.2) @ [0.2126, 0.7152, 0.0722])

    ratio = (luminance(plots.ORANGE) + 0.05) / (luminance(plots.BLUE) + 0.05)
    assert ratio > 1.2
