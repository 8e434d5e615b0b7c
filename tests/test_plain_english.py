"""tools/plain_english.py finds every phrase that it should report and accepts plain sentences."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "tools" / "plain_english.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("plain_english", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


BAD = [
    "solver steps a block", "A line an epoch, and more", "images a step", "Images a second for", "12 ms a picture: fast",
    "normals\n    a step", "Normals a step and coordinate", "milliseconds a solver step", "KL a step",
    "each piece goes forth and back", "where None, it is made", "the head, where there is one",
    "a browser where there is none", "no GPU where there is no driver", "this grid, refused where phases differ",
    "21 trained numbers", "goes on with the run", "to go on with:", "a run is taken up again", "use so many training images",
    "groups of so many samples", "what a batch has to say", "expected a name, got none", "there is none",
    "a file which is neither", "training left the finite numbers", "made anew", "it is seldom called", "multiplied in vain",
    "the user can mend it", "it is mended", "the two stand beside each other", "it hardly moves",
    "equal but for rounding", "sizes, where not the same", "the argument ``x`` of f",
]  # fmt: skip
PLAIN = [
    "solver steps per block", "the steps a block takes", "half a second", "a line of an epoch", "blurred along a line at",
    "forward and backward", "w is None", "got None", "expected --cut none", "none of the samples", "it is none of these",
    "if there is one", "numbers that are trained", "resume with:", "so many paths that memory runs out", "besides",
    "recommended", "amended", "hard", "where t1 < t < t2", "says", "the drift has to be split", "the argument `x` of f", "but it works for all", "buffers, which are neither trained nor saved", "```pip install```",
]  # fmt: skip


@pytest.mark.parametrize("sentence", BAD)
def test_a_phrase_to_avoid_is_found_in_all_kinds_of_prose(tool, sentence):
    assert list(tool.findings("a.md", f"# Title\n\nText {sentence}.\n"))
    assert list(tool.findings("a.py", f'"""Text {sentence}."""\n'))
    assert list(tool.findings("a.py", f'raise ValueError(f"{{x}} " """{sentence} {{x}}""")\n'))
    assert list(tool.findings("a.py", "x = 1\n# " + sentence.replace("\n", "\n# ") + "\n"))


@pytest.mark.parametrize("sentence", PLAIN)
def test_a_plain_sentence_passes(tool, sentence):
    assert not list(tool.findings("a.md", f"Text {sentence}.\n"))
    assert not list(tool.findings("a.py", f'"""Text {sentence}."""\n# {sentence}\n'))


def test_names_of_tests_are_checked_but_other_code_is_not(tool):
    assert not list(tool.findings("a.py", 'beside = d["beside"]\nmended = anew(beside)\n'))
    (found,) = tool.findings("a.py", "x = 1\n\ndef test_numbers_stand_beside_each_other(): ...\n")
    assert found == "a.py:3: beside -> next to, with, besides"


def test_the_reported_line_is_that_of_the_phrase(tool):
    (found,) = tool.findings("a.py", '"""One.\n\nTwo goes forth\nand back.\n"""\n')
    assert found.startswith("a.py:3: goes forth and back -> ")


def test_a_phrase_is_found_across_lines_but_not_across_paragraphs(tool):
    assert list(tool.findings("a.md", "Order of steps\n  a block\n"))
    assert not list(tool.findings("a.md", "## Order of the weights\n\nA block has\n"))


def test_the_exit_status_is_1_if_a_phrase_was_found_and_0_otherwise(tool, tmp_path, capsys):
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text("Forward and backward.\n")
    bad.write_text("Forth and back.\n")
    assert tool.main([str(good)]) == 0
    assert capsys.readouterr().out == ""
    assert tool.main([str(good), str(bad)]) == 1
    assert capsys.readouterr().out.endswith("bad.md:1: Forth and back -> forward and backward\n")
