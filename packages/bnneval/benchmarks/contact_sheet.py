"""The contact sheet in the README: 19 corruptions x 5 severities on CIFAR-10 images.

    python benchmarks/contact_sheet.py --data DATA [--frost DIR] [--out contact-sheet.png] [--seed 0]

DATA contains cifar-10-batches-bin (the binary version). Row r is test image r: clean, then severities 1 to 5.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from bnneval import CORRUPTIONS, corrupt, textures

ZOOM, GAP, LABEL, HEAD = 2, 4, 150, 22


def sheet(images: np.ndarray, frost: Path | None, seed: int) -> Image.Image:
    """Two columns of rows; each row is a name, the clean image and five severities, at twice their size."""
    ice = textures(frost)
    rows = (len(CORRUPTIONS) + 1) // 2
    tile = 32 * ZOOM + GAP
    width = LABEL + 6 * tile
    page = Image.new("RGB", (2 * width + GAP, HEAD + rows * tile), "white")
    draw, font = ImageDraw.Draw(page), ImageFont.load_default(size=14)
    for half in range(2):
        for k, head in enumerate(["clean", "1", "2", "3", "4", "5"]):
            x = half * width + LABEL + k * tile + 32 * ZOOM // 2
            draw.text((x, HEAD // 2), head, "black", font, anchor="mm")
    for r, name in enumerate(CORRUPTIONS):
        left, top = (r // rows) * width, HEAD + (r % rows) * tile
        label = f"{name}\n({ice.source})" if name == "frost" else name
        right_end = (left + LABEL - 8, top + 32)
        draw.multiline_text(right_end, label.replace("_", " "), "black", font, anchor="rm", align="right")
        tiles = [images[r], *(corrupt(images[r][None], name, s, seed, start=r, frost=ice)[0] for s in range(1, 6))]
        for k, pixels in enumerate(tiles):
            big = Image.fromarray(pixels).resize((32 * ZOOM, 32 * ZOOM), Image.Resampling.NEAREST)
            page.paste(big, (left + LABEL + k * tile, top))
    return page


def main() -> None:
    """Write the sheet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--frost", type=Path)
    parser.add_argument("--out", type=Path, default=Path("contact-sheet.png"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    records = np.fromfile(options.data / "cifar-10-batches-bin" / "test_batch.bin", np.uint8, count=3073 * 40)
    images = records.reshape(-1, 3073)[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    sheet(np.ascontiguousarray(images), options.frost, options.seed).save(options.out, optimize=True)
    print(f"{options.out}: {options.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
