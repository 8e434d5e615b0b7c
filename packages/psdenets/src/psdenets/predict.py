"""`python -m psdenets.predict RUN_DIR IMAGE...`: print the class, probability and entropy of pictures.

For a run on a table, `RUN_DIR ROWS.csv...` prints the class of each row, or its mean, interval and standard deviations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psdenets import cli
from psdenets.errors import BadInput

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from psdenets.data.spec import ImageSpec
    from psdenets.models.base import ImageClassifier


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0 done, 2 bad input."""
    return cli.run("psdenets.predict", _main, argv)


def _parser() -> argparse.ArgumentParser:
    parser = cli.OneLineParser(
        prog="python -m psdenets.predict",
        description="Classify pictures with a finished run. They are resized to the image size of its training set. "
        "A run on a table predicts the rows of csv files.",
    )
    parser.add_argument("run_dir", metavar="RUN_DIR", help="a run directory")
    parser.add_argument(
        "images", metavar="IMAGE", nargs="+", help="picture files, or folders of them; csv files for a run on a table"
    )
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
        if model.spec.columns:
            rows = predict_rows(model, [Path(name) for name in args.images], args.samples, args.seed)
        else:
            rows = classify(model, _files(args.images), args.samples, args.seed)
    except NonFiniteState as error:
        raise BadInput(f"cannot predict with {args.run_dir}: {error}") from None
    for row in rows:
        sys.stdout.write((dumps(row) if args.json else _text(row)) + "\n")
    return 0


def _text(row: dict[str, Any]) -> str:
    where = row["image"] if "image" in row else f"{row['file']} row {row['row']}"
    if "class" in row:
        return f"{where}  {row['class']}  {row['probability']:.1%}  entropy {row['entropy']:.3f}"
    return (
        f"{where}  {row['mean']:.6g}  90 % from {row['low']:.6g} to {row['high']:.6g}  std {row['std']:.3g}, "
        f"of the weights {row['epistemic_std']:.3g}"
    )


def classify(model: ImageClassifier, files: list[Path], samples: int, seed: int) -> list[dict[str, Any]]:
    """One row per picture: class, its probability, total and epistemic entropy, and the probability of each class."""
    import numpy as np
    import torch

    from psdenets.data.images import to_unit
    from psdenets.data.pictures import read_picture
    from psdenets.seeds import generator

    spec = model.spec
    pixels = np.stack([read_picture(path, spec.channels, (spec.height, spec.width)) for path in files])
    x = to_unit(torch.from_numpy(pixels.transpose(0, 3, 1, 2).copy()))
    probs = model.predict_proba(x, samples, generator(seed, "predict"), return_samples=True).numpy()
    return [{"image": str(path), **found} for path, found in zip(files, _classes(probs, spec), strict=True)]


def _classes(probs: NDArray[np.float64], spec: ImageSpec) -> list[dict[str, Any]]:
    """Class, probability and entropy of each image or row, from probabilities (S, N, C)."""
    from bnneval import entropy_split

    mean, split = probs.mean(0), entropy_split(probs)
    return [
        {
            "class": spec.classes[int(mean[i].argmax())],
            "probability": float(mean[i].max()),
            "entropy": float(split.total[i]),
            "epistemic": float(split.epistemic[i]),
            "probabilities": dict(zip(spec.classes, mean[i].tolist(), strict=True)),
        }
        for i in range(len(mean))
    ]


def predict_rows(model: ImageClassifier, files: list[Path], samples: int, seed: int) -> list[dict[str, Any]]:
    """One dict per row of csv files: its class, or mean, 90 % interval, and total and epistemic standard deviation."""
    from psdenets.seeds import generator

    found = []
    for path in files:
        predictive, _ = model.predict_batches([_rows(path, model.spec)], samples, generator(seed, "predict"))
        law = model.likelihood
        each = _classes(predictive.numpy(), model.spec) if model.spec.classes else _numbers(law, predictive.numpy())
        found += [{"file": str(path), "row": i + 1, **one} for i, one in enumerate(each)]
    return found


def _rows(path: Path, spec: ImageSpec) -> Tensor:
    """The columns of a run from a csv file, in their order; other columns, such as the target, are ignored."""
    from psdenets.data.table_files import read_csv
    from psdenets.data.tables import rows_of

    names, values = read_csv(path)
    missing = [name for name in spec.columns if name not in names]
    if missing:
        raise BadInput(f"expected the columns {', '.join(spec.columns)} in {path}, got no {missing[0]}")
    return rows_of(values[:, [names.index(name) for name in spec.columns]], path)


def _numbers(law: Any, predictive: NDArray[np.float64]) -> list[dict[str, Any]]:
    """Mean, 90 % interval and standard deviations of each row, from location and scale (S, N, 2)."""
    location, scale = predictive[..., 0], predictive[..., 1]
    epistemic = location.std(0)
    total = (epistemic**2 + ((law.law.std() * scale) ** 2).mean(0)) ** 0.5
    low, high = law.interval(predictive)
    names = ("mean", "low", "high", "std", "epistemic_std")
    rows = zip(location.mean(0), low, high, total, epistemic, strict=True)
    return [dict(zip(names, map(float, row), strict=True)) for row in rows]


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
