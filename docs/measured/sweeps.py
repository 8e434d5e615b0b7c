"""The sweeps of docs/NOISE.md: which options vary, and from which preset."""

from __future__ import annotations

from typing import Any, NamedTuple

CUTS = {"ode-first": "ODE-first", "sde-first": "SDE-first", "fix-w2": "reset at t2", "horizontal": "horizontal"}
BASE = "cifar10-base-seed0"  # trained by docs/results.py
# A sixth of MNIST, so that a case takes minutes; the network and the noise are those of the presets.
SHORT: dict[str, Any] = {"limit_train": 10000, "epochs": 5, "tune_sigma": "none", "test_samples": 1, "threads": 1}
WARM: dict[str, Any] = {"tune_sigma": "none", "test_samples": 1, "threads": 1}


class Case(NamedTuple):
    """One run: a preset with some options changed, perhaps from the weights of another run, and factors of sigma."""

    sweep: str
    label: str
    preset: str
    options: dict[str, Any]
    factors: tuple[float, ...] = (1.0,)
    start: str | None = None

    @property
    def name(self) -> str:
        """The name of the run, and of its directory."""
        return f"{self.sweep}-{self.label}".lower().translate(str.maketrans(" ,=", "---")).replace("--", "-")


class Sweep(NamedTuple):
    """Cases that differ in one respect, and what they show once all are measured."""

    title: str
    about: str
    cases: tuple[Case, ...]
    finding: str = ""


def _twin(sweep: str) -> Case:
    options = {key: value for key, value in SHORT.items() if key not in ("tune_sigma", "test_samples")}
    return Case(sweep, "without noise", "mnist-cpu-none", options)


def _price() -> Sweep:
    cases = [
        Case("price", f"{label}, {price}", f"mnist-cpu-{cut}", {**SHORT, "deterministic_prior": price})
        for cut, label in CUTS.items()
        for price in ("none", "map")
    ]
    return Sweep(
        "A price for the deterministic part",
        "`--deterministic-prior`, nothing or the action under the prior, for each cut that has a deterministic part. "
        "`mnist-cpu-*` with 10,000 training images and 5 epochs.",
        (_twin("price"), *cases),
    )


def _kappa() -> Sweep:
    cases = [
        Case("kappa", f"{label}, kappa {kappa:g}", f"mnist-cpu-{cut}", {**SHORT, "kappa": kappa})
        for cut, label in {"ode-first": "ODE-first", "sde-bnn": "fully stochastic"}.items()
        for kappa in (0.5, 0.05, 0.005)
    ]
    return Sweep(
        "The exact ELBO and tempered ones",
        "`--kappa`; 1/2 is the ELBO, smaller values weigh the KL less. `mnist-cpu-*` with 10,000 training images and "
        "5 epochs.",
        (_twin("kappa"), *cases),
    )


def _drift() -> Sweep:
    cases = [
        Case("drift", f"{label}, {family}", f"mnist-cpu-{cut}", {**SHORT, "drift_family": family})
        for cut, label in {"ode-first": "ODE-first", "sde-bnn": "fully stochastic"}.items()
        for family in ("bottleneck", "diagonal")
    ]
    return Sweep(
        "What the posterior can express",
        "`--drift-family`: the paper's f_q of rank 2, or one that also has a rate and a force for every weight. "
        "`mnist-cpu-*` with 10,000 training images and 5 epochs.",
        (_twin("drift"), *cases),
    )


SWEEPS: dict[str, Sweep] = {"price": _price(), "kappa": _kappa(), "drift": _drift()}
