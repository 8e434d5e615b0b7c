"""`python -m psdenets.evaluate RUN_DIR`: a trained classifier with more samples, on foreign and on corrupted images."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from psdenets import cli
from psdenets.errors import BadInput

if TYPE_CHECKING:
    import numpy as np

    from psdenets.data import Images
    from psdenets.models.base import ImageClassifier
    from psdenets.runs.directory import RunDir


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status: 0 done, 2 bad input."""
    return cli.run("psdenets.evaluate", _main, argv)


def _parser() -> argparse.ArgumentParser:
    parser = cli.OneLineParser(
        prog="python -m psdenets.evaluate",
        description="Evaluate a finished run on its test images, and on others that it should be unsure about.",
    )
    parser.add_argument("run_dir", metavar="RUN_DIR", help="a run directory")
    parser.add_argument("--samples", type=int, default=None, help="weight paths (default: as many as the run's end)")
    parser.add_argument("--ood", default=None, metavar="NAME", help="a data set, a folder of pictures, or noise")
    parser.add_argument("--corruptions", action="store_true", help="the 19 CIFAR-10-C corruptions, severities 1 to 5")
    parser.add_argument("--frost", default=None, metavar="DIR", help="photographs for the corruption frost")
    parser.add_argument(
        "--data-root", default=None, help="where data sets lie (default: $PSDENETS_DATA, then the run's)"
    )
    parser.add_argument("--limit-test", type=int, default=None, help="use so many images of each set")
    parser.add_argument("--seed", type=int, default=None, help="seed of the weight paths (default: the run's)")
    parser.add_argument("--out", default=None, help="where results go (default: RUN_DIR/evaluation)")
    return parser


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    for name in ("samples", "limit_test"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise BadInput(f"expected --{name.replace('_', '-')} to be at least 1, got {getattr(args, name)}")
    sys.stdout.write(evaluate(args))
    return 0


def evaluate(args: argparse.Namespace) -> str:
    """Everything that was asked for, written under --out; returns the table to print."""
    import os
    from pathlib import Path

    from bnneval import report, table
    from psdenets.data import load_splits, load_test_images
    from psdenets.data.sets import VARIABLE
    from psdenets.runs.directory import RunDir, versions
    from psdenets.runs.files import write_json
    from psdenets.runs.loading import load
    from psdenets.runs.predictions import predict
    from psdenets.runs.results import save_predictions
    from psdenets.seeds import generator

    model = load(args.run_dir)
    config = model.config
    root = args.data_root or os.environ.get(VARIABLE) or config.data_root
    config = config.replace(data_root=root, limit_test=args.limit_test or config.limit_test, download=False)
    samples, seed = args.samples or config.final_samples, config.seed if args.seed is None else args.seed
    out = RunDir(Path(args.out) if args.out else Path(args.run_dir) / "evaluation")
    test = load_splits(config).test
    images = None if args.ood is None else load_test_images(args.ood, config, model.spec).first(args.limit_test)
    inside = predict(model, test, samples, generator(seed, "final"))
    save_predictions(out, "predictions.npz", inside)
    foreign = None
    if images is not None:
        outside = predict(model, images, samples, generator(seed, "final"))
        save_predictions(out, "ood.npz", outside)
        foreign = outside.probs
    metrics = report(inside.probs, inside.labels, foreign)
    result: dict[str, Any] = {
        "metrics": _without_nan(metrics),
        "run_dir": str(args.run_dir),
        "samples": samples,
        "seed": seed,
        "ood": args.ood,
        "versions": versions(),
    }
    lines = [table(metrics)]
    if args.corruptions:
        result["corruptions"], shown = _corruptions(model, test, samples, seed, args.frost, out)
        lines.append(shown)
    _plots(out, inside.probs, inside.labels, foreign, args.ood)
    write_json(out.file("metrics.json"), result)
    return "\n".join([*lines, f"written to {out.path}", ""])


def _without_nan(value: Any) -> Any:
    """The mean confidence of a bin without images is NaN, which JSON does not know: null."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _corruptions(
    model: ImageClassifier, test: Images, samples: int, seed: int, frost: str | None, out: RunDir
) -> tuple[dict[str, Any], str]:
    """Accuracy, ECE and entropy at each severity; the same weight samples for every picture."""
    import numpy as np
    import torch

    from bnneval import CORRUPTIONS, evaluate_shift
    from bnneval import plots as bnn_plots
    from psdenets.data.images import to_unit
    from psdenets.data.sets import alike
    from psdenets.runs.plots import save
    from psdenets.seeds import generator

    def probabilities(pictures: np.ndarray) -> np.ndarray:
        pixels = alike(torch.from_numpy(np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))), model.spec)
        probs = model.predict_proba(to_unit(pixels), samples, generator(seed, "final"), return_samples=True)
        return probs.double().numpy()

    colour = test.pixels.expand(-1, 3, -1, -1).numpy().transpose(0, 2, 3, 1)  # corruptions are defined in colour
    try:
        shift = evaluate_shift(probabilities, colour, test.labels.numpy(), frost=frost)
    except ValueError as error:
        raise BadInput(f"cannot corrupt these images: {error}") from None
    save(bnn_plots.entropy_by_severity(shift), out.file("entropy_by_severity.png"))
    rows = {str(severity): cell._asdict() for severity, cell in shift.by_severity.items()}
    shown = "\n".join(
        f"severity {severity}  accuracy {row['accuracy']:.2%}  ece {row['ece']:.2%}  entropy {row['entropy_mean']:.4f}"
        for severity, row in rows.items()
    )
    return {"by_severity": rows, "corruptions": list(CORRUPTIONS)}, shown


def _plots(out: RunDir, inside: np.ndarray, labels: np.ndarray, outside: np.ndarray | None, name: str | None) -> None:
    from bnneval import ece, mean_probs, predictive_entropy, reliability, roc
    from bnneval import plots as bnn_plots
    from psdenets.runs.plots import save

    mean = mean_probs(inside)
    entropies = {"test": predictive_entropy(mean)}
    save(bnn_plots.reliability_diagram(reliability(mean, labels), ece(mean, labels)), out.file("reliability.png"))
    if outside is not None and name is not None:
        entropies[name] = predictive_entropy(mean_probs(outside))
        save(bnn_plots.roc_curve({"entropy": roc(entropies["test"], entropies[name])}), out.file("roc.png"))
    save(bnn_plots.entropy_histograms(entropies, mean.shape[1]), out.file("entropy.png"))


if __name__ == "__main__":
    sys.exit(main())
