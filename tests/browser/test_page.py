"""report.html in headless Chromium; `nox -s page` installs the browser and runs these tests."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from selenium import webdriver

from psdenets.train import main

FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
PICTURE = Path(os.environ.get("PAGE_PICTURE", "report.png"))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    assert main(["--cut", "vertical", "--epochs", "3", "--test-samples", "4", "--out", str(path)]) == 0
    return path


@pytest.fixture(params=[1000, 390], ids=["desktop", "telephone"])
def page(run, request, tmp_path):
    options = webdriver.ChromeOptions()
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options)
    try:
        driver.set_window_size(request.param, 2800)
        driver.get((run / "report.html").as_uri())
        yield driver
    finally:
        driver.quit()


def test_every_image_is_embedded_in_the_page_and_shown(page):
    pictures = page.execute_script(
        "return [...document.images].map(i => [i.src.slice(0, 5), i.complete, i.naturalWidth, i.clientWidth, i.alt])"
    )
    assert len(pictures) == 5 + 24  # five plots, twelve most and twelve least certain images
    assert all(
        source == "data:" and complete and natural > 0 and shown > 0 and alt
        for source, complete, natural, shown, alt in pictures
    )
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0  # nothing fetched
    assert page.get_log("browser") == []


def test_the_page_fits_its_window_and_shows_the_metrics(page, run):
    assert page.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    metrics = json.loads((run / "metrics.json").read_text())
    text = page.find_element("tag name", "body").text
    for expected in (f"{metrics['accuracy']:.2%}", f"{metrics['ece']:.2%}", f"{metrics['nll']:.4f}", "cut vertical"):
        assert expected in text


def test_a_screenshot_of_the_page_is_saved(page):
    assert page.save_screenshot(str(PICTURE.with_stem(f"{PICTURE.stem}-{page.get_window_size()['width']}")))
