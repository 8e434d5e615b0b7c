"""`import torchvision` with a torch that lacks torchvision's compiled operators."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap

import pytest

CHECK = """
    from psdenets.data.torchvision_import import import_torchvision
    module = import_torchvision()
    assert module.datasets.answer == 42
    assert import_torchvision() is module
    print("imported")
"""


def run(code, *paths):
    program = "import sys\n" + "".join(f"sys.path.insert(0, {str(p)!r})\n" for p in paths) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def fake(root, init):
    package = root / "torchvision"
    (package / "datasets").mkdir(parents=True)
    (package / "__init__.py").write_text(textwrap.dedent(init))
    (package / "extension.py").write_text("")
    (package / "datasets" / "__init__.py").write_text("answer = 42")
    return root


def test_missing_operators_are_declared_and_the_import_is_repeated(tmp_path):
    init = """
        import torch
        from torchvision import extension
        if not torch._C._jit_get_schemas_for_operator("torchvision::nms"):
            raise RuntimeError("operator torchvision::nms does not exist")
    """
    result = run(CHECK, fake(tmp_path, init))
    assert result.stdout == "imported\n", result.stderr


def test_a_working_installation_is_imported_unchanged(tmp_path):
    code = CHECK + "\n    import torch; assert not torch._C._jit_get_schemas_for_operator('torchvision::nms')"
    result = run(code, fake(tmp_path, ""))
    assert result.stdout == "imported\n", result.stderr


def test_other_errors_are_not_swallowed(tmp_path):
    result = run(CHECK, fake(tmp_path, 'raise RuntimeError("out of cheese")'))
    assert result.returncode == 1
    assert "out of cheese" in result.stderr


@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed")
def test_the_installed_torchvision_can_be_imported():
    code = "from psdenets.data.torchvision_import import import_torchvision; print(import_torchvision().datasets.MNIST)"
    assert "MNIST" in run(code).stdout
