"""`python -m psdenets.evaluate RUN_DIR`: evaluate a finished run on test, out-of-distribution or corrupted images."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psdenets import cli
from psdenets.errors import BadInput
from psdenets.options.fields import COUNTS, numbers
from psdenets.tasks import task_of

if TYPE_CHECKING:
    import numpy as np

    from psdenets.data import Images, Splits
    from psdenets.models.base import ImageClassifier
    from psdenets.runs.bounds import EvidenceBounds
    from psdenets.runs.directory import RunDir
    from psdenets.runs.predictions import Predictions


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0 done, 2 bad input."""
    return cli.run("psdenets.evaluate", _main, argv)


def _parser() -> argparse.ArgumentParser:
    parser = cli.OneLineParser(
        prog="python -m psdenets.evaluate",
        description="Evaluate a finished run on its test images, out-of-distribution images or corrupted images.",
    )
    parser.add_argument("run_dir", metavar="RUN_DIR", help="a run directory")
    parser.add_argument("--samples", type=int, help="number of weight samples (default: the run's)")
    parser.add_argument(
        "--steps", help="solver steps per block (default: the run's); a list like 2,4,8 evaluates and plots each"
    )
    parser.add_argument(
        "--mirror",
        action=argparse.BooleanOptionalAction,
        help="average over each image and its mirror image (default: as the run)",
    )
    parser.add_argument("--ood", metavar="NAME", help="a data set, a folder of pictures, or noise")
    parser.add_argument("--corruptions", action="store_true", help="the 19 CIFAR-10-C corruptions, severities 1 to 5")
    parser.add_argument(
        "--bounds", type=int, metavar="K", help="ELBO and importance-weighted bound from K samples, on training images"
    )
    parser.add_argument("--frost", metavar="DIR", help="photographs for the corruption frost")
    parser.add_argument(
        "--data-root", help="directory containing the data sets (default: $PSDENETS_DATA, then the run's)"
    )
    parser.add_argument("--limit-test", type=int, help="limit the number of images of each set")
    parser.add_argument(
        "--allow-code", action="store_true", help="execute the code outside psdenets that the run refers to"
    )
    parser.add_argument("--seed", type=int, help="seed of the weight samples (default: the run's)")
    parser.add_argument("--out", help="directory for the results (default: RUN_DIR/evaluation)")
    return parser


def _main(argv: Sequence[str]) -> int:
    args = _parser().parse_args(argv)
    for name, value in (("samples", args.samples), ("limit-test", args.limit_test), ("bounds", args.bounds)):
        if value is not None and value < 1:
            raise BadInput(f"expected --{name} to be at least 1, got {value}")
    if args.steps is not None and not COUNTS.holds(args.steps):
        raise BadInput(f"expected --steps {COUNTS.words}, got {args.steps}")
    from sdeweights import NonFiniteState

    try:
        sys.stdout.write(evaluate(args))
    except NonFiniteState as error:
        raise BadInput(f"cannot evaluate {args.run_dir}: {error}") from None
    return 0


def evaluate(args: argparse.Namespace) -> str:
    """Evaluate according to the flags, write the results to --out, and return the text to print."""
    from pathlib import Path

    from psdenets.runs.directory import RunDir
    from psdenets.runs.lock import only_writer

    out = RunDir(Path(args.out) if args.out else Path(args.run_dir) / "evaluation")
    if not RunDir(Path(args.run_dir)).holds_run:
        raise BadInput(f"expected a run directory with config.json and data.json, got {args.run_dir}")
    if out.holds_run:
        raise BadInput(f"expected an --out for results, got {out.path}, which holds a run whose metrics would be lost")
    with only_writer(out.path):
        return _evaluated(args, out)


