"""Imports follow the arrows in CONTRIBUTING.md: between packages, between the rooms of psdenets, and without cycles."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGES = Path(__file__).parents[1] / "packages"
MAY_IMPORT = {
    "sdeweights": {"torch", "torchsde", "torchdiffeq"},
    "bnneval": set(),
    "psdenets": {"torch", "torchdiffeq", "sdeweights", "bnneval"},
    "theory": {"torch", "sdeweights"},
}
NAMES = {name for names in MAY_IMPORT.values() for name in names} | set(MAY_IMPORT)

# Each room of psdenets may import from those before it. A module at the root that is not listed is a command.
ROOMS = ("description", "data", "nn", "models", "runs", "training", "commands")
DESCRIPTION = {"errors", "seeds", "references", "registries", "options", "systems", "tasks", "config", "presets"}


def modules(package):
    """The modules of a package by name, parsed."""
    source = PACKAGES / package / "src"
    paths = sorted((source / package).rglob("*.py"))
    names = [".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__") for path in paths]
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in zip(names, paths, strict=True)}


def imports(tree, *, types=True):
    """Names imported anywhere in a module, inside functions too; `types=False` omits imports that only type checkers see."""
    for node in ast.iter_child_nodes(tree):
        if not types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from imports(node, types=types)


def graph(found, *, types=True):
    """For each module the set of modules of the same package that it imports."""
    return {
        name: {module_of(target, found) for target in imports(tree, types=types)} & set(found) - {name}
        for name, tree in found.items()
    }


def module_of(name, found):
    """`a.b` for an object `c` imported from it as `a.b.c`, and for the module `a.b` itself."""
    return name if name in found else name.rpartition(".")[0]


def room(module):
    """The room of a module of psdenets."""
    top = module.split(".")[1]
    return top if top in ROOMS else "description" if top in DESCRIPTION else "commands"


def against_the_arrows(arrows):
    """Imports of psdenets that lead from a room to a later one; the package's own __init__ may import anything."""
    return [
        f"{module} -> {target}"
        for module, targets in arrows.items()
        for target in sorted(targets - {"psdenets"})
        if module != "psdenets" and ROOMS.index(room(module)) < ROOMS.index(room(target))
    ]


def cycle(arrows):
    """The modules of a circular import; [] if there are no circular imports."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_a_package_imports_only_allowed_packages(package):
    found = {name.partition(".")[0] for tree in modules(package).values() for name in imports(tree)}
    assert found & NAMES - {package} <= MAY_IMPORT[package]


def test_rooms_of_psdenets_import_only_from_earlier_rooms():
    assert against_the_arrows(graph(modules("psdenets"))) == []


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_there_are_no_circular_imports(package):
    arrows = graph(modules(package), types=False)
    del arrows[package]  # the public interface imports everything
    assert cycle({name: targets - {package} for name, targets in arrows.items()}) == []


def test_fused_solvers_are_imported_only_by_the_registry_of_solvers():
    importers = {
        module
        for package in MAY_IMPORT
        for module, tree in modules(package).items()
        if any(name.startswith("sdeweights.fused") for name in imports(tree))
    }
    assert {module for module in importers if not module.startswith("sdeweights.fused")} <= {"sdeweights.solvers"}


def test_a_wrong_import_is_found_even_inside_a_function():
    lazy = "def f():\n    from psdenets.training.loop import Trainer\n"
    found = {"psdenets.nn.heads": ast.parse(lazy), "psdenets.training.loop": ast.parse("import psdenets.nn.heads")}
    assert against_the_arrows(graph(found)) == ["psdenets.nn.heads -> psdenets.training.loop"]
    assert set(cycle(graph(found))) == set(found)
    for_types = "if TYPE_CHECKING:\n    from psdenets.training import loop\n"
    found["psdenets.nn.heads"] = ast.parse(for_types)
    assert against_the_arrows(graph(found)) == ["psdenets.nn.heads -> psdenets.training.loop"]
    assert cycle(graph(found, types=False)) == []
