"""Values from Python are checked when an object is built or a function is called: a ValueError that says what is wrong.

The table grows: a call that was accepted, or ended in another exception, becomes a line of it.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from psdenets import (
    BadInput,
    Config,
    CsvLog,
    ImageSpec,
    Run,
    build,
    compare_runs,
    encoder_of,
    features,
    fit,
    load,
    preset,
)
from psdenets import runs_table as table

NAN, INF = math.nan, math.inf


def spec(**changes):
    return ImageSpec(
        **{"channels": 1, "height": 8, "width": 8, "classes": ("a", "b"), "mean": (0.0,), "std": (1.0,)} | changes
    )


def columns(**changes):
    return spec(**{"channels": 2, "height": 1, "width": 1, "mean": (0.0, 0.0), "std": (1.0, 1.0)} | changes)


@pytest.fixture(scope="module")
def model():
    return build(Config(width=2, steps=2, drift="1-2-1"), spec())


X = torch.zeros(1, 1, 8, 8)
CONFIGS = [
    {"cut": "diagonal"}, {"cut": "Vertical"}, {"cut": None}, {"order": "ode_first"}, {"model": "nothing"}, {"model": []},
    {"sigma": NAN}, {"lr": INF}, {"lr": True}, {"epochs": "3"}, {"steps": [2]}, {"steps": 0}, {"steps": NAN}, {"dataset": []},
    {"dataset": "nothing"}, {"block": []}, {"device": 3}, {"sources": 3}, {"sources": {"a": 1}}, {"sources": {"a": {"file": 1}}},
    {"seed": -1}, {"seed": 1.0}, {"system": 3}, {"model": "mfvi", "log_std": NAN}, {"t1": NAN, "t2": NAN}, {"drift": "²-2"},
    {"refine_at": NAN, "steps": "2,4"}, {"colour": "red"}, {"ratio": 0.0}, {"share": 1.5, "cut": "horizontal"},
]  # fmt: skip
SPECS = [
    {"mean": (NAN,)}, {"mean": (INF,)}, {"mean": None}, {"mean": ("x",)}, {"mean": (0.0, 0.0)}, {"std": (NAN,)}, {"std": (INF,)},
    {"std": (0.0,)}, {"std": ()}, {"classes": ("a", "a")}, {"classes": (1, 2)}, {"classes": "ab"}, {"classes": ("a",)},
    {"channels": "1"}, {"channels": 1.5}, {"channels": True}, {"channels": 0}, {"height": None},
    {"classes": (), "target": (NAN, 1.0)}, {"classes": (), "target": (0.0, NAN)}, {"classes": (), "target": (0.0, 0.0)},
    {"classes": (), "target": 3}, {"classes": (), "target": (0.0,)},
]  # fmt: skip
CALLS = {
    "a preset that does not exist": lambda _: build("nothing"),
    "a number instead of a config": lambda _: build(3),
    "None instead of a config": lambda _: build(None),
    "a dict instead of a config": lambda _: build({"cut": "full"}),
    "a preset that is a number": lambda _: preset(3),
    "changes to an unknown value": lambda _: Config().replace(cut="x"),
    "options as a list": lambda _: Config.read([1]),
    "options as None": lambda _: Config.read(None),
    "a model that is a list": lambda _: Config.read({"model": [1]}),
    "two columns of one name": lambda _: columns(columns=("a", "a")),
    "an unknown field of a spec": lambda _: ImageSpec.from_dict({"x": 1}),
    "a spec that is a number": lambda _: ImageSpec.from_dict(3),
    "no samples": lambda model: model.predict_proba(X, samples=0),
    "-1 samples": lambda model: model.predict_proba(X, samples=-1),
    "samples as text": lambda model: model.predict_proba(X, samples="2"),
    "one and a half samples": lambda model: model.predict_proba(X, samples=1.5),
    "True samples": lambda model: model.predict_proba(X, samples=True),
    "batches of no images": lambda model: model.predict_proba(X, batch_size=0),
    "batches of half an image": lambda model: model.predict_proba(X, batch_size=0.5),
    "images as text": lambda model: model.predict_proba("x"),
    "images as an array": lambda model: model.predict_proba(np.zeros((1, 1, 8, 8))),
    "images of NaN": lambda model: model.predict_proba(X * NAN),
    "a generator that is a number": lambda model: model.predict_proba(X, generator=3),
    "no samples in batches": lambda model: model.predict_batches([X], 0),
    "no batches": lambda model: model.predict_batches([], 2),
    "draws of no samples": lambda model: model.draw(0),
    "a forward pass of None": lambda model: model(None),
    "an unknown preset to fit": lambda _: fit("nothing"),
    "a number to fit": lambda _: fit(3),
    "data that are a number": lambda _: fit(data=3),
    "an unknown option to fit": lambda _: fit(nothing=1),
    "callbacks that are a number": lambda _: fit(callbacks=3),
    "resuming without a directory": lambda _: fit(resume=True),
    "a run that does not exist": lambda _: load("nothing"),
    "a run that is None": lambda _: load(None),
    "a run that is a number": lambda _: Run.load(3),
    "a table of a number": lambda _: table(3),
    "a table of None": lambda _: table([None]),
    "a table of nothing": lambda _: table("nothing*"),
    "a comparison of nothing": lambda _: compare_runs("nothing", "nothing"),
    "features of a number": lambda model: features(model.eval().requires_grad_(False), 3),
    "an encoder of a number": lambda _: encoder_of(3),
    "a log in a number": lambda _: CsvLog(3),
}


@pytest.mark.parametrize("options", CONFIGS, ids=str)
def test_a_config_refuses(options):
    with pytest.raises(BadInput, match="expected|unknown"):
        Config(**options)


@pytest.mark.parametrize("changes", SPECS, ids=str)
def test_a_spec_refuses(changes):
    with pytest.raises(BadInput, match="expected"):
        spec(**changes)


@pytest.mark.parametrize("name", CALLS)
def test_a_function_refuses(name, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="."):
        CALLS[name](model)
    assert not list(tmp_path.iterdir())


def test_lists_in_a_spec_become_tuples_so_that_it_can_be_hashed():
    assert spec(mean=[0.0], classes=["a", "b"]) == spec()
    assert hash(spec(std=[1.0])) == hash(spec())
