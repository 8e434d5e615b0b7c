"""The figures are drawn, and show what their titles say."""

import pytest
import torch
from matplotlib.image import imread

from theory import figures


@pytest.fixture
def no_ucda(monkeypatch):
    """Skip the figures of Theorem 4.2, which have their own tests, and those of learned laws, which train."""
    monkeypatch.setattr("theory.figures_learned.draw", lambda folder, seed: [])
    monkeypatch.setattr("theory.figures_ucda.draw", lambda folder, seed: [])


def test_all_figures_are_written_into_a_new_directory(no_ucda, tmp_path):
    paths = figures.draw_all(tmp_path / "new", seed=1)
    assert [path.name for path in paths] == ["figure1.png", "figure2.png", "annulus.png"]
    for path in paths:
        pixels = imread(path)
        assert pixels.shape[0] > 400
        assert pixels[..., :3].std() > 0.05  # not blank


def ends(ax):
    return torch.tensor([float(line.get_ydata()[-1]) for line in ax.lines if float(line.get_xdata()[-1]) == 1])


def test_paths_of_figure_1_end_apart_if_kept_and_together_if_fixed():
    kept, fixed = (ends(ax) for ax in figures.vertical_cut().axes)
    assert len(kept) == len(fixed) == figures.PATHS
    assert kept.std() > 0.1
    assert fixed.std() == 0


def test_paths_of_figure_2_end_together_only_if_the_drift_is_separated():
    w_S, leaky, separated = (ends(ax) for ax in figures.horizontal_cut().axes)
    assert min(w_S.std(), leaky.std()) > 0.1
    assert separated.std() == 0


def test_only_the_folded_image_of_the_annulus_is_separable():
    from theory.separation import best_output

    parts = []
    for ax in figures.annulus_under_maps().axes:
        ring, ball = (torch.tensor(points.get_offsets().data) for points in ax.collections)
        L = best_output(ball, ring)
        parts.append(bool(L(ball).max() < 0 < L(ring).min()))
    assert parts == [False, False, True]
