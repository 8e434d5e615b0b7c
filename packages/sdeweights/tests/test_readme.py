"""The code blocks of the README run in order."""

import re
from pathlib import Path

import torch


def test_the_code_in_the_readme_runs(capsys):
    torch.set_default_dtype(torch.float32)
    text = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) == 7
    exec("\n".join(blocks), {})
    assert re.search(r"accuracy (0\.9[5-9]|1\.00), KL \d", capsys.readouterr().out)
