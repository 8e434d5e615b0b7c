"""docs/PERFORMANCE.md is what docs/performance.py makes of the measured figures."""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
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


def test_the_page_in_the_repository_is_the_page_of_the_figures(measured):
    assert (DOCS / "PERFORMANCE.md").read_text() == page(measured)


def test_a_figure_that_misses_its_bound_is_named_at_the_top(measured):
    missing = copy.deepcopy(measured)
    (row,) = [row for row in missing["start"]["rows"] if row["what"] == "import psdenets, beyond import torch"]
    row |= {"figure": 5.0, "holds": False}
    top = page(missing).partition("## A training step")[0]
    assert "| new processes | import psdenets, beyond import torch | ≤ 0.7: **no** | 5 s |" in top
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
def test_a_row_knows_whether_it_holds(figure, most, least, holds):
    rows = load(BENCHMARKS / "rows.py")
    assert rows.Row("part", "where", "what", figure, "x", most, least).holds is holds


def test_contenders_take_turns_and_ratios_are_those_of_medians():
    timing = load(BENCHMARKS / "timing.py")
    times = {"a": [2.0, 30.0, 4.0], "b": [1.0, 10.0, 2.0]}  # one round of a busy machine does not count
    assert timing.ratio(times, "a", "b") == 2.0
    calls = []
    found = timing.interleaved({name: lambda name=name: calls.append(name) for name in "abc"}, rounds=4)
    assert {name: len(seconds) for name, seconds in found.items()} == {"a": 4, "b": 4, "c": 4}
    assert len(calls) == 15  # and a round that is not counted
    assert all(sorted(calls[k : k + 3]) == ["a", "b", "c"] for k in range(0, 15, 3))


def test_the_slope_is_the_exponent(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    try:
        scaling = load(BENCHMARKS / "scaling.py")
        assert scaling.slope([1, 2, 4], [3.0, 12.0, 48.0]) == pytest.approx(2.0, abs=1e-12)
    finally:
        for name in ("rows", "timing", "contenders"):
            sys.modules.pop(name, None)
