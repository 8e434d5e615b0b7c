"""Read NumPy archives with `images` (uint8) and optionally `labels`; nothing is ever unpickled."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from psdenets.errors import BadInput


def read_npz(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Read images and labels; labels are None if the archive does not contain them."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            if "images" not in archive:
                raise BadInput(f"expected an array called images in {path}, got {', '.join(archive) or 'nothing'}")
            return archive["images"], archive.get("labels")
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise BadInput(f"expected a NumPy archive in {path}, got something else ({error})") from None
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"expected plain arrays in {path}, got pickled objects, which are never loaded") from None
