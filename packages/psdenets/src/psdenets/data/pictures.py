"""Read image files: decode, turn, convert to 8-bit grey or colour, and fit to a size.

Files are opened with an explicit list of decoders, so nothing is ever passed to another program (Pillow would hand
EPS to Ghostscript), and files that claim more than `MOST_PIXELS` pixels are refused before they are decoded.

    orientation   as the camera recorded it (EXIF)
    16 bits       grey levels 0 .. 65535 -> 0 .. 255; floating point 0 .. 1 -> 0 .. 255; other ranges are refused
    transparency  on white
    animation     the first frame
    aspect        "pad" fits the whole picture in and fills the rest with its mean colour; "crop" cuts the middle out
"""

import os
import threading
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from psdenets.errors import BadInput

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
SMALLEST = 2  # pixels per side: a single pixel has no shape to classify
MOST_PIXELS = 100_000_000  # 300 MB in colour; cameras have up to 200 million, most of them far fewer
_TRANSPARENT = ("RGBA", "LA", "PA", "RGBa", "La")
_OPENING = threading.Lock()  # filters of warnings belong to all threads


def read_picture(path: Path, channels: int, size: tuple[int, int] | None = None, aspect: str = "pad") -> np.ndarray:
    """Read one image file as uint8 (H, W, C), grey or RGB, fitted to `size` = (height, width) if given.

    Raises:
        BadInput: if there is no such file, or it is not a picture that can be decoded.
    """
    try:
        with _opened(path) as picture:
            _require_size(picture, path)
            if size is not None:
                picture.draft(None, (2 * max(size), 2 * max(size)))  # JPEG is decoded at a fraction of its size
            picture.load()
            turned = ImageOps.exif_transpose(picture)
            converted = _converted(turned, "L" if channels == 1 else "RGB", path)
    except FileNotFoundError:
        raise BadInput(f"no picture at {path}: no such file") from None
    except BadInput:
        raise
    except Exception as error:  # decoders raise many kinds for damaged files: OSError, SyntaxError, struct.error, ...
        raise BadInput(f"expected a picture in {path}, got something else ({type(error).__name__})") from None
    if size is not None and converted.size != size[::-1]:
        converted = _fitted(converted, size[::-1], aspect)
    pixels = np.asarray(converted, np.uint8)
    return pixels[:, :, None] if channels == 1 else pixels


def size_of(path: Path) -> tuple[int, int] | None:
    """Width and height according to the header of a file; None if it is not a picture."""
    try:
        with _opened(path) as picture:
            return picture.size
    except Exception:  # the one who reads the file reports it
        return None


def _opened(path: Path) -> Image.Image:
    """Read the header of a file. Pillow's warning about large pictures is replaced by our own limit."""
    with _OPENING, warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        return Image.open(path, formats=FORMATS)


def _require_size(picture: Image.Image, path: Path) -> None:
    width, height = picture.size
    if min(width, height) < SMALLEST:
        raise BadInput(f"expected at least {SMALLEST} x {SMALLEST} pixels in {path}, got {width} x {height}")
    if width * height > MOST_PIXELS:
        raise BadInput(f"expected at most {MOST_PIXELS:,} pixels in {path}, got {width} x {height}")


def _converted(picture: Image.Image, mode: str, path: Path) -> Image.Image:
    """The picture in mode L or RGB, transparent parts on white."""
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        picture = _eight_bit(picture, path)
    if picture.mode in _TRANSPARENT or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture).convert("RGB")
    return picture.convert(mode)


def _eight_bit(picture: Image.Image, path: Path) -> Image.Image:
    """A picture of 16-bit integers or floating-point numbers with 8 bits; Pillow would clip both at 255."""
    values = np.asarray(picture).astype(np.float64)
    most = 1.0 if picture.mode == "F" else 65535.0
    if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= most):
        raise BadInput(f"expected values from 0 to {most:g} in {path}, got {values.min():g} to {values.max():g}")
    return Image.fromarray(np.round(values * (255 / most)).astype(np.uint8))


def _fitted(picture: Image.Image, size: tuple[int, int], aspect: str) -> Image.Image:
    """The picture with this (width, height) and its own aspect."""
    if aspect == "crop":
        return ImageOps.fit(picture, size, Image.Resampling.BILINEAR)
    inside = ImageOps.contain(picture, size, Image.Resampling.BILINEAR)
    if inside.size == size:
        return inside
    mean = np.asarray(inside, np.float64).mean((0, 1)).round().astype(int)
    filled = Image.new(inside.mode, size, tuple(mean.tolist()) if mean.ndim else int(mean))
    filled.paste(inside, ((size[0] - inside.width) // 2, (size[1] - inside.height) // 2))
    return filled


def pictures_in(folder: Path) -> list[Path]:
    """Image files in a folder and its subfolders, sorted; hidden files and folders are left out."""
    return sorted(path for path in visible_files(folder) if path.suffix.lower() in SUFFIXES)


def visible_files(folder: Path) -> list[Path]:
    """Files in a folder and its subfolders that are not hidden, nor in a hidden folder such as .ipynb_checkpoints."""
    found = []
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [path for name in files if not name.startswith(".") and (path := Path(parent) / name).is_file()]
    return found
