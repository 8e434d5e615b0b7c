"""Check claims and report them as a table or as JSON: measured number, bound and verdict."""

import json
import math
import platform
import textwrap
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module, metadata
from typing import Any

from theory.certificate import Certificate

NAMES = (
    "integration", "lemma1", "free_drift", "exact_posterior", "low_rank", "flows", "theorem41", "outsourcing",
    "ode_nets", "theorem_a1", "theorem42", "learned_laws", "complexity",
)  # fmt: skip
CLAIMS = {name: f"theory.{name}" for name in NAMES}  # the module of each claim


@dataclass(frozen=True)
class Outcome:
    """The result of checking one module: its certificates, or the error that it raised."""

    name: str
    certificates: tuple[Certificate, ...]
    seconds: float
    error: str = ""

    @property
    def holds(self) -> bool:
        """Whether there is at least one certificate and all of them hold."""
        return not self.error and bool(self.certificates) and all(c.holds for c in self.certificates)


def check(names: Iterable[str] = CLAIMS, seed: int = 0) -> list[Outcome]:
    """Check claims by name, in order."""
    names = list(names)
    unknown = [name for name in names if name not in CLAIMS]
    if unknown:
        raise ValueError(f"expected claims from {', '.join(CLAIMS)}, got {unknown[0]}")
    return [_outcome(name, import_module(CLAIMS[name]).certify, seed) for name in names]


def _outcome(name: str, certify: Callable[[int], list[Certificate]], seed: int) -> Outcome:
    began = time.perf_counter()
    try:
        certificates, error = tuple(certify(seed)), ""
    except Exception:  # a broken integrator may raise anything; the other claims are still checked
        certificates, error = (), traceback.format_exc()
    return Outcome(name, certificates, time.perf_counter() - began, error)


def status(outcomes: Sequence[Outcome]) -> int:
    """Exit status: 0 if every claim holds, 1 if one does not or if no claim was checked."""
    return 0 if outcomes and all(outcome.holds for outcome in outcomes) else 1


def table(outcomes: Sequence[Outcome], width: int = 120) -> str:
    """The table as text, at most `width` columns wide if that leaves 30 columns for the statement."""
    names = [name for outcome in outcomes for name in (outcome.name, *(c.claim for c in outcome.certificates))]
    claim = max(map(len, names), default=5)
    room = max(max(width, 100) - claim - 58, 30)
    lines = [f"{'claim':<{claim}} {'statement':<{room}} {'measured':>12}    {'bound':<12} {'tolerance':>9}   verdict"]
    lines.append("-" * len(lines[0]))
    for outcome in outcomes:
        lines.extend(line for c in outcome.certificates for line in _row(c, claim, room))
        if outcome.error:
            reason = outcome.error.strip().splitlines()[-1]
            lines.append(f"{outcome.name:<{claim}} {textwrap.shorten(reason, room + 42):<{room + 42}}  ERROR")
        elif not outcome.certificates:
            lines.append(f"{outcome.name:<{claim}} {'returned no certificates':<{room + 42}}  FAILS")
    return "\n".join([*lines, "", summary(outcomes)])


def _row(c: Certificate, claim: int, room: int) -> list[str]:
    first, *rest = textwrap.wrap(c.statement, room)
    tolerance = f"{c.tolerance:.1e}" if c.tolerance else "exact"
    numbers = f"{c.measured:>12.6g} {c.relation} {c.bound:<12.6g} {tolerance:>9}"
    verdict = "holds" if c.holds else "FAILS"
    return [f"{c.claim:<{claim}} {first:<{room}} {numbers}   {verdict}", *(f"{'':<{claim}} {line}" for line in rest)]


def summary(outcomes: Sequence[Outcome]) -> str:
    """The number of certificates that hold, and the seconds per module."""
    certificates = [c for outcome in outcomes for c in outcome.certificates]
    holding = sum(c.holds for c in certificates)
    errors = sum(bool(outcome.error) for outcome in outcomes)
    times = ", ".join(f"{outcome.name} {outcome.seconds:.1f}" for outcome in outcomes)
    total = sum(outcome.seconds for outcome in outcomes)
    trouble = f", errors in {errors} of {len(outcomes)} modules" if errors else ""
    return f"{holding} of {len(certificates)} certificates hold{trouble}; {total:.1f} s ({times})"


def as_json(outcomes: Sequence[Outcome], seed: int) -> str:
    """The outcomes as JSON, with the seed and the versions; non-finite numbers are written as strings."""
    versions = {name: metadata.version(name) for name in ("theory", "sdeweights", "torch", "scipy")}
    data = {
        "holds": status(outcomes) == 0,
        "seed": seed,
        "versions": {**versions, "python": platform.python_version()},
        "claims": [
            {
                "name": outcome.name,
                "holds": outcome.holds,
                "seconds": round(outcome.seconds, 3),
                "error": outcome.error,
                "certificates": [_as_data(certificate) for certificate in outcome.certificates],
            }
            for outcome in outcomes
        ],
    }
    return json.dumps(data, indent=2)


def _as_data(c: Certificate) -> dict[str, Any]:
    measured = float(c.measured) if math.isfinite(c.measured) else str(c.measured)
    return {**asdict(c), "measured": measured, "holds": c.holds}
