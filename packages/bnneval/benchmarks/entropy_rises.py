"""Does predictive entropy rise with corruption? A small network on CIFAR-10, over 19 corruptions x 5 severities.

    python benchmarks/entropy_rises.py --data DATA [--frost DIR] [--out DIR] [--epochs 4] [--images 1000] [--seed 0]

DATA contains cifar-10-batches-bin (the binary version). Requires torch. Takes about ten minutes on one thread.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bnneval import evaluate_shift, mean_corruption_error, plots
from bnneval.strict_json import dumps


def cifar10(data: Path, *batches: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 32, 32, 3) and labels (N,) from files of the binary version."""
    records = np.concatenate([np.fromfile(data / "cifar-10-batches-bin" / b, np.uint8) for b in batches]).reshape(
        -1, 3073
    )
    return np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)), records[:, 0].astype(
        np.int64
    )


def tensor(images: np.ndarray) -> torch.Tensor:
    """Bytes to (N, 3, 32, 32) floats in [-1, 1], channels last."""
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float().div(127.5).sub(1)
    return x.contiguous(memory_format=torch.channels_last)


def network() -> nn.Module:
    """Three stages of convolution, normalisation and pooling, then a linear layer: 95 thousand parameters."""

    def stage(a: int, b: int) -> list[nn.Module]:
        return [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2)]

    body = [*stage(3, 32), *stage(32, 64), *stage(64, 128)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def train(model: nn.Module, images: np.ndarray, labels: np.ndarray, epochs: int, generator: torch.Generator) -> None:
    """Adam with a one-cycle learning-rate schedule, batches of 128, random horizontal flips."""
    model.to(memory_format=torch.channels_last).train()
    steps = len(labels) // 128
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 5e-3, total_steps=epochs * steps)
    for epoch in range(epochs):
        order, total = torch.randperm(len(labels), generator=generator), 0.0
        for batch in order[: steps * 128].view(steps, 128):
            x = tensor(images[batch.numpy()])
            if torch.rand((), generator=generator) < 0.5:
                x = x.flip(3)
            loss = nn.functional.cross_entropy(model(x), torch.from_numpy(labels[batch.numpy()]))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: mean loss {total / steps:.3f}", flush=True)


def main() -> None:
    """Train, evaluate, print the rows of Table 2 and the trend."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--frost", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    start = time.perf_counter()
    model = network()
    train_set = cifar10(options.data, *(f"data_batch_{k}.bin" for k in range(1, 6)))
    train(model, *train_set, options.epochs, torch.Generator().manual_seed(options.seed))
    model.eval()
    print(f"trained in {time.perf_counter() - start:.0f} s")

    @torch.no_grad()
    def predict(images: np.ndarray) -> torch.Tensor:
        return model(tensor(images)).softmax(dim=1)

    images, labels = cifar10(options.data, "test_batch.bin")
    n = options.images
    shift = evaluate_shift(predict, images[:n], labels[:n], seed=options.seed, frost=options.frost)
    assert shift.clean is not None
    print(f"frost: {shift.frost}\n{'':>8} {'entropy':>8} {'std':>7} {'accuracy':>9} {'ECE':>7} {'NLL':>7}")
    for name, cell in [("clean", shift.clean), *((str(s), c) for s, c in shift.by_severity.items())]:
        mean, std, accuracy, ece, nll = cell
        print(f"{name:>8} {mean:8.4f} {std:7.4f} {accuracy:9.4f} {ece:7.4f} {nll:7.4f}")
    for name, row in shift.cells.items():
        print(f"{name:>18} " + " ".join(f"{cell.entropy_mean:.3f}" for cell in row.values()))
    print(shift.trend())
    print(f"mean corruption error (plain mean): {mean_corruption_error(shift):.4f}")
    print(f"{time.perf_counter() - start:.0f} s in total")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "shift.json").write_text(dumps(shift.to_dict(), indent=1))
        plots.save(plots.entropy_by_severity(shift), options.out / "entropy_by_severity")


if __name__ == "__main__":
    main()
