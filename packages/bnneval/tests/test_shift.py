"""The reader of the official files, and the evaluation of a classifier under corruption."""

import tracemalloc

import numpy as np
import pytest

import bnneval
from bnneval.corruptions import SEVERITIES
from bnneval.shift import Cell, Shift


@pytest.fixture
def official(tmp_path):
    """Fog and contrast with twenty images each; every byte is 10 * severity + index of the corruption."""
    n = 20
    for number, name in enumerate(("contrast", "fog")):
        levels = np.repeat(10 * np.arange(1, 6) + number, n).astype(np.uint8)
        np.save(tmp_path / f"{name}.npy", np.broadcast_to(levels[:, None, None, None], (5 * n, 32, 32, 3)))
    np.save(tmp_path / "labels.npy", np.tile(np.arange(n) % 10, 5).astype(np.uint8))
    return tmp_path


def test_the_reader_finds_each_severity_in_its_own_fifth_of_the_file(official):
    data = bnneval.Cifar10C(official)
    assert data.corruptions == ("fog", "contrast")  # in the benchmark's order, not alphabetical
    for severity in SEVERITIES:
        images = data.images("fog", severity)
        assert images.shape == (20, 32, 32, 3)
        assert set(np.unique(images)) == {10 * severity + 1}
    assert data.labels().tolist() == [k % 10 for k in range(20)]


def test_one_image_is_read_without_loading_the_whole_file(tmp_path):
    shape = (50_000, 32, 32, 3)  # the size of an official file: 153.6 MB, sparse
    np.lib.format.open_memmap(tmp_path / "fog.npy", mode="w+", dtype=np.uint8, shape=shape)[0] = 1
    np.save(tmp_path / "labels.npy", np.zeros(50_000, np.uint8))
    tracemalloc.start()
    image = np.array(bnneval.Cifar10C(tmp_path).images("fog", 3)[17])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert image.shape == (32, 32, 3)
    assert peak < 1_000_000
    assert isinstance(bnneval.Cifar10C(tmp_path).images("fog", 3), np.memmap)


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda folder: (folder / "labels.npy").unlink(), "no labels.npy"),
        (lambda folder: np.save(folder / "labels.npy", np.arange(100)), "same labels for all five severities"),
        (lambda folder: np.save(folder / "labels.npy", np.zeros(100)), "expected 5 N integers"),
        (lambda folder: np.save(folder / "fog.npy", np.zeros((7, 32, 32, 3), np.uint8)), "expected uint8 .5 N"),
        (lambda folder: np.save(folder / "fog.npy", np.zeros((5, 32, 32, 3))), "expected uint8 .5 N"),
        (lambda folder: np.save(folder / "fog.npy", np.zeros((200, 32, 32, 3), np.uint8)), "20 images .* got 40"),
        (
            lambda folder: np.save(folder / "fog.npy", np.array([{}], object), allow_pickle=True),
            "expected a .npy array",
        ),
        (lambda folder: (folder / "fog.npy").write_bytes(b"no array"), "expected a .npy array"),
    ],
)
def test_broken_official_files_are_one_line_errors(official, broken, message):
    broken(official)
    with pytest.raises(ValueError, match=message) as error:
        bnneval.evaluate_cifar10c(toy, official)
    assert "\n" not in str(error.value)


def toy(images):
    """Certain of class 0 when dark, uniform when bright: p_0 falls from 1 to 1/10 with the mean level."""
    level = images.reshape(len(images), -1).mean(axis=1) / 255
    first = 1 - 0.9 * level
    return np.column_stack([first, np.repeat((1 - first)[:, None] / 9, 9, axis=1)])


def test_the_official_files_are_evaluated_by_severity(official):
    result = bnneval.evaluate_cifar10c(toy, official, batch=7)
    p = 1 - 0.9 * 31 / 255  # fog at severity 3
    entropy = -p * np.log(p) - (1 - p) * np.log((1 - p) / 9)
    cell = result.cells["fog"][3]
    assert cell.entropy_mean == pytest.approx(entropy, abs=1e-12)
    assert cell.entropy_std == pytest.approx(0, abs=1e-7)
    assert cell.accuracy == 0.1  # two of twenty labels are 0
    assert cell.ece == pytest.approx(p - 0.1, abs=1e-12)
    assert result.clean is None
    assert result.frost == "official files"
    both = [result.cells[name][3].entropy_mean for name in ("fog", "contrast")]
    assert result.by_severity[3].entropy_mean == pytest.approx(np.mean(both), abs=1e-12)
    assert result.by_severity[3].entropy_std == pytest.approx(np.std(both), abs=1e-9)


def test_the_trend_detects_that_entropy_of_the_toy_rises_with_brightness(photos):
    result = bnneval.evaluate_shift(toy, photos, np.zeros(8, int), corruptions=("brightness", "snow"), batch=3)
    trend = result.trend()
    assert trend.rising == trend.corruptions == 2
    assert trend.slope > 0
    assert trend.page_l == 2 * (1 + 4 + 9 + 16 + 25)  # every row in order: the largest possible L
    assert trend.p_value == pytest.approx(1 / 120**2, rel=1e-9)  # one of 120 orders, for both rows


def test_severities_are_sorted_regardless_of_the_order_given(photos):
    names, labels = ("brightness", "snow"), np.zeros(8, int)
    rising = bnneval.evaluate_shift(toy, photos, labels, names, (1, 3, 5))
    mixed = bnneval.evaluate_shift(toy, photos, labels, names, (5, 1, 3))
    assert mixed == rising
    assert list(mixed.by_severity) == [1, 3, 5]
    assert mixed.trend().page_l == 2 * (1 + 4 + 9)


