"""The map in CONTRIBUTING.md is complete, and every path in it exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MAPS = {block.partition("/")[0]: block.splitlines()[1:] for block in re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)}
NAMED = re.findall(r"`((?:sdeweights|bnneval|psdenets|theory)/[\w/.]*)`", TEXT)


def names(package):
    """Files and folders in the map of a package: the words of each line before the first two spaces."""
    return [name for line in MAPS[package] for name in re.split(r"  +", line.strip())[0].split()]


@pytest.mark.parametrize("package", ["sdeweights", "bnneval", "psdenets", "theory"])
def test_every_name_in_the_map_exists(package):
    source = ROOT / "packages" / package / "src" / package
    assert [name for name in names(package) if not (source / name).exists()] == []


@pytest.mark.parametrize("package", ["sdeweights", "bnneval", "psdenets"])
def test_every_module_and_folder_of_a_package_is_in_the_map(package):
    source = ROOT / "packages" / package / "src" / package
    entries = {f"{path.name}/" if path.is_dir() else path.name for path in source.iterdir()}
    assert entries - {"__init__.py", "py.typed", "__pycache__/"} == {
        name for name in names(package) if name.count("/") < 2
    }


def test_every_path_in_the_text_exists():
    assert len(NAMED) >= 20
    for name in NAMED:
        package, _, rest = name.partition("/")
        folder = ROOT / "packages" / package
        assert (folder / rest if rest.startswith("tests/") else folder / "src" / name).exists(), name
