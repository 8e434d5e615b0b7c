"""`python -m psdenets.predict RUN_DIR IMAGE...`: print the class, probability and entropy of pictures."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psdenets import cli
from psdenets.errors import BadInput

if TYPE_CHECKING:
    from psdenets.models.base import ImageClassifier


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0 done, 2 bad input."""
    return cli.run("psdenets.predict", _main, argv)


def _parser() -> argparse.ArgumentParser:
    parser = cli.OneLineParser(
        prog="python -m psdenets.predict",
        description="Classify pictures with a finished run. They are resized to the image size of its training set.",
    )
    parser.add_argument("run_dir", metavar="RUN_DIR", help="a run directory")
    parser.add_argument("images", metavar="IMAGE", nargs="+", help="picture files, or folders of them")
    parser.add_argument("--json", action="store_true", help="one JSON object per line, with all probabilities")
    parser.add_argument("--samples", type=int, default=32, help="number of weight samples (default: 32)")
    parser.add_argument(
        "--allow-code", action="store_true", help="execute the code outside psdenets that the run refers to"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the weight samples (default: 0)")
    return parser


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    if args.samples < 1:
        raise BadInput(f"expected --samples to be at least 1, got {args.samples}")
    from bnneval.strict_json import dumps
    from psdenets.runs.loading import load
    from sdeweights import NonFiniteState

    try:
        model = load(args.run_dir, allow_code=args.allow_code)
        rows = classify(model, _files(args.images), args.samples, args.seed)
    except NonFiniteState as error:
        raise BadInput(f"cannot predict with {args.run_dir}: {error}") from None
    for row in rows:
        text = f"{row['image']}  {row['class']}  {row['probability']:.1%}  entropy {row['entropy']:.3f}"
        sys.stdout.write(dumps(row) + "\n" if args.json else text + "\n")
    return 0


def classify(model: ImageClassifier, files: list[Path], samples: int, seed: int) -> list[dict[str, Any]]:
    """One row per picture: class, its probability, total and epistemic entropy, and the probability of each class."""
    import numpy as np
    import torch

    from bnneval import entropy_split
    from psdenets.data.images import to_unit
    from psdenets.data.pictures import read_picture
    from psdenets.seeds import generator

    spec = model.spec
    pixels = np.stack([read_picture(path, spec.channels, (spec.height, spec.width)) for path in files])
    x = to_unit(torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()))
    probs = model.predict_proba(x, samples, generator(seed, "predict"), return_samples=True).numpy()
    mean, split = probs.mean(0), entropy_split(probs)
    return [
        {
            "image": str(path),
            "class": spec.classes[int(mean[i].argmax())],
            "probability": float(mean[i].max()),
            "entropy": float(split.total[i]),
            "epistemic": float(split.epistemic[i]),
            "probabilities": dict(zip(spec.classes, mean[i].tolist(), strict=True)),
        }
        for i, path in enumerate(files)
    ]


def _files(names: Sequence[str]) -> list[Path]:
    """The given picture files, and those in the given folders."""
    from psdenets.data.pictures import pictures_in

    files: list[Path] = []
    for path in map(Path, names):
        found = pictures_in(path) if path.is_dir() else [path]
        if not found:
            raise BadInput(f"expected pictures in {path}, got an empty folder")
        files += found
    return files


if __name__ == "__main__":
    sys.exit(main())
