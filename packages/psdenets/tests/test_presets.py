"""The paper's presets have the values in its Table 5."""

from __future__ import annotations

import pytest
import torch

from psdenets import PRESETS, BadInput, Classifier, Config, ImageSpec, build, preset

PAPER = [
    name
    for name in PRESETS
    if not any(own in name for own in ("-cpu-", "-warm-", "-refined-", "-long-", "digits-", "own-"))
]

PSDE = ["ode-first", "sde-first", "fix-w2", "horizontal", "both"]


PICTURES = ImageSpec(3, 32, 32, ("a", "b"), (0.5,) * 3, (0.25,) * 3)
COMMON = {
    "batch_size": 128, "activation": "softplus", "augment_channels": 0, "samples": 1, "schedule": "constant",
    "block": "strided", "select": "best",
}  # fmt: skip
ROWS = {
    "mnist": {"dataset": "mnist", "lr": 1e-3, "steps": 60, "blocks": "1", "width": 32, "sigma": 0.2, "augment": "none"},
    "cifar10": {
        "dataset": "cifar10", "lr": 7e-4, "steps": 30, "blocks": "2-2-2", "width": 64, "sigma": 0.1,
        "augment": "crop-flip",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PAPER)
def test_presets_have_the_values_that_all_rows_of_a_data_set_share(name):
    values = preset(name).as_dict()
    expected = {**COMMON, **ROWS[name.partition("-")[0]]}
    if name.endswith("odenet"):  # has no noise
        expected = {key: value for key, value in expected.items() if key not in ("samples", "sigma")}
    assert {key: values[key] for key in expected} == expected


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
@pytest.mark.parametrize("cut", PSDE)
def test_partially_stochastic_presets_have_the_values_of_their_rows(data, cut):
    c = preset(f"{data}-{cut}")
    assert c.training.epochs == {"mnist": 30, "cifar10": 100}[data]
    split = cut in ("horizontal", "both")
    drifts = {
        ("mnist", False): "1-32-1",
        ("cifar10", False): "2-128-2",
        ("mnist", True): "1-16-1",
        ("cifar10", True): "1-64-1",
    }
    assert c.system.process.drift == drifts[data, split]
    base = {"mnist": 1e-3, "cifar10": 1e-4}[data]
    # base / r with r = 0.1 of the depth or 0.5 of the weights; the product of both is our own choice
    assert c.system.kl_weight == pytest.approx(base / {"horizontal": 0.5, "both": 0.05}.get(cut, 0.1), rel=1e-12)


@pytest.mark.parametrize("data", ["mnist", "cifar10"])
def test_presets_have_the_cuts_of_their_rows(data):
    window = {cut: preset(f"{data}-{cut}").system.cut.window for cut in PSDE}
    assert window["ode-first"] == (0.9, 1.0)
    assert window["sde-first"] == window["fix-w2"] == (0.0, 0.1)
    assert window["horizontal"] == (0.0, 1.0)
    assert window["both"] == (0.9, 1.0)
    assert preset(f"{data}-fix-w2").system.cut.at_t2 == "learned"
    assert preset(f"{data}-horizontal").system.cut.share == preset(f"{data}-both").system.cut.share == 0.5


def test_fully_stochastic_presets_have_the_values_of_their_rows():
    mnist, cifar = preset("mnist-sde-bnn"), preset("cifar10-sde-bnn")
    assert (mnist.system.cut.cut, mnist.training.epochs, mnist.system.kl_weight) == ("full", 100, 1e-3)
    assert (cifar.system.cut.cut, cifar.training.epochs, cifar.system.kl_weight) == ("full", 300, 1e-4)
    # 100 epochs of ODE-first at 289.4 s take as long as 77.8 epochs of SDE-BNN at 371.9 s
    assert preset("cifar10-sde-bnn-equal-time").training.epochs == round(100 * 289.4 / 371.9)


@pytest.mark.parametrize("order", ["ode-first", "sde-first"])
@pytest.mark.parametrize("percent", [10, 30, 50, 70])
def test_ablation_presets_have_the_order_and_ratio_of_their_name_and_a_matching_kappa(order, percent):
    c = preset(f"cifar10-{order}-{percent}")
    assert (c.system.cut.order, c.system.cut.ratio) == (order, percent / 100)
    assert c.system.kl_weight == pytest.approx(1e-4 / (percent / 100), rel=1e-12)


def small(name):
    """A preset with a small network."""
    values = preset(name).as_dict()
    return preset(name, **{key: value for key, value in {"width": 2, "drift": "1-2-1"}.items() if key in values})


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_a_network(name):
    model = build(small(name), PICTURES if name == "own-pictures" else None)
    assert sum(model.parameter_counts().values()) > 0
    if isinstance(model, Classifier):
        assert len(model.deep_blocks) == sum(model.config.system.net.scales)
        assert model.parameter_counts()["w0"] > 0


@pytest.mark.parametrize("name", [name for name in PRESETS if PRESETS[name].get("model", "psde") != "psde"])
def test_presets_of_other_systems_classify_images(name):
    model = build(small(name)).eval()
    s = model.spec
    with torch.no_grad():
        assert model(torch.rand(2, s.channels, s.height, s.width))[0].shape == (2, 10)


def test_own_pictures_is_the_preset_of_a_folder_without_being_named():
    chosen, default = (c.as_dict() for c in (preset("own-pictures"), Config(dataset="imagefolder")))
    assert {**chosen, "preset": None} == default


@pytest.mark.parametrize("cut", ["none", "full", "horizontal", "both", "vertical"])
def test_a_folder_can_be_trained_on_with_every_cut(cut):
    config = Config(dataset="imagefolder", cut=cut, channels="2-2-2")
    assert config.system.cut.scope == ("network" if cut in ("both", "vertical") else "block")
    assert build(config, PICTURES).parameter_counts()["w0"] > 0


def test_the_error_for_an_unknown_preset_suggests_a_similar_name():
    with pytest.raises(BadInput, match="did you mean mnist-ode-first"):
        preset("mnist-odefirst")


def test_options_of_a_preset_can_be_overridden():
    assert preset("mnist-ode-first", ratio=0.2).system.kl_weight == pytest.approx(5e-3, rel=1e-12)
    assert Config(**{**PRESETS["mnist-ode-first"], "seed": 3}).seed == 3
