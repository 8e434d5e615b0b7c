"""Predictions in CSV files and DataFrames: written and read back to the last digit, and bad tables in one line."""

import numpy as np
import pandas as pd
import pytest

import bnneval
from bnneval.files import read_predictions, read_probs, to_frame, write_metrics, write_predictions

RNG = np.random.default_rng(0)
NAMES = ("cat", "dog", "snow owl")
SAMPLES, LABELS = RNG.dirichlet(np.ones(3), (4, 20)), RNG.integers(3, size=20)


@pytest.mark.parametrize("probs", [SAMPLES, SAMPLES[0], SAMPLES[0].astype(np.float32)])
@pytest.mark.parametrize("classes", [NAMES, None])
def test_predictions_are_read_back_to_the_last_digit(tmp_path, probs, classes):
    labels = LABELS if classes is None else np.array(NAMES)[LABELS]
    write_predictions(tmp_path / "p.csv", probs, labels, classes=classes)
    for source in (tmp_path / "p.csv", str(tmp_path / "p.csv"), to_frame(probs, labels, classes=classes)):
        found = read_predictions(source)
        assert (found.probs == probs).all()
        assert found.probs.shape == probs.shape
        assert (found.labels == LABELS).all()
        assert found.classes == (classes or ("0", "1", "2"))
        assert (read_probs(source).probs == probs).all()


def test_pandas_reads_and_writes_the_same_table(tmp_path):
    write_predictions(tmp_path / "p.csv", SAMPLES[0], np.array(NAMES)[LABELS], classes=NAMES)
    frame = pd.read_csv(tmp_path / "p.csv")
    assert list(frame) == ["label", "prob_cat", "prob_dog", "prob_snow owl"]
    pd.testing.assert_frame_equal(frame, to_frame(SAMPLES[0], LABELS.tolist(), classes=None).set_axis(list(frame), axis=1)
                                  .assign(label=np.array(NAMES)[LABELS]), check_dtype=False)  # fmt: skip
    frame["file"] = "a.png"  # other columns are ignored
    frame.to_csv(tmp_path / "q.csv", index=False)
    assert read_predictions(tmp_path / "q.csv").probs == pytest.approx(SAMPLES[0], abs=1e-15)  # pandas may round


def test_the_order_of_columns_and_of_the_rows_of_weight_samples_does_not_matter():
    frame = to_frame(SAMPLES, np.array(NAMES)[LABELS], classes=NAMES)
    shuffled = frame.sample(frac=1, random_state=0)[
        ["prob_dog", "sample", "label", "prob_snow owl", "image", "prob_cat"]
    ]
    found = read_predictions(shuffled)
    assert found.classes == ("dog", "snow owl", "cat")
    assert (found.probs == SAMPLES[..., [1, 2, 0]]).all()
    assert bnneval.accuracy(found.probs, found.labels) == bnneval.accuracy(SAMPLES, LABELS)


@pytest.mark.parametrize("labels", [[0, 1, 1], [False, True, True], ["false", "true", "true"]])
def test_one_column_is_the_probability_of_class_1(tmp_path, labels):
    frame = pd.DataFrame({"prob": [0.1, 0.8, 0.3], "label": labels})
    frame.to_csv(tmp_path / "binary.csv", index=False)
    for source in (frame, tmp_path / "binary.csv"):
        found = read_predictions(source)
        assert found.probs.tolist() == [0.1, 0.8, 0.3]
        assert bnneval.accuracy(found.probs, found.labels) == pytest.approx(2 / 3)


def test_columns_of_a_frame_can_be_given_to_the_metrics_directly():
    frame = to_frame(SAMPLES[0], np.array(NAMES)[LABELS], classes=NAMES)
    columns = [f"prob_{name}" for name in NAMES]
    assert bnneval.ece(frame[columns], frame["label"], classes=NAMES) == bnneval.ece(SAMPLES[0], LABELS)


def test_a_byte_order_mark_and_empty_lines_are_accepted(tmp_path):
    (tmp_path / "excel.csv").write_text("\ufefflabel,prob_a,prob_b\n\na,0.75,0.25\n", encoding="utf-8")
    assert read_predictions(tmp_path / "excel.csv").probs.tolist() == [[0.75, 0.25]]


BAD = {
    "": "expected a header and rows in bad.csv, got no rows",
    "label,prob_a,prob_b\n": "expected a header and rows in bad.csv, got no rows",
    "label,prob_a,prob_a\na,1,0\n": "got a column twice",
    "prob_a,prob_b\n1,0\n": "expected columns label and prob_CLASS for each class in bad.csv, got prob_a, prob_b",
    "label,a,b\na,1,0\n": "expected columns label and prob_CLASS for each class in bad.csv, got label, a, b",
    "label,prob_a,prob_b\nc,1,0\n": "expected labels among a, b in bad.csv, got 'c' in row 1",
    "label,prob_a,prob_b\na,1\n": "expected 3 values in row 1 of bad.csv, got 2",
    "label,prob_a,prob_b\na,1,zero\n": "expected numbers in column prob_b of bad.csv, got could not convert",
    "label,prob\n2,0.5\n": "expected labels among 0, 1 in bad.csv, got '2' in row 1",
    "sample,label,prob_a,prob_b\n0,a,1,0\n": "expected a column image next to sample",
    "sample,image,label,prob_a,prob_b\n0,0,a,1,0\n0,1,a,1,0\n1,0,a,1,0\n": "expected every image 0, 1, ... once",
    "sample,image,label,prob_a,prob_b\n0,0,a,1,0\n1,0,b,1,0\n": "expected one label for each image in bad.csv",
}  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_a_bad_table_is_rejected_in_one_line(tmp_path, text):
    (tmp_path / "bad.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=BAD[text].replace(".", r"\.")) as error:
        read_predictions(tmp_path / "bad.csv")
    assert "\n" not in str(error.value)


def test_bytes_that_are_not_text_are_rejected_in_one_line(tmp_path):
    (tmp_path / "bad.csv").write_bytes(b"label,prob_a\n\xff\xfe,1\n")
    with pytest.raises(ValueError, match="expected a CSV file in bad.csv"):
        read_predictions(tmp_path / "bad.csv")


def test_metrics_are_written_as_two_columns(tmp_path):
    report = bnneval.report(SAMPLES, LABELS, SAMPLES[:, :5])
    write_metrics(tmp_path / "metrics.csv", report)
    table = pd.read_csv(tmp_path / "metrics.csv", index_col="metric")["value"]
    assert table["ece"] == pytest.approx(report["ece"], abs=1e-15)
    assert table["ood_auroc"] == pytest.approx(report["ood"]["auroc"], abs=1e-15)
    assert "reliability" not in table
