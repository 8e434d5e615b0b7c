"""Image files: formats, orientation, bit depth, transparency, aspect, limits."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from psdenets import BadInput
from psdenets.data import pictures as module
from psdenets.data.pictures import pictures_in, read_picture


def saved(path, pixels, **options):
    Image.fromarray(pixels).save(path, **options)
    return path


def two_halves(height=20, width=40):
    """Left half black, right half white, (height, width)."""
    pixels = np.zeros((height, width), np.uint8)
    pixels[:, width // 2 :] = 255
    return pixels


@pytest.mark.parametrize("name", ["a.png", "a.bmp", "a.gif", "a.tif", "a.webp", "a.ppm", "a.jpg"])
def test_every_format_is_read_in_colour_and_grey(tmp_path, name):
    pixels = np.full((6, 6, 3), 0, np.uint8)
    pixels[:] = (200, 100, 50)
    options = {"lossless": True} if name == "a.webp" else {}
    path = saved(tmp_path / name, pixels, **options)
    near = 3 if name == "a.jpg" else 0  # JPEG rounds its coefficients
    assert np.abs(read_picture(path, 3).astype(int) - pixels).max() <= near
    assert np.abs(read_picture(path, 1).astype(int) - 124).max() <= near  # 0.299 * 200 + 0.587 * 100 + 0.114 * 50


def test_a_picture_is_turned_as_its_camera_was(tmp_path):
    """EXIF orientation 6: the camera was turned, and the left edge of the stored picture is the top."""
    exif = Image.Exif()
    exif[0x0112] = 6
    path = saved(tmp_path / "a.jpg", two_halves(), exif=exif, quality=95)
    found = read_picture(path, 1)[..., 0]
    assert found.shape == (40, 20)
    assert found[:15].max() < 20
    assert found[25:].min() > 235
    small = read_picture(path, 1, (20, 20), "crop")[..., 0]
    assert small[:5].max() < 30
    assert small[15:].min() > 225


def test_16_bit_grey_levels_keep_their_brightness(tmp_path):
    """Pillow alone clips everything above 255 to white."""
    levels = np.array([[0, 257, 32896], [65535, 25700, 51400]], np.uint16).repeat(2, 0)
    expected = np.array([[0, 1, 128], [255, 100, 200]]).repeat(2, 0)
    for name in ("a.png", "a.tif"):
        np.testing.assert_array_equal(read_picture(saved(tmp_path / name, levels), 1)[..., 0], expected)
        np.testing.assert_array_equal(read_picture(tmp_path / name, 3)[..., 2], expected)


def test_16_bit_colours_keep_their_brightness(tmp_path):
    """A PNG of 2 x 2 pixels with 16 bits per channel, written by hand."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + struct.pack(">3H", 65535, 32896, 257) * 2
    header = struct.pack(">2I5B", 2, 2, 16, 2, 0, 0, 0)
    data = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(row * 2)) + chunk(b"IEND", b"")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + data)
    assert read_picture(tmp_path / "a.png", 3).reshape(-1, 3).tolist() == [[255, 128, 1]] * 4


def test_floating_point_pictures_are_read_from_0_to_1_and_refused_otherwise(tmp_path):
    path = saved(tmp_path / "a.tif", np.array([[0.0, 0.5], [1.0, 0.2]], np.float32))
    assert read_picture(path, 1)[..., 0].tolist() == [[0, 128], [255, 51]]
    path = saved(tmp_path / "b.tif", np.array([[0.0, 0.5], [7.0, 0.2]], np.float32))
    with pytest.raises(BadInput, match=r"values from 0 to 1 in .*b\.tif, got 0 to 7"):
        read_picture(path, 1)


