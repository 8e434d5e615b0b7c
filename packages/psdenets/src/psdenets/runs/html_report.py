"""report.html: one self-contained page with the metrics, plots, example images and configuration of a run."""

import base64
import io
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from bnneval import mean_probs, predictive_entropy
from psdenets.config import Config
from psdenets.data import Images
from psdenets.runs.directory import RunDir
from psdenets.runs.files import write_text
from psdenets.runs.noise import samples_agree
from psdenets.runs.predictions import Predictions
from psdenets.tasks import task_of

_ABOUT_CURVES = "Accuracy and calibration error after each epoch."
_ABOUT_PATHS = "Sample paths of a few weights. Noise enters only the stochastic weights, inside the stochastic window."
_ABOUT_NUMBER_CURVES = "RMSE and NLL after each epoch."
_ABOUT_TEST_CURVE = " The test curve is not used for model selection."
_NOISE = ("epistemic_share", "disagreement")
_ABOUT_NOISE = (
    "Each weight sample makes its own prediction; the metrics above are those of their average. The epistemic share is "
    "the part of the predictive entropy that comes from differences between samples; the rest they have in common. "
    "Disagreement is the share of single predictions whose class is not that of the average. If both are near 0, all "
    "samples predict the same, and the noise has no effect."
)
_ABOUT_WIDTHS = (
    "Standard deviation of the noisy weights at the end of the stochastic window, posterior divided by prior. Weights "
    "at 1 are as wide as the prior makes them; training made those left of 1 narrower and those right of 1 wider. If "
    "all are at 1, training moved the weights but did not change how widely they vary."
)
_ABOUT_NOISE_IN_NUMBERS = (
    "Each weight sample predicts a location and a scale; the metrics above are those of the mixture of all samples. "
    "The epistemic share is the part of the variance that comes from differences between samples. If it is near 0, all "
    "samples predict the same, and the noise has no effect."
)
_ABOUT_FUNCTION = (
    "Lines: the mean, and the functions of a few weight samples. Inner band: the noise of the data as the network sees "
    "it. Outer band: 90 % of the predictive distribution. What lies between the two comes from the weights."
)
_ABOUT_NUMBERS = (
    "Left: predicted against true numbers. Then the probability integral transform of the test set, flat if the "
    "predictive distribution is right, and the share of targets below each predicted quantile."
)
_GALLERY = 12  # images in each of the two galleries: the least and the most certain

_STYLE = """
:root { color-scheme: light; --ink: #1c2430; --soft: #667085; --line: #e4e7ec; --accent: #0072b2; }
* { box-sizing: border-box }
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); max-width: 60rem;
  margin: 2.5rem auto; padding: 0 1.25rem }
h1 { font-size: 1.7rem; margin: 0 } h2 { font-size: 1.15rem; margin: 2.4rem 0 .6rem }
p { margin: .3rem 0 .8rem } .soft { color: var(--soft) }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .8rem; margin: 1.4rem 0 }
.card { border: 1px solid var(--line); border-radius: .6rem; padding: .7rem .9rem }
.card b { display: block; font-size: 1.45rem; color: var(--accent); font-variant-numeric: tabular-nums }
.plots { display: flex; flex-wrap: wrap; gap: 1.2rem; align-items: flex-start } .plots img { max-width: 100% }
.images { display: grid; grid-template-columns: repeat(6, minmax(0, 1fr)); gap: .7rem }
figure { margin: 0; text-align: center; font-size: .78rem; line-height: 1.3 }
figure img { width: 100%; max-width: 6.5rem; image-rendering: pixelated;
  border: 1px solid var(--line); border-radius: .3rem }
.wrong { color: #b42318 }
table { border-collapse: collapse; font-size: .85rem; width: 100% }
td { padding: .15rem .6rem .15rem 0; vertical-align: top }
.columns { columns: 3 14rem; column-gap: 2rem }
code { background: #f4f5f7; padding: .1rem .3rem; border-radius: .25rem }
"""