def _evaluated(args: argparse.Namespace, out: RunDir) -> str:
    """Evaluate according to the flags, and write the results to `out`."""
    import os
    from pathlib import Path

    from bnneval import table
    from psdenets.data import load_splits, load_test_images
    from psdenets.data.sets import VARIABLE
    from psdenets.runs.directory import versions
    from psdenets.runs.noise import noise_metrics, samples_agree
    from psdenets.runs.plots import prediction_figures, save

    *coarser, steps = (None,) if args.steps is None else numbers(int, args.steps)
    model = _loaded(args, steps)
    if model.spec.columns and (args.ood is not None or args.corruptions):
        raise BadInput(f"expected --ood and --corruptions with a run on images, got {args.run_dir}, a run on a table")
    own = model.config.data_root if model.config.dataset in ("csv", "imagefolder") else None  # the data themselves
    root = args.data_root or own or os.environ.get(VARIABLE) or model.config.data_root
    limit = args.limit_test or model.config.limit_test
    config = model.config.replace(data_root=root, limit_test=limit, download=False)
    samples, seed = args.samples or config.system.final_samples, config.seed if args.seed is None else args.seed
    splits = load_splits(config)
    test = splits.test
    if not args.data_root:
        _require_same(Path(args.run_dir), splits)
    foreign = None if args.ood is None else load_test_images(args.ood, config, model.spec).first(args.limit_test)
    bounds = _bounds(model, splits.train, args.bounds, seed)
    by_steps = {n: _on_grid(args, n, test, samples, seed) for n in coarser}
    predictions = _predicted(model, test, samples, seed, out, "predictions.npz")
    ood = {} if foreign is None else {args.ood: _predicted(model, foreign, samples, seed, out, "ood.npz")}
    metrics = _reported(predictions, ood.get(args.ood)) | noise_metrics(model, test, predictions)
    flow = config.system.flow
    about = {"run_dir": str(args.run_dir), "samples": samples, "seed": seed, "ood": args.ood, "versions": versions()}
    about["mirror"] = config.system.prediction.mirror
    about["steps"] = None if flow is None or flow.adaptive else flow.finest
    result: dict[str, Any] = {"metrics": metrics, **about}
    lines = [table(metrics), samples_agree(config, metrics["epistemic_share"], len(predictions.probs))]
    if args.corruptions:
        result["corruptions"], shown = _corruptions(model, test, samples, seed, args.frost, out)
        lines.append(shown)
    if bounds is not None:
        result["bounds"] = bounds._asdict()
        lines.append(str(bounds))
    if by_steps:
        result["by_steps"] = by_steps | {steps: predictions.metrics()}
        lines.append(_grids(args, result["by_steps"], out))
    for name, figure in prediction_figures(predictions, ood).items():
        save(figure, out.file(f"{name}.png"))
    out.folder.write_json("metrics.json", result)
    return "\n".join([*filter(None, lines), f"written to {out.path}", ""])


def _require_same(run_dir: Path, splits: Splits) -> None:
    """Raise BadInput if the pictures of a run have changed, since the test images of now may have been trained on."""
    from psdenets.runs.checksums import Folder
    from psdenets.runs.forms import DATA

    before = Folder(run_dir).read_json("data.json", DATA, infinities=False).get("checksum")
    if None not in (before, splits.checksum) and before != splits.checksum:
        raise BadInput(
            f"expected the pictures that {run_dir} was trained on, got others, so its training images may be among the "
            "test images; --data-root FOLDER evaluates it on a folder anyway"
        )


def _loaded(args: argparse.Namespace, steps: int | None) -> ImageClassifier:
    """The classifier of a run, on another grid and with or without mirror images if the flags say so."""
    from psdenets.runs.loading import load

    model = load(args.run_dir, allow_code=args.allow_code, steps=steps)
    if args.mirror is not None:
        model.config = model.config.replace(mirror=args.mirror)
    return model


def _predicted(model: ImageClassifier, images: Images, samples: int, seed: int, out: RunDir, name: str) -> Predictions:
    """Predictions with the same weight samples as at the end of training, saved under `name`."""
    from psdenets.runs.prediction_files import save_predictions
    from psdenets.runs.predictions import predict
    from psdenets.seeds import generator

    predictions = predict(model, images, samples, generator(seed, "final"))
    save_predictions(out.folder, name, predictions)
    return predictions


