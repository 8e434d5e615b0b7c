"""Every example in the README prints the output shown below it."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
TEXT = README.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```\s*```text\n(.*?)```", TEXT, re.DOTALL)


def test_every_block_of_python_is_an_example_with_its_output():
    assert len(EXAMPLES) == TEXT.count("```python") >= 2


@pytest.mark.parametrize(("code", "printed"), EXAMPLES)
def test_an_example_prints_the_numbers_shown_below_it(code, printed):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "README.md", "exec"), {})
    assert output.getvalue() == printed


def test_the_images_in_the_readme_exist_and_are_small():
    for name in re.findall(r"!\[.*?\]\((.*?)\)", TEXT):
        assert 10_000 < (README.parent / name).stat().st_size < 400_000
