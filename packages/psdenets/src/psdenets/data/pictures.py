"""Read image files, one at a time or from folders named after their classes."""

from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from psdenets.errors import BadInput

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
SMALLEST = 2  # pixels per side: a single pixel has no shape to classify


def read_picture(path: Path, channels: int, size: tuple[int, int] | None = None) -> np.ndarray:
    """Read one image file as uint8 (H, W, C), grey or RGB, resized to `size` = (height, width) if given."""
    try:
        with Image.open(path) as picture:
            picture.load()
            converted = picture.convert("L" if channels == 1 else "RGB")
    except FileNotFoundError:
        raise BadInput(f"no picture at {path}: no such file") from None
    except (UnidentifiedImageError, OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise BadInput(f"expected a picture in {path}, got something else ({type(error).__name__})") from None
    if min(converted.size) < SMALLEST:
        raise BadInput(f"expected at least {SMALLEST} x {SMALLEST} pixels in {path}, got {converted.size}")
    if size is not None and converted.size != size[::-1]:
        converted = converted.resize(size[::-1], Image.Resampling.BILINEAR)
    pixels = np.asarray(converted, np.uint8)
    return pixels[:, :, None] if channels == 1 else pixels


def pictures_in(folder: Path) -> list[Path]:
    """Image files in a folder and its subfolders, sorted."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())


def read_folder(folder: Path, classes: list[str] | None = None) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The images (N, H, W, 3) in folder/CLASS/, resized to the size of the first, labels, and sorted class names."""
    found = sorted(d.name for d in folder.iterdir() if d.is_dir()) if folder.is_dir() else []
    names = found if classes is None else classes
    if set(found) - set(names):
        raise BadInput(f"expected only the training classes in {folder}, also got {sorted(set(found) - set(names))}")
    files = [(path, label) for label, name in enumerate(names) for path in pictures_in(folder / name)]
    if not files:
        raise BadInput(f"expected pictures in {folder}/CLASS/, one folder per class, got no picture")
    first = read_picture(files[0][0], 3)
    size = (first.shape[0], first.shape[1])
    pixels = np.stack([read_picture(path, 3, size) for path, _ in files])
    return pixels, np.array([label for _, label in files]), names
