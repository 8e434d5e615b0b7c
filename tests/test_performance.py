"""docs/PERFORMANCE.md is what docs/performance.py generates from the measured figures."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
BENCHMARKS = ROOT / "packages" / "psdenets" / "benchmarks"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def measured():
    return json.loads((DOCS / "performance.json").read_text())


def page(measured):
    return load(DOCS / "performance.py").page(measured, (DOCS / "performance-text.md").read_text())


def test_the_page_in_the_repository_is_the_generated_one(measured):
    assert (DOCS / "PERFORMANCE.md").read_text() == page(measured)


def test_a_figure_that_misses_its_bound_is_listed_at_the_top(measured):
    missing = copy.deepcopy(measured)
    (row,) = [row for row in missing["start"]["rows"] if row["what"] == "import psdenets, beyond import torch"]
    row |= {"figure": 5.0, "holds": False}
    top = page(missing).partition("## A training step")[0]
    assert "| new processes | import psdenets, beyond import torch | ≤ 0.7: **no** | 5 s |  |" in top
    before = sum(row["holds"] is False for part in measured.values() for row in part["rows"])
    assert top.count("**no**") == before + 1


@pytest.mark.parametrize(
    ("figure", "most", "least", "holds"),
    [
        (1.0, 1.0, None, True),
        (1.01, 1.0, None, False),
        (1.0, None, 1.0, True),
        (0.9, None, 1.0, False),
        (1, None, None, None),
    ],
)
def test_a_row_holds_if_its_figure_is_within_its_bound(figure, most, least, holds):
    rows = load(BENCHMARKS / "rows.py")
    assert rows.Row("part", "where", "what", figure, "x", most, least).holds is holds


def test_a_ratio_is_the_median_of_the_ratios_of_neighbouring_runs():
    timing = load(BENCHMARKS / "timing.py")
    calm = [("a", 2.0), ("b", 1.0), ("c", 7.0)]
    busy = [("c", 9.0), ("b", 10.0), ("a", 20.0)]  # both are ten times slower for a while
    odd = [("a", 90.0), ("b", 1.0), ("c", 7.0)]
    assert timing.ratio([calm, busy, odd], "a", "b") == 2.0
    assert timing.median([calm, busy, odd], "a") == 20.0
    assert timing.fastest([calm, busy, odd], "a", "c") == 2 / 7
    # Only the runs of b next to a count, not the one at the end; with two neighbours, their mean.
    assert timing.neighbours([("b", 1.0), ("a", 4.0), ("b", 3.0), ("c", 1.0), ("b", 100.0)], "a", "b") == 2.0


def test_contenders_are_interleaved_and_the_order_alternates():
    timing = load(BENCHMARKS / "timing.py")
    calls = []
    runs = {name: lambda name=name: calls.append(name) for name in "abc"}
    found = timing.interleaved(runs, rounds=2, order="abac")
    assert "".join(calls) == "cabaabaccaba"  # the first round is not counted
    assert [[name for name, _ in round_] for round_ in found] == [list("abac"), list("caba")]
    assert len(timing.interleaved(runs, rounds=4)) == 4


def test_the_time_of_child_processes_is_counted(monkeypatch):
    """The CPU time of this process would not include it."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    try:
        start = load(BENCHMARKS / "start.py")
        monkeypatch.setattr(start, "run", lambda words: time.sleep(0.05))
        seconds = [row.figure for row in start.measure(quick=True) if row.what.endswith("median")]
        assert len(seconds) == 3
        assert min(seconds) >= 0.05
    finally:
        for name in ("rows", "timing"):
            sys.modules.pop(name, None)


def test_the_log_log_slope_is_the_exponent(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    try:
        scaling = load(BENCHMARKS / "scaling.py")
        assert scaling.slope([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2.0, abs=1e-12)
    finally:
        for name in ("rows", "timing", "contenders"):
            sys.modules.pop(name, None)
