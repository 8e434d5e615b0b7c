"""The figures show the numbers they were given."""

import numpy as np
import pytest

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
    assert [bar.get_height() for bar in lower.containers[0]] == pytest.approx([0, 0, 0, 0, 0, 0.2, 0, 0, 0, 0.8])


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
