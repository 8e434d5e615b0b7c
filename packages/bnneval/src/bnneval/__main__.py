"""python -m bnneval PREDICTIONS.npz [--ood OOD.npz] [--out DIR]: compute the metrics of saved predictions.

PREDICTIONS.npz contains `probs`, (N, C) or (S, N, C) with S weight samples, and `labels`, (N,); OOD.npz contains only
`probs`. Prints a table; with --out, also writes metrics.json and the plots (PDF and PNG) to DIR.
"""

import argparse
import sys
import zipfile
import zlib
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bnneval.predictive import averaged
from bnneval.report import report, table
from bnneval.strict_json import dumps


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status: 0, 2 with one line on stderr for bad input, 130 for Ctrl-C."""
    try:
        _run(_parser().parse_args(arguments))
    except OSError as error:
        return _stopped(f"{error.strerror}: {error.filename}" if error.filename else str(error), 2)
    except ValueError as error:
        return _stopped(str(error), 2)
    except KeyboardInterrupt:
        return _stopped("interrupted", 130)
    return 0


def _stopped(reason: str, status: int) -> int:
    sys.stderr.write(f"bnneval: {' '.join(reason.split())}\n")
    return status


class _OneLineParser(argparse.ArgumentParser):
    """Raises ValueError instead of printing the usage and exiting."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see python -m bnneval --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _OneLineParser(prog="python -m bnneval", description="Metrics of saved predictions.")
    parser.add_argument("predictions", type=Path, metavar="PREDICTIONS.npz", help="probs (N,C) or (S,N,C), labels (N,)")
    parser.add_argument("--ood", type=Path, metavar="OOD.npz", help="probs on out-of-distribution inputs")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write metrics.json and the plots to this directory")
    parser.add_argument("--bins", type=int, default=15, help="number of bins of the calibration errors (default 15)")
    return parser


def _run(options: argparse.Namespace) -> None:
    if options.out and (options.out / "config.json").exists() and (options.out / "metrics.json").exists():
        raise ValueError(
            f"expected an --out for results, got {options.out}, which holds a run with its own metrics.json"
        )
    probs, labels = read_npz(options.predictions, "probs", "labels")
    ood = read_npz(options.ood, "probs")[0] if options.ood else None
    metrics = report(probs, labels, ood, options.bins)
    sys.stdout.write(table(metrics) + "\n")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        sources = {"predictions": options.predictions.name, "ood": options.ood.name if options.ood else None}
        about = {"bnneval": _version(), "bins": options.bins, **sources}
        text = dumps({"about": about, **metrics}, indent=2)
        (options.out / "metrics.json").write_text(text + "\n", encoding="utf-8")
        _plot(probs, labels, ood, options)
        sys.stdout.write(f"wrote metrics.json and plots to {options.out}\n")


def read_npz(path: Path, *keys: str) -> list[NDArray[Any]]:
    """The arrays in an npz file with these names; nothing is unpickled."""
    wanted = " and ".join(keys)
    with path.open("rb") as stream:
        try:
            if not zipfile.is_zipfile(stream):  # numpy's error would suggest unpickling it
                raise ValueError("a file that is not an npz archive")
            stream.seek(0)
            file = np.load(stream, allow_pickle=False)
            if not set(keys) <= set(file):
                raise ValueError(", ".join(sorted(file)) or "nothing")
            return [file[key] for key in keys]
        except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
            raise ValueError(f"expected {wanted} in {path.name}, got {error}") from None


def _plot(probs: NDArray[Any], labels: NDArray[Any], ood: NDArray[Any] | None, options: argparse.Namespace) -> None:
    from bnneval import plots
    from bnneval.calibration import ece, reliability
    from bnneval.roc import roc
    from bnneval.uncertainty import mutual_information, predictive_entropy

    mean = averaged(probs)
    diagram = plots.reliability_diagram(reliability(mean, labels, options.bins), ece(mean, labels, options.bins))
    plots.save(diagram, options.out / "reliability")
    entropy, title = {"in-distribution": predictive_entropy(mean)}, options.predictions.stem
    if ood is not None:
        entropy["OOD"] = predictive_entropy(averaged(ood))
        title = f"{title} against {options.ood.stem}"
        curves = {"entropy": roc(entropy["in-distribution"], entropy["OOD"])}
        if probs.ndim == 3:
            curves["mutual information"] = roc(mutual_information(probs), mutual_information(ood))
        plots.save(plots.roc_curve(curves, title), options.out / "roc")
    plots.save(plots.entropy_histograms(entropy, mean.shape[1], title=title), options.out / "entropy")


def _version() -> str:
    try:
        return version("bnneval")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


if __name__ == "__main__":
    sys.exit(main())
