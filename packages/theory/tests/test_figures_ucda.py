import pytest
import torch

matplotlib = pytest.importorskip("matplotlib")

from theory import figures_ucda  # noqa: E402


def test_a_figure_is_drawn_for_every_law(tmp_path, monkeypatch):
    matplotlib.use("Agg")
    monkeypatch.setattr(figures_ucda, "SAMPLES", 100)
    files = figures_ucda.draw(tmp_path / "new")
    assert [file.name for file in files] == ["ucda-gaussian.png", "ucda-bimodal.png", "ucda-circle.png"]
    for file in files:
        image = matplotlib.image.imread(file)
        assert image.shape[0] > 500
        assert image[..., :3].std() > 0.05  # not blank


def test_the_true_law_is_not_drawn_by_the_generator(monkeypatch):
    law, axes = figures_ucda.Circle(), matplotlib.figure.Figure().subplots()
    monkeypatch.setattr(type(law), "generator", lambda *_: pytest.fail("the true law was drawn by f~"))
    outcome = figures_ucda.Outcome(*[torch.zeros(250, 3, 2)] * 6)
    figures_ucda._points(axes, law, figures_ucda.grid(3), outcome)
    rings = [torch.tensor(line.get_xydata()).norm(dim=1) for line in axes.lines]
    for ring, radius in zip(rings, (0.7, 1.0, 1.3), strict=True):
        torch.testing.assert_close(ring, torch.full((2000,), radius))