def test_transparent_parts_are_white(tmp_path):
    pixels = np.zeros((4, 4, 4), np.uint8)
    pixels[:2] = (10, 20, 30, 255)
    pixels[2:] = (0, 0, 0, 0)  # black underneath
    saved(tmp_path / "rgba.png", pixels)
    Image.fromarray(pixels).convert("LA").save(tmp_path / "la.png")
    Image.fromarray(pixels).quantize(4).save(tmp_path / "palette.png")
    for name in ("rgba.png", "la.png", "palette.png"):
        found = read_picture(tmp_path / name, 3)
        assert found[3, 3].tolist() == [255, 255, 255], name
        assert abs(int(found[0, 0].mean()) - 20) <= 2, name


def test_cmyk_palette_and_bilevel_pictures_are_converted(tmp_path):
    Image.new("CMYK", (4, 4), (255, 0, 0, 0)).save(tmp_path / "cyan.jpg", quality=95)
    assert np.abs(read_picture(tmp_path / "cyan.jpg", 3)[0, 0].astype(int) - (0, 255, 255)).max() <= 4
    colour = Image.new("RGB", (4, 4), (9, 99, 199))
    colour.quantize(2).save(tmp_path / "p.png")
    assert read_picture(tmp_path / "p.png", 3)[0, 0].tolist() == [9, 99, 199]
    Image.fromarray(two_halves(4, 4)).convert("1").save(tmp_path / "bits.png")
    assert read_picture(tmp_path / "bits.png", 1)[0, :, 0].tolist() == [0, 0, 255, 255]


def test_padding_keeps_the_whole_picture_and_fills_with_its_mean_colour(tmp_path):
    path = saved(tmp_path / "a.png", two_halves(20, 40))
    found = read_picture(path, 1, (8, 8))[..., 0]
    assert found[2:6, :3].max() == 0
    assert found[2:6, 5:].min() == 255
    assert set(np.unique(found[[0, 1, 6, 7]])) <= {127, 128}


def test_cropping_keeps_the_middle(tmp_path):
    pixels = np.full((20, 60), 7, np.uint8)
    pixels[:, 20:40] = 200
    found = read_picture(saved(tmp_path / "a.png", pixels), 1, (8, 8), "crop")[..., 0]
    assert (found[:, 1:7] == 200).all()


def test_eps_is_never_opened(tmp_path, monkeypatch):
    """Pillow hands EPS to Ghostscript, an interpreter of programs."""
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("Ghostscript was called"))
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(BadInput, match="got something else"):
        read_picture(path, 3)


def test_pictures_with_too_many_or_too_few_pixels_are_refused_before_they_are_decoded(tmp_path, monkeypatch, recwarn):
    monkeypatch.setattr(Image.Image, "load", lambda _: pytest.fail("decoded"))
    monkeypatch.setattr(module, "MOST_PIXELS", 90)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 60)  # Pillow warns above it, and raises above twice this number
    path = tmp_path / "a.bmp"
    path.write_bytes(bytes(54))
    for size, message in (((10, 10), "at most 90 pixels"), ((1, 5), "at least 2 x 2"), ((200, 200), "Bomb")):
        header = b"BM" + struct.pack("<3I", 54, 0, 54) + struct.pack("<I2i2H6I", 40, *size, 1, 24, 0, 0, 0, 0, 0, 0)
        path.write_bytes(header)
        with pytest.raises(BadInput, match=message):
            read_picture(path, 3)
    assert not [w for w in recwarn if w.category is Image.DecompressionBombWarning]


@pytest.mark.parametrize("damage", ["text", "cut", "empty"])
def test_a_damaged_file_is_an_error_in_one_line(tmp_path, damage):
    path = saved(tmp_path / "a.png", np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8))
    data = path.read_bytes()
    path.write_bytes({"text": b"not a picture", "cut": data[: len(data) // 2], "empty": b""}[damage])
    with pytest.raises(BadInput, match=r"expected a picture in .*a\.png"):
        read_picture(path, 3)
    with pytest.raises(BadInput, match="no such file"):
        read_picture(tmp_path / "gone.png", 3)


def test_hidden_files_and_folders_are_left_out(tmp_path):
    for name in ("a.png", "sub/b.JPG", ".ipynb_checkpoints/c.png", "sub/.hidden.png", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in pictures_in(tmp_path)] == ["a.png", "b.JPG"]
