"""Train on arrays, stop early with a callback, and ask the network what it knows about images it has never seen.

python examples/own_images.py [FOLDER]      less than a minute on one core
"""

import sys
from pathlib import Path

import numpy as np
import torch

import psdenets
from bnneval import entropy_split

rng = np.random.default_rng(0)
folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/own_images")


def stripes(n: int, upright: np.ndarray) -> np.ndarray:
    """Noisy stripes with a random phase, upright or lying: (n, 12, 12) in [0, 1]."""
    phase = rng.uniform(0, 2 * np.pi, (n, 1, 1))
    across, down = np.arange(12)[None, None, :], np.arange(12)[None, :, None]
    waves = np.where(upright[:, None, None], np.sin(across + phase), np.sin(down + phase))
    return np.clip(0.5 + 0.3 * waves + rng.normal(0, 0.15, (n, 12, 12)), 0, 1)


class StopWhenGood(psdenets.Callback):
    """Ends training at a validation NLL of 0.1."""

    def on_epoch(self, record: dict) -> bool:
        return record["val"]["nll"] < 0.1


upright = rng.random(600) < 0.5
x, y = stripes(600, upright), np.where(upright, "upright", "lying")
run = psdenets.fit(cut="full", sigma=6.0, epochs=15, data=(x, y), out=str(folder), callbacks=[StopWhenGood()])
print(run)

unseen = rng.random((200, 1, 12, 12))  # no stripes at all
for name, images in (("stripes", stripes(200, rng.random(200) < 0.5)[:, None]), ("noise", unseen)):
    probs = run.model.predict_proba(torch.from_numpy(images).float(), samples=16, return_samples=True)
    split = entropy_split(probs.numpy())
    print(f"{name:8} entropy {split.total.mean():.3f} nats, of which the weights explain {split.epistemic.mean():.3f}")
