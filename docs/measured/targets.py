"""The targets of the rows, and whether the recorded runs meet them.

The value of a row is the mean over its seeds, or the smallest for the ends of intervals. A bound holds for every row
of a target, or for `at_least` of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import mean
from typing import Any, NamedTuple

from measured.record import Entries
from measured.rows import OOD, cuts_of, run_of

MET, NOT_MET, NOT_MEASURED = "met", "**not met**", "not measured"
Entry = dict[str, Any]
Value = Callable[[Entry, Entry | None], float | None]  # of an entry and its twin's; None if it was not measured


class Target(NamedTuple):
    """A bound for one value of some rows; `kind` is the sign of the inequality, `form` the format of values."""

    text: str
    rows: list[str]
    value: Value
    kind: str
    bound: float
    form: str
    at_least: int | None = None
    over_seeds: Callable[[list[float]], float] = mean

    @property
    def bounded(self) -> str:
        """The target in words: accuracy ≥ 91 %."""
        bound = f"{100 * self.bound:g} %" if self.form.endswith("%") else f"{self.bound:g}"
        return f"{self.text} {self.kind} {bound}"

    def met(self, value: float) -> bool:
        """Whether a value is within the bound."""
        value = round(value, 9)  # a mean of -0.003 and -0.003 may be -0.003 - 4e-19
        return {"≥": value >= self.bound, "≤": value <= self.bound, ">": value > self.bound}[self.kind]

    def values(self, entries: Entries) -> dict[str, float | None]:
        """The value of each row, or None if it was not measured."""
        found: dict[str, list[float]] = {row: [] for row in self.rows}
        for name, entry in entries.items():
            run = run_of(name)
            twin = None if run.twin is None else entries.get(run.twin.name)
            value = self.value(entry, twin) if run.row in found else None
            if value is not None:
                found[run.row].append(value)
        return {row: self.over_seeds(values) if values else None for row, values in found.items()}

    def verdict(self, entries: Entries) -> str:
        """Met, not met, or not measured as long as the missing rows could decide."""
        values = self.values(entries).values()
        met = sum(value is not None and self.met(value) for value in values)
        missing = sum(value is None for value in values)
        needed = len(self.rows) if self.at_least is None else self.at_least
        word = MET if met >= needed else NOT_MET if met + missing < needed else NOT_MEASURED
        return word if self.at_least is None else f"{word}: {met} of {len(self.rows)}, {needed} needed"


def metric(name: str) -> Value:
    """A metric on the test images."""
    return lambda entry, _: entry["metrics"].get(name)


def less_twin(name: str) -> Value:
    """A metric on the test images minus that of the twin."""
    return lambda entry, twin: None if twin is None else entry["metrics"][name] - twin["metrics"][name]


def minutes(entry: Entry, _: Entry | None) -> float:
    """Training time."""
    return entry["seconds"] / 60


def last_steps(entry: Entry, _: Entry | None) -> float:
    """Solver steps per block at the end of training: the last number of a list like 15,30,60."""
    return float(str(entry["config"]["steps"]).rpartition(",")[2])


def of_one_sample(entry: Entry, _: Entry | None) -> float | None:
    """NLL of all weight samples as a share of the NLL of one."""
    nll, one = (entry["metrics"].get(name) for name in ("nll", "nll_one_sample"))
    return nll / one if nll is not None and one else None


def smallest_ood(data: str, name: str) -> Value:
    """An OOD metric on the OOD set where it is smallest; None unless all sets were evaluated."""
    return lambda entry, _: _smallest([entry["ood"].get(ood, {}).get(name) for ood in OOD[data]])


def auroc_low(data: str) -> Value:
    """Lower end of the interval of AUROC - twin, by entropy or mutual information, on the OOD set with the smallest."""

    def low(entry: Entry, _: Entry | None) -> float | None:
        found = entry.get("against_twin", {})
        scores = [[found.get(f"{s} {ood}") for s in ("auroc", "auroc_mutual_information")] for ood in OOD[data]]
        return _smallest([max(a[1], b[1]) if a and b else None for a, b in scores])

    return low


def _smallest(values: list[float | None]) -> float | None:
    return None if None in values else min(values)


def of_noise(data: str) -> list[Target]:
    """The noise acts, and it helps or does no harm."""
    rows = cuts_of(data)
    targets = [
        Target("epistemic share, test", rows, metric("epistemic_share"), "≥", 0.05, ".2%"),
        Target("epistemic share, OOD", rows, smallest_ood(data, "epistemic_share"), "≥", 0.05, ".2%"),
        Target("epistemic share, OOD", rows, smallest_ood(data, "epistemic_share"), "≥", 0.10, ".2%", at_least=3),
        Target("NLL / NLL of one sample", rows, of_one_sample, "≤", 0.98, ".4f"),
        Target("accuracy − twin", rows, less_twin("accuracy"), "≥", -0.003, ".2%"),
        Target("NLL − twin", rows, less_twin("nll"), "≤", 0, ".4f"),
        Target("ECE − twin", rows, less_twin("ece"), "≤", 0, ".2%"),
    ]
    if data != "digits":
        low = auroc_low(data)
        targets.append(Target("low end of AUROC − twin", rows, low, ">", 0, ".4f", at_least=3, over_seeds=min))
    return targets


def _limits(rows: list[str], accuracy: float, most: float, ece: float | None = None) -> list[Target]:
    """Accuracy, ECE and minutes."""
    found = [Target("accuracy", rows, metric("accuracy"), "≥", accuracy, ".2%")]
    if ece is not None:
        found.append(Target("ECE", rows, metric("ece"), "≤", ece, ".2%"))
    return [*found, Target("minutes", rows, minutes, "≤", most, ".1f")] if math.isfinite(most) else found


def _cifar10() -> list[Target]:
    rows, first = cuts_of("cifar10"), ["cifar10-ode-first", "cifar10-sde-bnn"]
    return [
        *_limits(first, 0.91, 60),
        *_limits([row for row in rows if row not in first], 0.89, math.inf),
        Target("ECE", rows, metric("ece"), "≤", 0.025, ".2%"),
        Target("AUROC svhn", rows, smallest_ood("cifar10", "auroc"), "≥", 0.9, ".4f"),
    ]


def _mnist() -> list[Target]:
    rows = cuts_of("mnist")
    return [
        *_limits(rows, 0.993, 20, ece=0.003),
        Target("accuracy", rows, metric("accuracy"), "≥", 0.995, ".2%", at_least=1),
    ]


def targets() -> dict[str, list[Target]]:
    """The targets by title; those under one title have rows in common."""
    paper = ["mnist-paper-ode-first", "mnist-paper-sde-bnn"]
    steps = Target("steps per block", paper, last_steps, "≥", 60, ".0f")
    return {
        "digits": of_noise("digits"),
        "mnist": [*of_noise("mnist"), *_mnist()],
        "cifar10": [*of_noise("cifar10"), *_cifar10()],
        "digits-default": _limits(["digits-default"], 0.98, 2),
        "mnist-paper": [*_limits(paper, 0.993, 180, ece=0.0062), steps],
        "cifar10-long": _limits(["cifar10-long"], 0.93, 240),
    }
