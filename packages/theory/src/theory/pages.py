"""Tables of docs/THEORY.md that are computed, not typed: the text between `<!-- table NAME -->` and `<!-- end -->`.

`python -m theory --page docs/THEORY.md` checks claims and writes their tables into the page.
"""

import re
from collections.abc import Iterable
from importlib import import_module

TABLES = {"exact_posterior": "theory.posterior_table", "learned_laws": "theory.learned_table"}  # claim -> its table


def updated(text: str, claims: Iterable[str], seed: int = 0) -> str:
    """The page with the tables of these claims computed again; ValueError if one has no place in the page."""
    for claim in claims:
        if claim in TABLES:
            text = _replaced(text, claim, import_module(TABLES[claim]).markdown(seed))
    return text


def table_in(text: str, claim: str) -> str:
    """The table of a claim as the page has it."""
    found = re.search(_place(claim), text, re.S)
    if found is None:
        raise ValueError(f"expected <!-- table {claim} --> and <!-- end --> in the page, got a page without them")
    return found["table"]


def _replaced(text: str, claim: str, table: str) -> str:
    table_in(text, claim)
    return re.sub(_place(claim), lambda found: found["begin"] + table + found["end"], text, count=1, flags=re.S)


def _place(claim: str) -> str:
    return rf"(?P<begin><!-- table {claim} -->\n)(?P<table>.*?)(?P<end>\n<!-- end -->)"
