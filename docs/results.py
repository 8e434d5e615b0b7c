"""RESULTS.md from run directories: `python docs/results.py --data-root DIR [--runs DIR] [--train] [NAME...]`.

Without `--train` nothing is computed: the table is written from what is there. With it, runs that are missing are
trained (and those that were interrupted are resumed) by the very commands that the table shows, then evaluated on
foreign images.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent


class Run(NamedTuple):
    """One row: its flags, the sets its AUROC is measured on, and what it has to reach."""

    flags: str
    ood: tuple[str, ...]
    accuracy: float
    minutes: float
    ece: float | None = None

    @property
    def command(self) -> str:
        """As a person would type it."""
        return f"python -m psdenets.train {self.flags.format(runs='RUNS')}"


INTRODUCTION = """\
Written by `python docs/results.py` from the run directories; nothing is typed by hand. Fractions of the whole test set,
probabilities averaged over weight samples, one seed a row. AUROC: predictive entropy against that set, which is the
positive class. Minutes: training, with the evaluations after each epoch."""
DIGITS_OOD, MNIST_OOD, CIFAR_OOD = ("noise",), ("kmnist", "fashion-mnist"), ("svhn",)
DIGITS = ("vertical", "vertical --order sde-first", "horizontal", "both", "full", "none")
CUTS = ("ode-first", "sde-first", "fix-w2", "horizontal", "both", "sde-bnn")
SEEDS = (0, 1, 2)
SYSTEMS = {  # of the paper's Table 1, with the flags that make them; {runs} is where the run directories are
    "psde": "--cut vertical",
    "sde-bnn": "--model sde-bnn",
    "sde-bnn-equal-time": "--model sde-bnn --max-seconds-of {runs}/systems-psde-seed{seed}",
    "odenet": "--model odenet",
    "resnet32": "--model resnet32",
    "mfvi": "--model mfvi",
    "mfvi-resnet32": "--model mfvi-resnet32",
    "mfvi-odenet": "--model mfvi-odenet",
    "mfvi-hyperodenet": "--model mfvi-hyperodenet",
    "vbll": "--model vbll",
    "resnet32-laplace": "--model resnet32-laplace",
    "ensemble": "--model ensemble",
    "hmc": "--model hmc",
}
SYSTEMS_OOD = "kmnist"
SYSTEMS_MINUTES = 25  # the budget of other systems on MNIST, one thread
MNIST_SYSTEMS = ("resnet32", "odenet", "mfvi-odenet", "ensemble")
RUNS = {
    **{f"digits-{cut.split()[-1]}": Run(f"--cut {cut}", DIGITS_OOD, 0.97, 2, 0.03) for cut in DIGITS},
    **{f"mnist-{cut}": Run(f"--preset mnist-cpu-{cut}", MNIST_OOD, 0.992, 20, 0.005) for cut in CUTS},
    **{f"mnist-{name}": Run(f"--preset mnist-cpu-{name}", MNIST_OOD, 0, SYSTEMS_MINUTES) for name in MNIST_SYSTEMS},
    "mnist-resnet32-laplace": Run(
        "--model resnet32-laplace --laplace-of {runs}/mnist-resnet32", MNIST_OOD, 0, SYSTEMS_MINUTES
    ),
    **{f"cifar10-{cut}": Run(f"--preset cifar10-cpu-{cut}", CIFAR_OOD, 0.75, 40) for cut in ("ode-first", "sde-bnn")},
}


def main() -> int:
    """Train what is missing where that is asked for, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "names", nargs="*", metavar="NAME",
        help=f"rows to train: {', '.join(RUNS)}, systems-SYSTEM-seedK (default: all)",
    )  # fmt: skip
    parser.add_argument("--runs", type=Path, default=Path("runs/results"), help="where the run directories are")
    parser.add_argument("--data-root", default="data", help="where the data sets are")
    parser.add_argument("--train", action="store_true", help="train and evaluate what is missing")
    args = parser.parse_args()
    every = {**RUNS, **systems()}
    unknown = [name for name in args.names if name not in every]
    if unknown:
        parser.error(f"expected names among {', '.join(every)}, got {unknown[0]}")
    for name in args.names or every:
        if args.train:
            train(every[name], args.runs / name, args.data_root)
    (HERE / "RESULTS.md").write_text(page(args.runs))
    return 0


def systems() -> dict[str, Run]:
    """The runs of all systems on the digits, by name."""
    return {
        f"systems-{name}-seed{seed}": Run(
            f"{flags.format(seed=seed, runs='{runs}')} --seed {seed}", (SYSTEMS_OOD,), 0, math.inf
        )
        for name, flags in SYSTEMS.items()
        for seed in SEEDS
    }


def train(run: Run, folder: Path, data_root: str) -> None:
    """The run and its evaluations, as far as they are missing."""
    flags = shlex.split(run.flags.format(runs=folder.parent))
    call("psdenets.train", *flags, "--data-root", data_root, "--out", str(folder), "--resume")
    for ood in run.ood:
        out = folder / f"ood-{ood}"
        if not (out / "metrics.json").exists():
            call("psdenets.evaluate", str(folder), "--ood", ood, "--out", str(out), "--data-root", data_root)


def call(module: str, *args: str) -> None:
    """`python -m module args`."""
    subprocess.run([sys.executable, "-m", module, *args], check=True)