def _reported(predictions: Predictions, ood: Predictions | None) -> dict[str, Any]:
    """All metrics of bnneval for classes; those of the likelihood for numbers."""
    from bnneval import report

    if not task_of(predictions.metrics()).classifies:
        return {"rows": len(predictions.labels), "weight_samples": len(predictions.probs), **predictions.metrics()}
    return report(predictions.probs, predictions.labels, None if ood is None else ood.probs)


def _bounds(model: ImageClassifier, images: Images, samples: int | None, seed: int) -> EvidenceBounds | None:
    """Bounds on the log evidence, if they are asked for."""
    from psdenets.runs.bounds import evidence_bounds
    from psdenets.seeds import generator

    return None if samples is None else evidence_bounds(model, images, samples, generator(seed, "bounds"))


def _on_grid(args: argparse.Namespace, steps: int, images: Images, samples: int, seed: int) -> dict[str, float]:
    """Metrics of a run on a grid with this number of steps per block."""
    from psdenets.runs.predictions import predict
    from psdenets.seeds import generator

    return predict(_loaded(args, steps), images, samples, generator(seed, "final")).metrics()


def _grids(args: argparse.Namespace, by_steps: Mapping[int, Mapping[str, float]], out: RunDir) -> str:
    """Plot the metrics of each grid, and return their table."""
    from psdenets.runs.loading import read_config
    from psdenets.runs.plots import metrics_by_steps, save

    trained = read_config(args.run_dir, args.allow_code)[0].system.flow.finest
    save(metrics_by_steps(by_steps, trained), out.file("steps.png"))
    lines = []
    for n, row in by_steps.items():
        task = task_of(row)
        score, calibration = (f"{item.key} {item.of(row)}" for item in (task.score, task.calibration))
        lines.append(f"steps {n:4d}  {score}  nll {row['nll']:.4f}  {calibration}  kl {row['kl']:.1f}")
    return "\n".join(lines)


def _corruptions(
    model: ImageClassifier, test: Images, samples: int, seed: int, frost: str | None, out: RunDir
) -> tuple[dict[str, Any], str]:
    """Metrics per severity, pooled over corruptions, and their table; all images use the same weight samples."""
    import numpy as np
    import torch

    from bnneval import CORRUPTIONS, evaluate_shift
    from bnneval import plots as bnn_plots
    from psdenets.data.images import to_unit
    from psdenets.data.sets import alike
    from psdenets.runs.plots import save
    from psdenets.seeds import generator

    def probabilities(corrupted: np.ndarray) -> np.ndarray:
        pixels = alike(torch.from_numpy(np.ascontiguousarray(corrupted.transpose(0, 3, 1, 2))), model.spec)
        return model.predict_proba(to_unit(pixels), samples, generator(seed, "final"), return_samples=True).numpy()

    colour = test.pixels[:].expand(-1, 3, -1, -1).numpy().transpose(0, 2, 3, 1)  # corruptions are defined in colour
    try:
        shift = evaluate_shift(probabilities, colour, test.labels.numpy(), frost=frost)
    except ValueError as error:
        raise BadInput(f"cannot corrupt these images: {error}") from None
    save(bnn_plots.entropy_by_severity(shift), out.file("entropy_by_severity.png"))
    rows = {str(severity): cell._asdict() for severity, cell in shift.by_severity.items()}
    shown = "\n".join(
        f"severity {severity}  accuracy {row['accuracy']:.2%}  ece {row['ece']:.2%}  nll {row['nll']:.4f}  "
        f"entropy {row['entropy_mean']:.4f}"
        for severity, row in rows.items()
    )
    return {"by_severity": rows, "corruptions": list(CORRUPTIONS)}, shown


if __name__ == "__main__":
    sys.exit(main())
