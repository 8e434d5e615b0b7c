"""python -m bnneval PREDICTIONS [--ood OOD] [--out DIR]: compute the metrics of saved predictions.

PREDICTIONS is an npz file with `probs`, (N, C) or (S, N, C) with S weight samples, and `labels`, (N,); or a CSV file
with a column `label` and a column `prob_CLASS` for each class (see `bnneval.files`). OOD needs no labels. Prints a
table; with --out, also writes metrics.json, metrics.csv and the plots (PDF and PNG) to DIR.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from numpy.typing import NDArray

from bnneval import __version__, _forms
from bnneval.files import read_predictions, read_probs, write_metrics
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
    forms = "npz: probs (N,C) or (S,N,C), labels (N,); csv: label, prob_CLASS for each class"
    parser.add_argument("predictions", type=Path, metavar="PREDICTIONS", help=forms)
    parser.add_argument("--ood", type=Path, metavar="OOD", help="probs on out-of-distribution inputs, npz or csv")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write metrics and plots to this directory")
    parser.add_argument("--bins", type=int, default=15, help="number of bins of the calibration errors (default 15)")
    parser.add_argument("--version", action="version", version=__version__)
    return parser


def _run(options: argparse.Namespace) -> None:
    if options.out and (options.out / "config.json").exists() and (options.out / "metrics.json").exists():
        raise ValueError(
            f"expected an --out for results, got {options.out}, which holds a run with its own metrics.json"
        )
    given, labels, classes = read_predictions(options.predictions)
    outside = read_probs(options.ood) if options.ood else None
    if outside and classes and outside.classes and classes != outside.classes:
        raise ValueError(f"expected the classes {_forms.shown(classes)} in {options.ood.name}, got other columns")
    probs = _forms.table(given)
    ood = _forms.table(outside.probs, "OOD probs") if outside else None
    metrics = report(probs, labels, ood, options.bins)
    sys.stdout.write(table(metrics) + "\n")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        sources = {"predictions": options.predictions.name, "ood": options.ood.name if options.ood else None}
        about = {"bnneval": __version__, "bins": options.bins, **sources}
        text = dumps({"about": about, **metrics}, indent=2)
        (options.out / "metrics.json").write_text(text + "\n", encoding="utf-8")
        write_metrics(options.out / "metrics.csv", metrics)
        _plot(probs, labels, ood, options)
        sys.stdout.write(f"wrote metrics.json, metrics.csv and plots to {options.out}\n")


def _plot(probs: NDArray[Any], labels: NDArray[Any], ood: NDArray[Any] | None, options: argparse.Namespace) -> None:
    from bnneval import plots
    from bnneval.calibration import ece, reliability
    from bnneval.roc import roc
    from bnneval.selective import risk_coverage
    from bnneval.uncertainty import mutual_information, predictive_entropy

    mean = averaged(probs)
    diagram = plots.reliability_diagram(reliability(mean, labels, options.bins), ece(mean, labels, options.bins))
    plots.save(diagram, options.out / "reliability")
    curve = plots.risk_coverage_curve({options.predictions.stem: risk_coverage(mean, labels)})
    plots.save(curve, options.out / "risk_coverage")
    entropy, title = {"in-distribution": predictive_entropy(mean)}, options.predictions.stem
    if ood is not None:
        entropy["OOD"] = predictive_entropy(averaged(ood))
        title = f"{title} against {options.ood.stem}"
        curves = {"entropy": roc(entropy["in-distribution"], entropy["OOD"])}
        if probs.ndim == 3:
            curves["mutual information"] = roc(mutual_information(probs), mutual_information(ood))
        plots.save(plots.roc_curve(curves, title), options.out / "roc")
    plots.save(plots.entropy_histograms(entropy, mean.shape[1], title=title), options.out / "entropy")


if __name__ == "__main__":
    sys.exit(main())
