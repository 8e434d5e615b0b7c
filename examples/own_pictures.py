"""Train on a folder of pictures of mixed sizes and formats, with no flags but the folder, and classify new pictures.

python examples/own_pictures.py [FOLDER]      less than two minutes on one core
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from psdenets import Run, predict, train

rng = np.random.default_rng(0)
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/own_pictures")
CLASSES = ("checks", "dots", "rings", "stripes")


def pattern(name: str, height: int, width: int) -> np.ndarray:
    """A pattern of random scale, place and angle, with values in [0, 1]: (height, width)."""
    angle, period = rng.uniform(0, np.pi), rng.uniform(8, 13)
    y, x = np.mgrid[:height, :width] - (rng.uniform(0.25, 0.75, 2) * (height, width)).reshape(2, 1, 1)
    u, v = (np.cos(angle) * x + np.sin(angle) * y) / period, (np.cos(angle) * y - np.sin(angle) * x) / period
    waves = {
        "checks": np.sign(np.sin(2 * np.pi * u) * np.sin(2 * np.pi * v)),
        "dots": np.sign(np.sin(2 * np.pi * u) + np.sin(2 * np.pi * v) - 1),
        "rings": np.sign(np.sin(2 * np.pi * np.hypot(u, v))),
        "stripes": np.sign(np.sin(2 * np.pi * u)),
    }
    return 0.5 + 0.5 * waves[name]


def picture(name: str) -> Image.Image:
    """A noisy pattern in two random colours, with 26 to 42 pixels on its shorter side; a third are grey."""
    short, aspect = rng.integers(26, 43), rng.uniform(1, 1.5)
    size = (short, int(aspect * short)) if rng.random() < 0.5 else (int(aspect * short), short)
    inks = rng.permutation(rng.uniform((0, 0.5), (0.5, 1), (3, 2)).T)  # one dark, one bright
    shade = pattern(name, *size)[:, :, None]
    pixels = shade * inks[0] + (1 - shade) * inks[1] + rng.normal(0, 0.12, (*size, 3))
    found = Image.fromarray(np.round(255 * pixels.clip(0, 1)).astype(np.uint8))
    return found.convert("L") if rng.random() < 1 / 3 else found


def save(place: Path, name: str, count: int) -> None:
    """Write pictures of a class, half of them as JPEG."""
    place.mkdir(parents=True)
    for i in range(count):
        picture(name).save(place / f"{i}.{('png', 'jpg')[i % 2]}")


for name in CLASSES:
    save(folder / "patterns" / name, name, 200)
save(folder / "new", "rings", 5)
out = str(folder / "run")
train.main(["--dataset", "imagefolder", "--data-root", str(folder / "patterns"), "--out", out])
print(f"accuracy on test pictures: {Run.load(out).metrics['accuracy']:.1%}")
predict.main([out, str(folder / "new")])
