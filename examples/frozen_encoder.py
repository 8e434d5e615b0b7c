"""Put a partially stochastic head on a frozen encoder: features are computed once, and the head trains in seconds.

python examples/frozen_encoder.py [FOLDER]      less than a minute on one core
"""

import sys
from pathlib import Path

import psdenets
from psdenets.data import load_splits, load_test_images

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/frozen_encoder")

# The encoder: here a small ResNet trained on the digits. Any frozen nn.Module from images to (N, d) will do.
resnet = psdenets.fit(None, model="resnet32", epochs=5, out=str(folder / "resnet"), resume=True, progress="none")
encoder = psdenets.encoder_of(resnet.path)

splits = load_splits(resnet.config)
x = psdenets.features(encoder, splits.train.pixels, cache=folder / "train.npz")
x_test = psdenets.features(encoder, splits.test.pixels, cache=folder / "test.npz")
data = (x, splits.train.labels.numpy(), x_test, splits.test.labels.numpy())
print(f"{len(x)} images as {x.shape[1]} features each")

for cut in ("none", "vertical", "full"):
    head = psdenets.fit(None, cut=cut, data=data, epochs=10, out=str(folder / cut), resume=True, progress="none")
    print(f"head with cut {cut}: {head}")
print(f"the ResNet itself: {resnet}")

noise = load_test_images("noise", resnet.config, resnet.model.spec)
print("features of noise images:", psdenets.features(encoder, noise.pixels).shape)