def page(runs: Path) -> str:
    """The whole of RESULTS.md."""
    rows = {name: read(runs / name, run) for name, run in RUNS.items() if (runs / name / "metrics.json").exists()}
    missing = [RUNS[name].command for name in RUNS if name not in rows]
    missing += [run.command for name, run in systems().items() if not evaluated(runs / name)]
    parts = ["# Results", INTRODUCTION]
    for data, title in (("digits", "The digits of scikit-learn"), ("mnist", "MNIST"), ("cifar10", "CIFAR-10")):
        found = {name: row for name, row in rows.items() if name.startswith(data)}
        if found:
            parts += [f"## {title}", table(found), commands(found)]
        if data == "digits":
            parts += systems_section(runs)
    if missing:
        parts += ["## Not measured", "No run of: " + ", ".join(f"`{command}`" for command in missing) + "."]
    return "\n\n".join(parts) + "\n"


def systems_section(runs: Path) -> list[str]:
    """Mean and standard deviation over seeds, a line for each system that has all its runs."""
    every = systems()
    head = ["system", "accuracy", "ECE", "NLL", f"AUROC {SYSTEMS_OOD}", "seconds", "command"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    versions: set[str] = set()
    for name, flags in SYSTEMS.items():
        folders = [runs / f"systems-{name}-seed{seed}" for seed in SEEDS]
        if not all(map(evaluated, folders)):
            continue
        rows = [read(folder, every[folder.name]) for folder in folders]
        metrics = [row["metrics"] for row in rows]
        versions |= {", ".join(f"{key} {value}" for key, value in m["versions"].items()) for m in metrics}
        shown = flags.format(runs="RUNS", seed="K")
        cells = [
            spread([m["accuracy"] for m in metrics], percent=True),
            spread([m["ece"] for m in metrics], percent=True),
            spread([m["nll"] for m in metrics]),
            spread([row["auroc"][SYSTEMS_OOD] for row in rows]),
            spread([m["seconds"] for m in metrics], digits=0),
            f"`python -m psdenets.train {shown} --seed K`",
        ]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    if len(lines) == 2:
        return []
    about = (
        f"Mean ± standard deviation over seeds {', '.join(map(str, SEEDS))}. AUROC: predictive entropy, digits against "
        f"{SYSTEMS_OOD} at their size. Seconds are those of training (of sampling, for HMC) on one thread of a machine "
        "that did other things as well. Made with " + "; ".join(sorted(versions)) + "."
    )
    return ["## Every system of Table 1 on the digits", about, "\n".join(lines)]


def evaluated(folder: Path) -> bool:
    """Whether a system was trained on the digits and evaluated on foreign images."""
    return (folder / f"ood-{SYSTEMS_OOD}" / "metrics.json").exists()


def spread(values: list[float], *, percent: bool = False, digits: int | None = None) -> str:
    """Mean ± standard deviation, as percents or numbers."""
    mean, deviation = statistics.mean(values), statistics.stdev(values)
    if percent:
        return f"{mean:.2%} ± {deviation:.2%}"
    digits = 4 if digits is None else digits
    return f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def read(folder: Path, run: Run) -> dict[str, Any]:
    """The numbers of a row, from the files of its run."""
    metrics = json.loads((folder / "metrics.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    auroc = {}
    for ood in run.ood:
        found = folder / f"ood-{ood}" / "metrics.json"
        auroc[ood] = json.loads(found.read_text())["metrics"]["ood"]["auroc"] if found.exists() else None
    return {"run": run, "metrics": metrics, "config": config, "auroc": auroc}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """One line a run, and whether it reached what it had to."""
    sets = next(iter(rows.values()))["run"].ood
    head = [
        "run",
        "accuracy",
        "ECE",
        "NLL",
        "Brier",
        *(f"AUROC {s}" for s in sets),
        "minutes",
        "epochs",
        "aim",
        "reached",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for name, row in rows.items():
        run, m = row["run"], row["metrics"]
        accuracy = f"≥ {run.accuracy:.1%}, " if run.accuracy else ""
        aim = accuracy + (f"ECE ≤ {run.ece:.1%}, " if run.ece else "") + f"≤ {run.minutes:g} min"
        good = m["accuracy"] >= run.accuracy and m["seconds"] <= 60 * run.minutes and m["ece"] <= (run.ece or 1)
        auroc = ["–" if value is None else f"{value:.4f}" for value in row["auroc"].values()]
        cells = [f"{m['accuracy']:.2%}", f"{m['ece']:.2%}", f"{m['nll']:.4f}", f"{m['brier']:.4f}", *auroc]
        cells += [f"{m['seconds'] / 60:.1f}", str(m["epochs"]), aim, "yes" if good else "**no**"]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def commands(rows: dict[str, dict[str, Any]]) -> str:
    """What was typed, and with which versions, seeds and threads."""
    lines = []
    for name, row in rows.items():
        m, config = row["metrics"], row["config"]
        versions = ", ".join(f"{key} {value}" for key, value in m["versions"].items())
        lines.append(
            f"- `{name}`: `{row['run'].command}`; seed {m['seed']}, {m['test_samples']} weight samples"
            f"{_process(config)}; {versions}"
        )
    return "\n".join(lines)


def _process(config: dict[str, Any]) -> str:
    """Steps and noise, where weights follow a process."""
    if config["model"] not in ("psde", "sde-bnn"):
        return ""
    return f", {config['steps']} steps a block, sigma {config['sigma']:g}"


if __name__ == "__main__":
    sys.exit(main())
