"""`python -m psdenets.predict RUN_DIR IMAGE...`: print the class, probability and uncertainty of pictures.

Folders are read a batch at a time. A picture that cannot be read is reported in one line on standard error, and the
others are predicted. For a run on a table, `RUN_DIR ROWS.csv...` prints the class of each row, or its mean, interval
and standard deviations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from psdenets import cli
from psdenets.errors import BadInput, printable
from psdenets.prediction_rows import Row, Writer, about_classes, about_numbers

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from psdenets.data.spec import ImageSpec
    from psdenets.models.base import ImageClassifier

_BATCH = 256  # pictures in memory at a time


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0 done, 1 some pictures could not be read, 2 bad input."""
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
    parser.add_argument("--out", metavar="FILE", help="write a csv file with a header, or with --json a file of lines")
    parser.add_argument("--samples", type=int, help="number of weight samples (default: the run's)")
    parser.add_argument(
        "--allow-code", action="store_true", help="execute the code outside psdenets that the run refers to"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the weight samples (default: 0)")
    return parser


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    if args.samples is not None and args.samples < 1:
        raise BadInput(f"expected --samples to be at least 1, got {args.samples}")
    from psdenets.runs.loading import load
    from sdeweights import NonFiniteState

    failures = Failures([])
    try:
        model = load(args.run_dir, allow_code=args.allow_code)
        samples = args.samples or model.config.system.final_samples
        if model.spec.columns:
            rows: Iterable[Row] = predict_rows(model, [Path(name) for name in args.images], samples, args.seed)
        else:
            rows = classify(model, _files(args.images), samples, args.seed, familiar(args.run_dir), failures)
        with Writer.to(args.out, args.json) as writer:
            for row in rows:
                writer.write(row)
    except NonFiniteState as error:
        raise BadInput(f"cannot predict with {args.run_dir}: {error}") from None
    if failures.files:
        sys.stderr.write(f"psdenets.predict: {len(failures.files)} of {failures.tried} pictures could not be read\n")
    return 1 if failures.files else 0


class Failures:
    """Pictures that could not be read; each is reported at once."""

    def __init__(self, files: list[Path]) -> None:
        self.files, self.tried = files, 0

    def note(self, path: Path, error: BadInput) -> None:
        """Report one."""
        self.files.append(path)
        sys.stderr.write(f"psdenets.predict: {printable(str(error))}\n")


class Batch(NamedTuple):
    """Pictures that could be read, and their pixels (N, C, H, W)."""

    files: list[Path]
    pixels: Tensor


def classify(
    model: ImageClassifier,
    files: Iterable[Path],
    samples: int,
    seed: int,
    familiar: np.ndarray | None,
    failures: Failures,
) -> Iterator[Row]:
    """Yield a row per picture that can be read, in batches with the same weight samples; see `about_classes`."""
    from psdenets.data.images import to_unit
    from psdenets.seeds import generator

    read: list[Batch] = []  # the last batch

    def batches() -> Iterator[Tensor]:
        for batch in _batches(files, model.spec, model.config.aspect, failures):
            read[:] = [batch]
            yield to_unit(batch.pixels)

    for probs in model.predict_stream(batches(), samples, generator(seed, "predict")):
        rows = about_classes(probs.numpy(), model.spec, familiar)
        yield from ({"image": str(path), **row} for path, row in zip(read[0].files, rows, strict=True))


def _batches(files: Iterable[Path], spec: ImageSpec, aspect: str, failures: Failures) -> Iterator[Batch]:
    import numpy as np
    import torch

    from psdenets.data.pictures import read_picture

    names: list[Path] = []
    pixels: list[np.ndarray] = []
    for path in files:
        failures.tried += 1
        try:
            pixels.append(read_picture(path, spec.channels, (spec.height, spec.width), aspect))
            names.append(path)
        except BadInput as error:
            failures.note(path, error)
        if len(names) == _BATCH:
            yield Batch(names, torch.from_numpy(np.stack(pixels).transpose(0, 3, 1, 2).copy()))
            names, pixels = [], []
    if names:
        yield Batch(names, torch.from_numpy(np.stack(pixels).transpose(0, 3, 1, 2).copy()))


def familiar(run_dir: str | Path) -> np.ndarray | None:
    """Sorted predictive entropies of the validation images of a run; None if the run has not kept them."""
    import numpy as np

    from bnneval import mean_probs, predictive_entropy
    from psdenets.runs.checksums import Folder
    from psdenets.runs.prediction_files import read_predictions

    folder, name = Folder(Path(run_dir)), "validation.npz"
    if not (folder.path / name).is_file():
        return None
    return np.sort(predictive_entropy(mean_probs(read_predictions(folder, name).probs)))


def predict_rows(model: ImageClassifier, files: list[Path], samples: int, seed: int) -> list[Row]:
    """One dict per row of csv files: its class, or mean, 90 % interval, and total and epistemic standard deviation."""
    from psdenets.seeds import generator

    found = []
    for path in files:
        predictive, _ = model.predict_batches([_rows(path, model.spec)], samples, generator(seed, "predict"))
        values = predictive.numpy()
        each = about_classes(values, model.spec) if model.spec.classes else about_numbers(model.likelihood, values)
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
