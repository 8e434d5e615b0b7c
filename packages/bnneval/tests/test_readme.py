"""The example in the README prints the output shown below it."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_prints_the_numbers_shown_below_it():
    text = README.read_text(encoding="utf-8")
    code, printed = re.search(r"```python\n(.*?)```\s*```text\n(.*?)```", text, re.DOTALL).groups()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "README.md", "exec"), {})
    assert output.getvalue() == printed


def test_the_images_in_the_readme_exist_and_are_small():
    for name in re.findall(r"!\[.*?\]\((.*?)\)", README.read_text(encoding="utf-8")):
        assert 10_000 < (README.parent / name).stat().st_size < 400_000
