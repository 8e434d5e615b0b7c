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
    law = figures_ucda.Bimodal()
    monkeypatch.setattr(type(law), "generator", lambda *_: pytest.fail("the true law was drawn by f~"))
    assert figures_ucda._drawn(law, 0.0, 10).shape == torch.Size([10, 1])
