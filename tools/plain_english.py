"""Report phrases that read as translated, as `file:line: phrase -> better`; exit status 1 if there are any.

    python tools/plain_english.py [FILE...]        (default: all tracked .py, .md and .toml files)

In Python files only prose is read: comments, strings with a space in them, docstrings and the names of tests.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[1]
SPELLS_THEM_OUT = ("tools/plain_english.py", "tests/test_plain_english.py")

# "6 steps a block", "one line an epoch": a counted thing, then a or an, then what it is counted by. A verb after that
# makes it a relative clause ("the steps a block takes"), which is fine.
COUNTED = (
    "bits|bytes|call|calls|channels|convolutions|copies|copy|curve|curves|dozen|epochs|evaluation|evaluations"
    "|examples|faster|figures|file|files|folder|GB|gradients|idea|images|KL|layer|layers|level|levels|line|lines"
    "|MB|milliseconds|minutes|ms|nats|normals|npy|number|numbers|object|once|one|operations|panel|parameters"
    "|passes|path|paths|photos|pictures|pixels|point|points|rate|rise|row|rows|s|samples|seconds|seed|seeds|steps"
    "|stream|taps|times|twice|us|values|vectors|weights|word"
)
COUNTED_BY = (
    "batch|bin|block|call|chain|channel|class|concept|coordinate|corruption|direction|draw|epoch|evaluation|file|image"
    "|layer|level|line|member|minute|model|neuron|phase|picture|pixel|point|process|property|round|row|run|sample|second"
    "|seed|series|set|severity|side|solver step|step|system|thread|time|training step|transition|unit|weight"
)
VERBS = "adds|can|costs|draws|gets|gives|had|has|holds|is|keeps|makes|must|needs|reads|sees|takes|uses|wants|was|would"
HABITS = {
    rf"\b(?:{COUNTED}) an? (?:{COUNTED_BY})\b(?! (?:{VERBS})\b)": "per",
    r"\ba (?:step|row|sample|image) and (?:coordinate|column|class|pixel|channel)\b": "per step and coordinate",
    r"\b(?:goes |go |went |going )?forth and back\b": "forward and backward",
    r"\bwhere None\b": "if None",
    r"\bwhere there (?:is|are|was|were) (?:one|none|no|any|some)\b": "if there is one, without any",
    r"\b(?:refused|accepted|rejected) where\b": "raise ValueError if",
    r"\btrained numbers?\b": "trainable parameters",
    r"\b(?:goes|go|went|going) on with\b": "resume, continue",
    r"\b(?:take|takes|taken|took|taking) up again\b": "resume",
    r"\bso many\b(?! \w+ that\b)(?! that\b)": "the number of",
    r"\b(?:has|have|had) to say\b": "name the thing",
    r"\bgot (?-i:none)\b": "say which value was missing or empty",
    r"\bis (?-i:none)\b(?! of)": "say which condition failed",
    r"\bwhich (?:is|are) neither\b(?![^.]*\bnor\b)": "say which condition failed",
    r"\bleft the finite numbers\b": "produced a NaN or infinity",
    r"\banew\b": "again",
    r"\bseldom\b": "rarely",
    r"\bin vain\b": "pointless, without effect",
    r"\bmend(?:s|ed|ing)?\b": "fix",
    r"\bbeside\b": "next to, with, besides",
    r"\bhardly\b": "barely",
    r"\bbut for\b": "except for, up to",
    r"\bwhere not\b": "if not",
    r"(?<!`)``(?!`)[^`]+``(?!`)": "one backtick on each side of code",
}
SPACE = r"(?:[^\S\n]+|[^\S\n]*\n[^\S\n]*)"  # also the end of a line, but not a blank line
PATTERNS = [(re.compile(habit.replace(" ", SPACE), re.IGNORECASE), better) for habit, better in HABITS.items()]


class Prose(NamedTuple):
    """Text and the line of its file on which it starts."""

    line: int
    text: str


def python_prose(source: str) -> Iterator[Prose]:
    """Strings, comments (neighbouring lines as one text) and test names of a Python file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield Prose(node.lineno, node.value)
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield Prose(node.lineno, node.name.replace("_", " "))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = [(token.start[0], token.string.lstrip("#")) for token in tokens if token.type == tokenize.COMMENT]
    for _, run in groupby(enumerate(comments), key=lambda pair: pair[1][0] - pair[0]):
        lines = [comment for _, comment in run]
        yield Prose(lines[0][0], "\n".join(text for _, text in lines))


def findings(name: str, text: str) -> Iterator[str]:
    """One line per habit found in the file `name`."""
    for prose in python_prose(text) if name.endswith(".py") else [Prose(1, text)]:
        for pattern, better in PATTERNS:
            for match in pattern.finditer(prose.text):
                line = prose.line + prose.text.count("\n", 0, match.start())
                yield f"{name}:{line}: {' '.join(match[0].split())} -> {better}"


def tracked() -> list[str]:
    """The tracked files, by their path from the root."""
    listing = subprocess.run(["git", "ls-files", "*.py", "*.md", "*.toml"], cwd=ROOT, capture_output=True, check=True)
    present = [name for name in listing.stdout.decode().splitlines() if (ROOT / name).exists()]
    return [name for name in present if name not in SPELLS_THEM_OUT]


def main(names: Iterable[str]) -> int:
    """Check the files given, or all tracked ones."""
    found = [line for name in names or tracked() for line in findings(name, (ROOT / name).read_text(encoding="utf-8"))]
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
