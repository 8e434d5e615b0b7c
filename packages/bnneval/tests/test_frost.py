"""The textures of frost, photographs or procedural, and the record of which was used."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import bnneval
from bnneval.corruptions.weather import COLOURS, PHOTOGRAPHS, textures


@pytest.fixture
def folder(tmp_path):
    """Five photographs whose pixel (row, column) holds row // 5, column // 5 and the photograph's number."""
    row, column = np.mgrid[:300, :400] // 5
    for number, name in enumerate(PHOTOGRAPHS):
        pixels = np.stack([row, column, np.full_like(row, number * 40)], axis=-1).astype(np.uint8)
        if name.endswith("png"):
            pixels = np.dstack([pixels, np.full_like(pixels[..., :1], 9)])  # an alpha channel, which is ignored
        options = {} if name.endswith("png") else {"quality": 100, "subsampling": 0}
        Image.fromarray(pixels).save(tmp_path / name, **options)
    return tmp_path


def test_photographs_are_every_fifth_pixel_without_alpha(folder):
    ice = textures(folder)
    assert ice.source == "photographs"
    assert [layer.shape for layer in ice.ice] == [(60, 80, 3)] * 5
    row, column = np.mgrid[:60, :80]
    assert (ice.ice[0][..., 0] == row).all()
    assert (ice.ice[1][..., 1] == column).all()
    assert np.abs(ice.ice[4][..., 2].astype(int) - 160).max() <= 5  # a JPEG


def test_frost_blends_a_window_of_a_photograph_with_the_image(folder):
    frosted = bnneval.corrupt(np.zeros((40, 32, 32, 3), np.uint8), "frost", 2, frost=folder)
    assert frosted[..., 2].max() <= 0.3 * 162
    used = {int(np.round(image[..., 2].mean() / 0.3 / 40)) for image in frosted}
    assert used == {0, 1, 2, 3, 4}  # in 40 draws one of five is missing with probability 7e-4


def test_without_a_folder_the_texture_is_procedural_and_recorded_as_such():
    assert textures().source == "procedural"
    for layer, (colour, spread) in zip(textures().ice, COLOURS, strict=True):
        assert np.abs(layer.mean(axis=(0, 1)) - colour).max() < 4  # clipped at 255
        assert layer.std(axis=(0, 1)).mean() == pytest.approx(spread, rel=0.15)


def test_a_folder_without_the_photographs_is_an_error_not_a_fallback(tmp_path):
    with pytest.raises(ValueError, match=r"expected the frost photographs .* got a folder without frost1.png"):
        bnneval.corrupt(np.zeros((1, 32, 32, 3), np.uint8), "frost", 1, frost=tmp_path)


def test_the_real_photographs_are_read():
    root = os.environ.get("PSDENETS_FROST")
    if root is None:
        pytest.skip("PSDENETS_FROST does not point to the frost photographs")
    ice = textures(Path(root)).ice
    assert [layer.shape[:2] for layer in ice] == [
        (120, 180),
        (63, 112),
        (63, 112),
        (70, 105),
        (99, 132),
    ]
    for layer, (colour, _) in zip(ice, COLOURS, strict=True):
        assert np.abs(layer.mean(axis=(0, 1)) - colour).max() < 1
