"""The code of the README runs."""

import re
from pathlib import Path

from theory import CLAIMS


def test_code_of_the_readme_runs_and_its_table_names_every_claim(monkeypatch):
    monkeypatch.setattr("theory.lemma1.PATHS", 500)
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})
    assert re.findall(r"^\| `(\w+)`", text, re.M) == list(CLAIMS)
