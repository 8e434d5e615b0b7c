"""The examples in docstrings produce the output that they show, after `from psdenets import *` and `import torch`."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest
import torch
from torch import nn

import psdenets
from sdeweights import Cut, Grid

MODULES = [
    module.name for module in pkgutil.walk_packages(psdenets.__path__, "psdenets.") if "__main__" not in module.name
]
NAMES = {"torch": torch, "nn": nn, "Cut": Cut, "Grid": Grid} | {
    name: getattr(psdenets, name) for name in psdenets.__all__
}


def examples_of(name):
    return [test for test in doctest.DocTestFinder().find(import_module(name), extraglobs=NAMES) if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_produce_the_output_they_show(name):
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in examples_of(name):
        assert runner.run(test).failed == 0, test.name


def test_at_least_ten_examples_are_found():
    assert sum(len(test.examples) for name in MODULES for test in examples_of(name)) >= 10
