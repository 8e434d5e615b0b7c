"""Compare last layers on the features of a frozen encoder, and write HEADS.md from heads.json, both in docs/.

    python docs/heads.py                                              only write HEADS.md
    python docs/heads.py --run RUN_DIR --data-root DIR --work DIR     measure with the network of this run as encoder

The encoder is a network trained on CIFAR-10 without noise, without its last layer. It knows its training images too
well, so all heads are trained on the features of its 5,000 validation images. Metrics are on the 10,000 test images,
AUROC is of predictive entropy against SVHN. The partially stochastic heads have the defaults of tables, with 30 epochs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import psdenets
from bnneval import accuracy, auroc, ece, epistemic_share, nll, predictive_entropy
from psdenets.data import load_splits, load_test_images
from psdenets.models.laplace import last_layer_posterior
from psdenets.nn.heads import HeadWeights
from psdenets.runs.files import write_json, write_text

HERE = Path(__file__).parent
SEEDS, SAMPLES, EPOCHS, BATCH = range(3), 10, 30, 250
Array = NDArray[Any]


class Features(NamedTuple):
    """Features and labels to train on and to test with, and features of the OOD images."""

    x: Array
    y: Array
    x_test: Array
    y_test: Array
    x_ood: Array


def measured_features(run_dir: Path, data_root: str, work: Path) -> Features:
    """Features of all images, from the cache in `work` if they are there."""
    encoder = psdenets.encoder_of(run_dir)
    config = psdenets.Run.load(run_dir).config.replace(data_root=data_root)
    splits = load_splits(config)
    ood = load_test_images("svhn", config, splits.spec)
    work.mkdir(parents=True, exist_ok=True)
    sets = {"val": splits.val, "test": splits.test, "svhn": ood}
    x = {name: psdenets.features(encoder, s.pixels, cache=work / f"{name}.npz") for name, s in sets.items()}
    return Features(x["val"], splits.val.labels.numpy(), x["test"], splits.test.labels.numpy(), x["svhn"])


def linear(data: Features, seed: int) -> nn.Linear:
    """A linear layer on standardised features, trained by Adam."""
    torch.manual_seed(seed)
    x, y = torch.tensor(data.x), torch.tensor(data.y)
    head = nn.Linear(x.shape[1], int(y.max()) + 1)
    steps = EPOCHS * (len(x) // BATCH)
    optimizer = torch.optim.AdamW(head.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, steps)
    for _ in range(steps):
        chosen = torch.randint(len(x), (BATCH,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(head(x[chosen]), y[chosen]).backward()
        optimizer.step()
        schedule.step()
    return head


def point(data: Features, seed: int, work: Path) -> tuple[Array, Array]:  # noqa: ARG001 - called like every head
    """Probabilities (1, N, C) of a linear layer for test and OOD images."""
    head = linear(data, seed)
    with torch.no_grad():
        test, ood = (head(torch.tensor(x))[None].double().softmax(-1).numpy() for x in (data.x_test, data.x_ood))
    return test, ood


def laplace(data: Features, seed: int, work: Path) -> tuple[Array, Array]:  # noqa: ARG001
    """Probabilities (S, N, C) of a linear layer with a Laplace approximation (Kronecker-factored, by laplace-torch)."""
    head = linear(data, seed)
    q = last_layer_posterior(head, torch.tensor(data.x).double(), torch.tensor(data.y), "kron")
    g = torch.Generator().manual_seed(seed)
    w = q.mean + torch.randn(SAMPLES, len(q.mean), generator=g, dtype=torch.float64) @ q.scale.mT
    classes, d = head.weight.shape
    weights = HeadWeights(w[:, : classes * d].reshape(-1, classes, d), w[:, classes * d :])
    test, ood = (weights.logits(torch.tensor(x).double()).softmax(-1).numpy() for x in (data.x_test, data.x_ood))
    return test, ood


def psde(cut: str) -> Callable[[Features, int, Path], tuple[Array, Array]]:
    """Probabilities (S, N, C) of a partially stochastic head with the defaults of tables."""

    def predict(data: Features, seed: int, work: Path) -> tuple[Array, Array]:
        run = psdenets.fit(
            None, data=data[:4], cut=cut, seed=seed, epochs=EPOCHS, batch_size=BATCH, test_samples=SAMPLES,
            out=str(work / f"{cut}-seed{seed}"), resume=True, progress="none",
        )  # fmt: skip
        rows = torch.tensor(data.x_ood)[:, :, None, None]
        g = torch.Generator().manual_seed(seed)
        ood, _ = run.model.predict_batches(torch.split(rows, 500), SAMPLES, g)
        return run.predictions.probs, ood.numpy()

    return predict


HEADS = {
    "linear": point,
    "linear, Laplace": laplace,
    "without noise": psde("none"),
    "ODE-first": psde("vertical"),
    "fully stochastic": psde("full"),
}
METRICS = {
    "accuracy": ("accuracy (%)", ".2f", 100), "ece": ("ECE (%)", ".2f", 100), "nll": ("NLL", ".4f", 1),
    "share": ("share of the weights (%)", ".2f", 100), "auroc": ("AUROC SVHN", ".4f", 1),
    "seconds": ("seconds", ".0f", 1),
}  # fmt: skip


def measure(data: Features, seed: int, work: Path) -> dict[str, dict[str, float]]:
    """Metrics of every head."""
    data = _standardised(data)
    found = {}
    for name, head in HEADS.items():
        started = time.perf_counter()
        test, ood = head(data, seed, work)
        mean, outside = test.mean(0), ood.mean(0)
        found[name] = {
            "accuracy": accuracy(mean, data.y_test),
            "ece": ece(mean, data.y_test),
            "nll": nll(mean, data.y_test),
            "share": epistemic_share(test) if len(test) > 1 else 0.0,
            "auroc": auroc(predictive_entropy(mean), predictive_entropy(outside)),
            "seconds": time.perf_counter() - started,
        }
    return found


def _standardised(data: Features) -> Features:
    mean, std = data.x.mean(0), data.x.std(0) + 1e-6
    x, x_test, x_ood = (((part - mean) / std).astype(np.float32) for part in (data.x, data.x_test, data.x_ood))
    return data._replace(x=x, x_test=x_test, x_ood=x_ood)


def page(results: dict[str, Any]) -> str:
    """HEADS.md."""
    title, _, about = __doc__.strip().split("\n\n")
    lines = ["# Heads on a frozen encoder", "", title, "", about.replace("\n", " "), ""]
    lines += ["Mean ± standard deviation over three seeds of the head; seconds are those of a shared CPU core.", ""]
    lines += [
        f"| head | {' | '.join(label for label, _, _ in METRICS.values())} |",
        "| --- |" + " --- |" * len(METRICS),
    ]
    for name in HEADS:
        cells = []
        for key, (_, form, unit) in METRICS.items():
            values = [unit * one[name][key] for one in results["seeds"].values()]
            cells.append(f"{np.mean(values):{form}} ± {np.std(values, ddof=1):.2g}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", f"Encoder: {results['encoder']}.", ""])


def main(argv: Sequence[str] | None = None) -> int:
    """Measure if asked to, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="run directory of the encoder")
    parser.add_argument("--data-root", default="data", help="directory containing the data sets")
    parser.add_argument("--work", type=Path, default=Path("runs/heads"), help="directory for features and runs")
    args = parser.parse_args(argv)
    file = HERE / "heads.json"
    if args.run is not None:
        torch.set_num_threads(1)
        data = measured_features(args.run, args.data_root, args.work)
        run = psdenets.Run.load(args.run)
        about = (
            f"preset {run.config.preset}, {run.config.training.epochs} epochs, accuracy {run.metrics['accuracy']:.2%}"
        )
        seeds = {str(seed): measure(data, seed, args.work) for seed in SEEDS}
        write_json(file, {"encoder": about, "seeds": seeds})
    write_text(HERE / "HEADS.md", page(json.loads(file.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
