"""The examples in docstrings print what they show, after `from sdeweights import *` and `import torch`."""

import doctest
import pkgutil
from importlib import import_module

import pytest
import torch
from torch import nn

import sdeweights

MODULES = [module.name for module in pkgutil.walk_packages(sdeweights.__path__, "sdeweights.")]
NAMES = {"torch": torch, "nn": nn, **{name: getattr(sdeweights, name) for name in sdeweights.__all__}}


def examples_of(name):
    return [test for test in doctest.DocTestFinder().find(import_module(name), extraglobs=NAMES) if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_print_what_they_show(name):
    torch.set_default_dtype(torch.float32)  # the default of a reader who runs the example
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in examples_of(name):
        assert runner.run(test).failed == 0, test.name


def test_the_examples_are_found():
    assert sum(len(test.examples) for name in MODULES for test in examples_of(name)) >= 15