def test_clean_images_must_be_as_many_as_labels(official, photos):
    with pytest.raises(ValueError, match="expected 20 clean images, as many as labels, got 40"):
        bnneval.evaluate_cifar10c(toy, official, clean=np.tile(photos, (5, 1, 1, 1)))


def test_predictions_are_made_on_the_corrupted_images(photos):
    # One published implementation builds the corrupted set and then predicts on the clean one.
    seen = []

    def record(images):
        seen.append(np.array(images))
        return toy(images)

    bnneval.evaluate_shift(record, photos, np.zeros(8, int), ("glass_blur",), (2, 4), seed=5)
    assert (seen[0] == bnneval.corrupt(photos, "glass_blur", 2, seed=5)).all()
    assert (seen[1] == bnneval.corrupt(photos, "glass_blur", 4, seed=5)).all()
    assert (seen[2] == photos).all()


def test_batches_do_not_change_the_result(photos):
    whole, split = (
        bnneval.evaluate_shift(toy, photos, np.zeros(8, int), ("shot_noise", "frost"), (1, 5), batch=b) for b in (8, 3)
    )
    assert whole == split
    assert whole.frost == "procedural"


def test_weight_samples_are_averaged(photos):
    def two_samples(images):
        return np.stack([toy(images), np.full((len(images), 10), 0.1)])

    result = bnneval.evaluate_shift(two_samples, photos, np.zeros(8, int), ("contrast",), (1,))
    direct = (toy(bnneval.corrupt(photos, "contrast", 1)) + 0.1) / 2
    expected = bnneval.predictive_entropy(direct).mean()
    assert result.cells["contrast"][1].entropy_mean == pytest.approx(expected, abs=1e-12)


def shift_with_errors(table, clean):
    cells = {
        name: {s: Cell(0, 0, 1 - error, 0, 0) for s, error in zip(SEVERITIES, row, strict=True)}
        for name, row in table.items()
    }
    return Shift(Cell(0, 0, 1 - clean, 0, 0), cells, {}, "not used")


def test_mean_corruption_error_by_hand():
    ours = shift_with_errors({"fog": [0.1, 0.1, 0.2, 0.2, 0.4], "snow": [0.2] * 5}, clean=0.1)
    base = shift_with_errors({"fog": [0.4] * 5, "snow": [0.5] * 5}, clean=0.2)
    assert bnneval.mean_corruption_error(ours) == pytest.approx(0.2, abs=1e-12)
    assert bnneval.mean_corruption_error(ours, base) == pytest.approx((1.0 / 2.0 + 1.0 / 2.5) / 2, abs=1e-12)
    relative = bnneval.mean_corruption_error(ours, base, relative=True)
    assert relative == pytest.approx((0.5 / 1.0 + 0.5 / 1.5) / 2, abs=1e-12)
    assert bnneval.mean_corruption_error(base, base) == pytest.approx(1, abs=1e-12)


def test_mean_over_corruptions_and_severities_is_unweighted(official):
    result = bnneval.evaluate_cifar10c(toy, official)
    accuracies = [cell.accuracy for row in result.cells.values() for cell in row.values()]
    errors = [cell.ece for row in result.cells.values() for cell in row.values()]
    assert len(errors) == 10
    assert result.mean().accuracy == pytest.approx(np.mean(accuracies), abs=1e-15)
    assert result.mean().ece == pytest.approx(np.mean(errors), abs=1e-15)


def test_undefined_ratios_and_trends_are_rejected():
    ours = shift_with_errors({"fog": [0.1] * 5}, clean=0.1)
    with pytest.raises(ValueError, match="expected a baseline"):
        bnneval.mean_corruption_error(ours, relative=True)
    with pytest.raises(ValueError, match="same corruptions"):
        bnneval.mean_corruption_error(ours, shift_with_errors({"snow": [0.1] * 5}, clean=0.1))
    with pytest.raises(ValueError, match="undefined"):
        bnneval.mean_corruption_error(ours, shift_with_errors({"fog": [0.0] * 5}, clean=0.0))
    with pytest.raises(ValueError, match="for a trend"):
        ours.trend()


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (lambda images: np.zeros((len(images), 10)), "sum to 1"),
        (lambda images: toy(images)[:-1], "expected predict.images. with 8 rows, got 7"),
        (lambda images: None, "numbers"),
    ],
)
def test_a_predict_that_does_not_return_probabilities_is_rejected(photos, predict, message):
    with pytest.raises(ValueError, match=message):
        bnneval.evaluate_shift(predict, photos, np.zeros(8, int), ("fog",), (1,))


def test_a_nearest_mean_classifier_loses_accuracy_with_severity_on_real_images(cifar10):
    """Accuracy falls from severity 1 to 5 of contrast and of fog."""
    images, labels = cifar10
    means = np.stack([images[labels == c].mean(axis=0) for c in range(10)]).reshape(10, -1)

    def nearest_mean(batch):
        distance = ((batch.reshape(len(batch), 1, -1) - means) ** 2).mean(axis=2) / 2000
        p = np.exp(-distance + distance.min(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    result = bnneval.evaluate_shift(nearest_mean, images, labels, ("contrast", "fog"), (1, 5))
    assert result.clean is not None
    for row in result.cells.values():
        assert row[5].accuracy < row[1].accuracy <= result.clean.accuracy + 0.02