def write_report(
    run: RunDir, config: Config, metrics: dict[str, Any], predictions: Predictions, test: Images, classes: Sequence[str]
) -> None:
    """Write report.html. The plots it embeds must already exist."""
    title = f"{config.data_name}, {config.title}"
    tested = config.system.training is not None and config.training.epoch_test
    curves = (_ABOUT_CURVES if classes else _ABOUT_NUMBER_CURVES) + _ABOUT_TEST_CURVE * tested
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style>
<h1>{escape(title)}</h1>
<p class="soft">{_facts(metrics, predictions)}</p>
{_cards(metrics)}
{_section(run, "function", "Data and predictions", _ABOUT_FUNCTION)}
{_section(run, "curves", "Training", curves)}
{_calibration(run, classes)}
{_noise(config, metrics)}
{_section(run, "widths", "What the posterior learned about the width of the weights", _ABOUT_WIDTHS)}
{_galleries(predictions, test, classes)}
{_section(run, "weights", "Weights over depth", _ABOUT_PATHS)}
<h2>Configuration</h2>
<div class="columns">{_table(config.as_dict())}</div>
<h2>Software versions</h2><div class="columns">{_table(metrics["versions"])}</div>
</html>
"""
    write_text(run.file("report.html"), page)


def _facts(metrics: dict[str, Any], predictions: Predictions) -> str:
    training = f"{metrics['epochs']} epochs" if "epochs" in metrics else f"{metrics['transitions']:,} transitions"
    parameters = sum(metrics["parameters"].values())
    samples, images, _ = predictions.probs.shape
    tested = (
        f"{images:,} test images, probabilities averaged over {samples} weight samples"
        if task_of(metrics).classifies
        else f"{images:,} test rows, mixture of {samples} weight samples"
    )
    return (
        f"{training} in {metrics['seconds']:.0f} s, {parameters:,} trainable parameters, "
        f"seed {metrics['seed']}; {tested}"
    )


def _cards(metrics: dict[str, Any]) -> str:
    return _shown(*((item.title, item.of(metrics)) for item in task_of(metrics).cards if item.key in metrics))


def _calibration(run: RunDir, classes: Sequence[str]) -> str:
    """Figures of calibration and uncertainty."""
    if not classes:
        figures = "".join(_plot(run, name, 270) for name in ("predicted", "pit", "quantiles"))
        about = _ABOUT_NUMBERS
    else:
        figures = _plot(run, "reliability", 400) + _plot(run, "entropy", 400)
        about = (
            "Left: accuracy of the predictions in each confidence bin. Right: entropy of the predictions, from 0 "
            f"(certain) to {np.log(len(classes)):.2f} nats (uniform)."
        )
    return f'<h2>Calibration and uncertainty</h2><p class="soft">{about}</p><div class="plots">{figures}</div>'


def _noise(config: Config, metrics: dict[str, Any]) -> str:
    """Whether weight samples differ, and the scores of their average, of one of them, and without noise."""
    samples = metrics["test_samples"]
    agree = samples_agree(config, metrics["epistemic_share"], samples)
    task = task_of(metrics)
    main, about = task.score, _ABOUT_NOISE if task.classifies else _ABOUT_NOISE_IN_NUMBERS
    scores = {
        name: f"{main.title} {metrics[main.key + end]:{main.form}}, NLL {metrics['nll' + end]:.4f}"
        for name, end in ((f"average of {samples}", ""), ("one sample", "_one_sample"), ("without noise", "_no_noise"))
        if "nll" + end in metrics
    }
    return f"""<h2>What the weight noise does</h2>
<p class="soft">{about}</p>{f"<p><b>{escape(agree.capitalize())}.</b></p>" if agree else ""}
{_shown(*((name.replace("_", " "), f"{metrics[name]:.2%}") for name in _NOISE if name in metrics))}
{_table(scores)}"""


def _shown(*shown: tuple[str, str]) -> str:
    return '<div class="cards">' + "".join(f'<div class="card">{n}<b>{v}</b></div>' for n, v in shown) + "</div>"


def _section(run: RunDir, plot: str, title: str, about: str) -> str:
    """A plot with its heading, if the run has that plot."""
    if not run.file(f"plots/{plot}.png").exists():
        return ""
    return f'<h2>{title}</h2><p class="soft">{about}</p><div class="plots">{_plot(run, plot, 840)}</div>'


def _plot(run: RunDir, name: str, width: int) -> str:
    return f'<img width="{width}" alt="{name}" src="{_data_uri(run.file(f"plots/{name}.png").read_bytes())}">'


def _galleries(predictions: Predictions, test: Images, classes: Sequence[str]) -> str:
    """The least and the most certain test images; nothing for the rows of a table."""
    if not classes or test.pixels.is_floating_point():
        return ""
    least, most = (_gallery(predictions, test, classes, certain) for certain in (False, True))
    return f"<h2>Least certain test images</h2>{least}<h2>Most certain test images</h2>{most}"


def _gallery(predictions: Predictions, images: Images, classes: Sequence[str], certain: bool) -> str:
    """The least or the most certain test images, with predicted class, probability and entropy."""
    mean = mean_probs(predictions.probs)
    entropy = predictive_entropy(mean)
    order = np.argsort(entropy if certain else -entropy, kind="stable")[:_GALLERY]
    cells = []
    for i in order:
        predicted, label = int(mean[i].argmax()), int(predictions.labels[i])
        verdict = "" if predicted == label else f'<br><span class="wrong">is {escape(classes[label])}</span>'
        cells.append(
            f'<figure><img alt="test image {i}" src="{_picture(images.pixels[i].numpy())}"><figcaption>'
            f"{escape(classes[predicted])} {mean[i, predicted]:.1%}<br>entropy {entropy[i]:.2f}{verdict}"
            "</figcaption></figure>"
        )
    return f'<div class="images">{"".join(cells)}</div>'


def _picture(pixels: np.ndarray) -> str:
    """uint8 (C, H, W) as a PNG in a data URI."""
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0)).save(buffer, "PNG")
    return _data_uri(buffer.getvalue())


def _data_uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _table(values: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td class='soft'>{escape(name)}</td><td>{escape(str(value))}</td></tr>"
        for name, value in values.items()
        if value is not None
    )
    return f"<table>{rows}</table>"
