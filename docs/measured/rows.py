"""The rows of RESULTS.md: their flags, their out-of-distribution sets and the seeds to train.

A run is one row with one seed. Its name, also that of its directory, is ROW-seedK.
"""

from __future__ import annotations

import re
import shlex
from typing import Any, NamedTuple

from psdenets import cli
from psdenets.config import Config
from psdenets.errors import BadInput, did_you_mean
from psdenets.presets import values_of

CUTS = ("ode-first", "sde-first", "fix-w2", "horizontal", "both", "sde-bnn")
TWIN = "none"  # the same network without noise
SEEDS = (0, 1, 2)
OOD = {
    "digits": ("kmnist", "noise"),
    "mnist": ("kmnist", "fashion-mnist"),
    "cifar10": ("svhn",),
    "systems": ("kmnist",),
}
SEVERAL_SEEDS = ("cifar10-ode-first", "cifar10-none", "mnist-none")
SYSTEMS = {  # of the paper's Table 1, on the digits
    "psde": "--cut vertical",
    "sde-bnn": "--model sde-bnn",
    "sde-bnn-equal-time": "--model sde-bnn --max-seconds-of {runs}/systems-psde-seed{seed}",
    **{
        name: f"--model {name}"
        for name in (
            "odenet", "resnet32", "mfvi", "mfvi-resnet32", "mfvi-odenet", "mfvi-hyperodenet", "vbll",
            "resnet32-laplace", "ensemble", "hmc",
        )
    },
}  # fmt: skip
# Options that say where and for how long a run is trained, not what it computes.
NOT_COMPARED = frozenset({
    "preset", "out", "device", "threads", "data_root", "download", "max_seconds", "max_seconds_of",
    "checkpoint_seconds", "sources", "start_from",
})  # fmt: skip


class Row(NamedTuple):
    """Flags of `psdenets.train` ({runs} is the directory of all runs), and the seeds to train."""

    flags: str
    seeds: tuple[int, ...] = (0,)


def _rows() -> dict[str, Row]:
    rows = {}
    for cut in (*CUTS, TWIN):
        rows[f"digits-{cut}"] = Row(f"--preset digits-cpu-{cut}", SEEDS)
    for data in ("mnist", "cifar10"):
        rows[f"{data}-base"] = Row(f"--preset {data}-cpu-none", SEEDS)
        for cut in (*CUTS, TWIN):
            several = f"{data}-{cut}" in SEVERAL_SEEDS
            flags = f"--preset {data}-warm-{cut} --start-from {{runs}}/{data}-base-seed{{seed}}"
            rows[f"{data}-{cut}"] = Row(flags, SEEDS if several else (0,))
    for cut in ("sde-bnn", TWIN):  # noise from the first step on
        rows[f"cifar10-scratch-{cut}"] = Row(f"--preset cifar10-cpu-{cut}")
    rows["digits-default"] = Row("--cut vertical")
    rows |= {f"mnist-paper-{cut}": Row(f"--preset mnist-refined-{cut}") for cut in ("ode-first", "sde-bnn")}
    rows["cifar10-long"] = Row("--preset cifar10-long-ode-first")
    return rows | {f"systems-{name}": Row(flags, SEEDS) for name, flags in SYSTEMS.items()}


ROWS = _rows()


class Run(NamedTuple):
    """One row with one seed."""

    row: str
    seed: int

    @property
    def name(self) -> str:
        """The name of the run and of its directory."""
        return f"{self.row}-seed{self.seed}"

    @property
    def data(self) -> str:
        """The table of the page: digits, mnist, cifar10 or systems."""
        return self.row.partition("-")[0]

    @property
    def ood(self) -> tuple[str, ...]:
        """The out-of-distribution sets of this run."""
        return OOD[self.data]

    @property
    def twin(self) -> Run | None:
        """The deterministic twin: same data set and seed; only the six cuts have one."""
        return Run(f"{self.data}-{TWIN}", self.seed) if self.row in cuts_of(self.data) else None

    @property
    def compared(self) -> list[Run]:
        """The runs whose twin this is."""
        return [Run(row, self.seed) for row in cuts_of(self.data)] if self.row == f"{self.data}-{TWIN}" else []

    def flags(self, runs: object = "RUNS") -> str:
        """The flags of `psdenets.train`."""
        return flags_of(self.row, self.seed, runs)


def flags_of(row: str, seed: object, runs: object = "RUNS") -> str:
    """The flags of `psdenets.train` for a row and a seed."""
    return f"{ROWS[row].flags.format(runs=runs, seed=seed)} --seed {seed}"


def cuts_of(data: str) -> list[str]:
    """The rows of the six cuts on a data set."""
    return [f"{data}-{cut}" for cut in CUTS if f"{data}-{cut}" in ROWS]


def run_of(name: str) -> Run:
    """The run of a name, ROW-seedK or ROW for seed 0; raises BadInput if there is no such row."""
    row, seed = re.fullmatch(r"(.*?)(?:-seed(\d+))?", name, re.DOTALL).groups()
    if row not in ROWS:
        hint = did_you_mean(row, ROWS, n=3)
        raise BadInput(f"expected ROW or ROW-seedK with a row of --help, got {name}{hint}")
    return Run(row, int(seed or 0))


def changed_options(run: Run, config: dict[str, Any]) -> list[str]:
    """What the recorded config has that the run's flags do not give, as `option value (now value)`."""
    given = cli.parse(shlex.split(run.flags()))
    preset = given.options.get("preset")
    wanted = Config.read(values_of(preset) if preset else {}, **given.flags).as_dict()
    found = Config.read(config).as_dict()
    return [
        f"{name} {found.get(name)} (now {value})"
        for name, value in wanted.items()
        if name not in NOT_COMPARED and value != found.get(name)
    ]
