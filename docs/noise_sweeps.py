"""What decides whether weight noise acts, and whether it helps: sweeps on validation images.

    python docs/noise_sweeps.py                                               only write NOISE.md from noise.json
    python docs/noise_sweeps.py --train SWEEP... --data-root DIR --runs DIR   train the cases that are not recorded yet

Metrics are those of 10 weight samples on the first 2,000 validation images. The out-of-distribution (OOD) set is one
that RESULTS.md does not use: 1,000 drawings of Omniglot for MNIST, 600 textures of DTD for CIFAR-10. *Share* is mean
mutual information / mean predictive entropy, on validation images and on the OOD set; *width* is the median ratio of
the standard deviations of noisy weights at t2, posterior / prior. Every case is one run, so small differences mean
nothing. A factor other than 1 multiplies sigma after training.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import psdenets
from bnneval import auroc, epistemic_share, predictive_entropy
from measured.record import PATHS, commit, cpu, read, write
from measured.sweeps import SWEEPS, Case, Sweep
from psdenets import cli
from psdenets.data import Images, load_splits, load_test_images
from psdenets.data.readers import read_npz
from psdenets.data.sets import alike
from psdenets.errors import BadInput, did_you_mean
from psdenets.models.base import ImageClassifier
from psdenets.models.psde import Classifier
from psdenets.runs.files import write_text
from psdenets.runs.noise import noise_metrics
from psdenets.runs.plots import width_ratios
from psdenets.runs.predictions import predict
from psdenets.seeds import generator

HERE = Path(__file__).parent
IMAGES, OOD_IMAGES, SAMPLES = 2000, {"mnist": 1000, "cifar10": 600}, 10
HEADINGS = (
    "case", "factor", "accuracy", "ECE", "NLL", "NLL, one sample", "NLL, no noise", "share, validation / OOD",
    "AUROC OOD", "width",
)  # fmt: skip


def measure(case: Case, runs: Path, data_root: str) -> dict[str, Any]:
    """Train or resume the run of a case, and measure it on validation images."""
    options = {**case.options, "data_root": data_root, "limit_test": 1}  # the test set is not looked at
    if case.start is not None:
        options["start_from"] = str(runs / case.start)
    run = psdenets.fit(case.preset, out=str(runs / case.name), resume=True, progress="none", **options)
    model = run.model
    images = load_splits(model.config).val.first(IMAGES)
    foreign = ood_images(model)
    return {
        "sweep": case.sweep,
        "label": case.label,
        "commit": commit(),
        "cpu": cpu(),
        "seconds": run.metrics["seconds"],
        "config": {key: value for key, value in run.config.as_dict().items() if key not in PATHS},
        "width": width(model),
        "factors": {f"{factor:g}": at_factor(model, factor, images, foreign) for factor in case.factors},
    }


def ood_images(model: ImageClassifier) -> Images:
    """The out-of-distribution set of the sweeps, which is not one of RESULTS.md."""
    data = model.config.dataset
    if data == "mnist":
        found = load_test_images("omniglot", model.config, model.spec)
        return found.take(torch.arange(0, len(found), 4)).first(OOD_IMAGES[data])
    pixels, _ = read_npz(Path(model.config.data_root) / "dtd-1200.npz")
    textures = torch.from_numpy(np.ascontiguousarray(pixels[: OOD_IMAGES[data]]))
    if textures.shape[-1] == 3:
        textures = textures.permute(0, 3, 1, 2)
    return Images(alike(textures, model.spec), torch.zeros(len(textures), dtype=torch.int64))


def width(model: ImageClassifier) -> float | None:
    """Median over the noisy weights of posterior / prior standard deviation at t2; None without noise."""
    noisy = [block for block in model.deep_blocks if block.noisy] if isinstance(model, Classifier) else []
    return float(np.median(np.concatenate([width_ratios(block) for block in noisy]))) if noisy else None


def at_factor(model: ImageClassifier, factor: float, images: Images, foreign: Images) -> dict[str, float]:
    """The metrics of a row, with sigma multiplied by a factor."""
    if isinstance(model, Classifier):
        model.set_sigma(factor)
    g = generator(model.config.seed, "sweep")
    predictions = predict(model, images, SAMPLES, g)
    outside = predict(model, foreign, SAMPLES, g).probs
    entropies = predictive_entropy(predictions.probs.mean(0)), predictive_entropy(outside.mean(0))
    return {
        **predictions.metrics(),
        **noise_metrics(model, images, predictions),
        "ood_share": epistemic_share(outside),
        "ood_auroc": float(auroc(*entropies)),
    }


def page(entries: dict[str, dict[str, Any]]) -> str:
    """NOISE.md."""
    title, usage, about = __doc__.strip().split("\n\n")
    lines = ["# Noise that acts, and noise that helps", "", f"{title} Written by docs/noise_sweeps.py:", "", usage, ""]
    lines += [about.replace("\n", " "), ""]
    for name, sweep in SWEEPS.items():
        found = {case.label: entries[case.name] for case in sweep.cases if case.name in entries}
        if found:
            lines += section(name, sweep, found)
    return "\n".join(lines)


def section(name: str, sweep: Sweep, found: dict[str, dict[str, Any]]) -> list[str]:
    """One sweep: what varies, the table, and where it was measured."""
    rows = [
        [label if k == 0 else "", factor, *cells(row), f"{entry['width']:.3f}" if entry["width"] and k == 0 else "–"]
        for label, entry in found.items()
        for k, (factor, row) in enumerate(entry["factors"].items())
    ]
    minutes = sum(entry["seconds"] for entry in found.values()) / 60
    origin = sorted({f"{entry['cpu']}, commit {entry['commit']}" for entry in found.values()})
    missing = [case.label for case in sweep.cases if case.label not in found]
    return [
        f"## {sweep.title}", "", f"`{name}`: {sweep.about}", "",
        *("| " + " | ".join(row) + " |" for row in [list(HEADINGS), ["---"] * len(HEADINGS), *rows]), "",
        *([f"Finding: {sweep.finding}", ""] if sweep.finding and not missing else []),
        *([f"Not measured: {', '.join(missing)}.", ""] if missing else []),
        f"{minutes:.0f} minutes of training in all, on shared cores ({'; '.join(origin)}).", "",
    ]  # fmt: skip


def cells(row: dict[str, float]) -> list[str]:
    """The metrics of one row."""
    return [
        f"{row['accuracy']:.2%}",
        f"{row['ece']:.2%}",
        *(f"{row[key]:.4f}" for key in ("nll", "nll_one_sample", "nll_no_noise")),
        f"{row['epistemic_share']:.1%} / {row['ood_share']:.1%}",
        f"{row['ood_auroc']:.4f}",
    ]


def main(argv: Sequence[str] | None = None, folder: Path = HERE) -> int:
    """Run the command and return its exit status: 0 done, 2 bad input."""
    return cli.run("noise_sweeps.py", lambda given: _main(given, folder), argv)


def _main(argv: Sequence[str], folder: Path) -> int:
    parser = cli.OneLineParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs="+", metavar="SWEEP", default=[], help=f"sweeps: {', '.join(SWEEPS)}")
    parser.add_argument("--runs", type=Path, default=Path("runs/noise"), help="directory for the run directories")
    parser.add_argument("--data-root", default="data", help="directory containing the data sets")
    args = parser.parse_args(argv)
    for name in args.train:
        if name not in SWEEPS:
            raise BadInput(f"expected a sweep of {', '.join(SWEEPS)}, got {name}{did_you_mean(name, SWEEPS)}")
    file = folder / "noise.json"
    for case in [case for name in args.train for case in SWEEPS[name].cases]:
        if case.name not in read(file):
            found = measure(case, args.runs, args.data_root)
            write(file, {**read(file), case.name: found})
    write_text(folder / "NOISE.md", page(read(file)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
