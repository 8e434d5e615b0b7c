"""The computed tables of docs/THEORY.md are those of the code."""

from pathlib import Path

import pytest

from theory import pages, posterior_table
from theory.__main__ import main
from theory.best_drifts import Price
from theory.exact_posterior import CUTS, best_fit

PAGE = Path(__file__).parents[3] / "docs" / "THEORY.md"


def test_table_of_the_exact_posterior_is_current():
    assert pages.table_in(PAGE.read_text(encoding="utf-8"), "exact_posterior") == posterior_table.markdown()


def test_table_has_a_row_per_cut_and_price_with_the_numbers_of_the_best_drift():
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in posterior_table.markdown().splitlines()[2:]]
    assert [row[0] for row in rows if row[0]] == list(CUTS)
    assert len(rows) == 1 + (len(CUTS) - 1) * len(Price)
    free = best_fit("SDE-first", Price.FREE)
    assert rows[2][1] == "free"
    assert float(rows[2][2]) == pytest.approx(-free.gap, abs=6e-4)  # three digits
    assert float(rows[2][3]) == pytest.approx(free.mean_error, abs=6e-4)


def test_a_page_is_updated_in_place_and_only_between_its_marks(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- table exact_posterior -->\nold\n<!-- end -->\nafter\n", "utf-8")
    monkeypatch.setattr("theory.exact_posterior.certify", lambda seed: [])
    main(["--claims", "exact_posterior", "--page", str(page)])
    found = page.read_text("utf-8")
    assert found == (
        "before\n<!-- table exact_posterior -->\n" + posterior_table.markdown() + "\n<!-- end -->\nafter\n"
    )
    assert pages.updated(found, ["complexity"]) == found  # this claim has no table


def test_a_page_without_the_marks_is_a_value_error():
    with pytest.raises(ValueError, match="expected <!-- table exact_posterior -->"):
        pages.updated("no marks", ["exact_posterior"])
