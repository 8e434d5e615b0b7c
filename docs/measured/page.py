"""The text of RESULTS.md, from the entries of results.json."""

from __future__ import annotations

from collections.abc import Callable
from statistics import mean, stdev
from typing import Any

from measured.record import Entries
from measured.rows import OOD, ROWS, Run, changed_options, flags_of, run_of
from measured.targets import MET, NOT_MEASURED, NOT_MET, Target, targets
from psdenets.errors import BadInput

TITLES = {
    "digits": "The digits of scikit-learn",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "systems": "Every system of the paper's Table 1 on the digits",
}
INTRODUCTION = """\
Written by `python docs/results.py` from docs/results.json, which has one entry per run: command, config, commit, CPU,
versions, metrics. `python docs/results.py --train NAME... --data-root DIR --runs DIR` trains, evaluates and records.

- Metrics are on the whole test set. Probabilities are averaged over S weight samples; *one sample* is the NLL of each
  sample, averaged over samples, and *no noise* is that of the same weights with the noise switched off.
- *Epistemic share* is mean mutual information / mean predictive entropy, on the test images and on each
  out-of-distribution (OOD) set. *Disagreement* is the share of single predictions whose class is not that of the
  averaged probabilities. AUROC is that of predictive entropy / mutual information, with the OOD set as positive class.
- The *twin* (`none`) is the same network without noise, trained with the same seed. On MNIST and CIFAR-10, all cuts and
  the twin start with the weights of `base`, a network trained without noise, and take a few more epochs; their minutes
  include those of `base`. `scratch` has noise from the first step on.
- No weights were selected on the test set: they are the last of training, or the best on validation images if the
  config says `select best`. Sigma, kappa and objective of the presets come from single short runs, judged by NLL and
  epistemic share on validation images; these runs also printed test metrics, so they were visible. The default of the
  digits had the largest validation share of four configurations with seed 0, but not the lowest validation NLL.
  Its `noise_start` is by the validation NLL of three seeds for ODE-first; both cuts at once took the same value.
  With `tune_sigma widest`, sigma is multiplied after training by the largest factor whose NLL on 1,000 validation
  images is not significantly above the lowest (paired, one-sided, at 5 %). With `mirror`, predictions are averaged over
  an image and its mirror image, also those of the twin.
- Every row has its CPU, threads and commit. A + after a commit means that files under packages/ had uncommitted
  changes. Minutes are those of training, including the evaluation after each epoch; machines were shared.
- With several seeds, a cell is mean ± standard deviation."""
DIFFERENCES = """\
Run minus twin on the same images, with 95 % paired bootstrap intervals over images (1,000 resamples, basic intervals).
For accuracy and AUROC, positive is better; for NLL and ECE, negative. Accuracy and ECE are in percentage points.
AUROC MI compares mutual information of the run with predictive entropy of the twin, which has no mutual information."""
TARGETS = f"""\
Values are means over seeds. With several OOD sets, the one with the smallest value counts. *Low end of AUROC − twin* is
that of the interval above, for the better of entropy and mutual information and in the worst seed.
{MET.capitalize()}, {NOT_MET} or {NOT_MEASURED}, computed from results.json."""


def page(entries: Entries) -> str:
    """The whole page."""
    parts = ["# Results", INTRODUCTION]
    for data, title in TITLES.items():
        found = {name: entry for name, entry in entries.items() if run_of(name).data == data}
        if found:
            parts += [f"## {title}", table(found, OOD[data]), *outdated(found)]
    parts += [*differences(entries), "## Targets", TARGETS]
    parts += [target_table(title, found, entries) for title, found in targets().items()]
    return "\n\n".join([*parts, "## Commands", commands(), *missing(entries)]) + "\n"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows])


def by_row(entries: Entries) -> dict[str, list[dict[str, Any]]]:
    """The entries of each row that has any, in the order of the rows, sorted by seed."""
    runs = sorted((run_of(name) for name in entries), key=lambda run: (list(ROWS).index(run.row), run.seed))
    return {row: [entries[run.name] for run in runs if run.row == row] for row in dict.fromkeys(r.row for r in runs)}


def spread(values: list[float | None], form: str) -> str:
    """Mean ± standard deviation, the only value, or a dash if there is no value."""
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    return f"{mean(known):{form}}" + (f" ± {stdev(known):{form}}" if len(known) > 1 else "")


def table(entries: Entries, sets: tuple[str, ...]) -> str:
    """One line per row of a data set."""
    head = [
        "run", "seeds", "accuracy", "ECE", "NLL", "NLL, one sample", "NLL, no noise", "epistemic share, test",
        *(f"epistemic share, {name}" for name in sets), "disagreement, test",
        *(f"AUROC {name}: entropy / MI" for name in sets), "minutes", "threads", "CPU", "commit",
    ]  # fmt: skip
    return markdown(head, [[f"`{row}`", *cells(found, sets)] for row, found in by_row(entries).items()])


def cells(found: list[dict[str, Any]], sets: tuple[str, ...]) -> list[str]:
    """The cells of a row after its name, from the entries of its seeds."""

    def metric(name: str, form: str) -> str:
        return spread([entry["metrics"].get(name) for entry in found], form)

    def ood(data: str, name: str, form: str) -> str:
        return spread([entry["ood"].get(data, {}).get(name) for entry in found], form)

    def all_of(value: Callable[[dict[str, Any]], object]) -> str:
        return ", ".join(dict.fromkeys(str(value(entry)) for entry in found))

    aurocs = [" / ".join(ood(data, name, ".4f") for name in ("auroc", "auroc_mutual_information")) for data in sets]
    return [
        all_of(lambda entry: entry["seed"]),
        metric("accuracy", ".2%"),
        metric("ece", ".2%"),
        *(metric(name, ".4f") for name in ("nll", "nll_one_sample", "nll_no_noise")),
        metric("epistemic_share", ".1%"),
        *(ood(data, "epistemic_share", ".1%") for data in sets),
        metric("disagreement", ".2%"),
        *aurocs,
        spread([entry["seconds"] / 60 for entry in found], ".1f"),
        *(all_of(lambda entry, key=key: entry[key]) for key in ("threads", "cpu", "commit")),
    ]


def outdated(entries: Entries) -> list[str]:
    """A list of the runs whose command would now train something else."""
    found = []
    for name, entry in entries.items():
        try:
            changed = ", ".join(changed_options(run_of(name), entry["config"]))
        except BadInput as error:
            changed = str(error)
        if changed:
            found.append(f"- `{name}`: {changed}")
    return ["\n".join(["Trained with earlier values of the preset:", "", *found])] if found else []


def differences(entries: Entries) -> list[str]:
    """The differences from the twin, one line per run and one table per data set."""
    parts = []
    for data, sets in OOD.items():
        rows = []
        for row, found in by_row(entries).items():
            compared = [entry for entry in found if run_of(row).data == data and "against_twin" in entry]
            rows += [[f"`{row}`", str(entry["seed"]), *_intervals(entry["against_twin"], sets)] for entry in compared]
        if rows:
            aurocs = [f"AUROC {name} {score}" for name in sets for score in ("entropy", "MI")]
            parts.append(markdown([data, "seed", "accuracy", "NLL", "ECE", *aurocs], rows))
    return ["## Differences from the twin", DIFFERENCES, *parts] if parts else []


def _intervals(found: dict[str, list[float | None]], sets: tuple[str, ...]) -> list[str]:
    scores = [f"{score} {name}" for name in sets for score in ("auroc", "auroc_mutual_information")]
    points = {"accuracy": (100, "+.2f"), "ece": (100, "+.2f")}
    shown = []
    for name in ("accuracy", "nll", "ece", *scores):
        factor, form = points.get(name, (1, "+.4f"))
        values = [f"{factor * x:{form}}" if x is not None else "–" for x in found.get(name, [None] * 3)]
        shown.append(f"{values[0]} [{values[1]}, {values[2]}]" if name in found else "–")
    return shown


def target_table(title: str, found: list[Target], entries: Entries) -> str:
    """Targets by line, rows by column, and the verdict on all rows of a target."""
    rows = list(dict.fromkeys(row for target in found for row in target.rows))
    lines = []
    for target in found:
        values = target.values(entries)
        shown = [_verdict(target, values[row]) if row in values else "" for row in rows]
        lines.append([target.bounded, *shown, target.verdict(entries)])
    return markdown([title, *(f"`{row}`" for row in rows), "verdict"], lines)


def _verdict(target: Target, value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    return f"{MET if target.met(value) else NOT_MET} ({value:{target.form}})"


def commands() -> str:
    """The command of every row."""
    lines = [f"- `{row}`: `python -m psdenets.train {flags_of(row, 'K')}`" for row in ROWS]
    return "\n".join(["With RUNS the directory of all runs and K the seed:", "", *lines])


def missing(entries: Entries) -> list[str]:
    """The seeds of each row that were not trained."""
    lines = []
    for row, wanted in ROWS.items():
        seeds = [str(seed) for seed in wanted.seeds if Run(row, seed).name not in entries]
        if seeds:
            lines.append(f"- `{row}`: seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}")
    return ["## Not measured", "\n".join(lines)] if lines else []
