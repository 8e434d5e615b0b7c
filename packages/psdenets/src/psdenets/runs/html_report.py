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

_ABOUT_CURVES = "Accuracy and calibration error after each epoch. The test curve is not used for model selection."
_ABOUT_PATHS = "Sample paths of a few weights. Noise enters only the stochastic weights, inside the stochastic window."
_CARDS = (
    ("accuracy", "accuracy", ".2%"), ("ece", "ECE", ".2%"), ("nll", "NLL", ".4f"), ("brier", "Brier score", ".4f"),
    ("entropy", "mean entropy", ".3f"), ("kl", "KL", ".1f"),
)  # fmt: skip
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
    title = f"{config.dataset}, {config.title}"
    page = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style>
<h1>{escape(title)}</h1>
<p class="soft">{_facts(metrics, predictions)}</p>
{_cards(metrics)}
{_section(run, "curves", "Training", _ABOUT_CURVES)}
<h2>Calibration and uncertainty</h2>
<p class="soft">Left: accuracy of the predictions in each confidence bin.
Right: entropy of the predictions, from 0 (certain) to {np.log(len(classes)):.2f} nats (uniform).</p>
<div class="plots">{_plot(run, "reliability", 400)}{_plot(run, "entropy", 400)}</div>
{_noise(config, metrics)}
{_section(run, "widths", "What the posterior learned about the width of the weights", _ABOUT_WIDTHS)}
<h2>Least certain test images</h2>{_gallery(predictions, test, classes, certain=False)}
<h2>Most certain test images</h2>{_gallery(predictions, test, classes, certain=True)}
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
    return (
        f"{training} in {metrics['seconds']:.0f} s, {parameters:,} trainable parameters, "
        f"seed {metrics['seed']}; {images:,} test images, probabilities averaged over {samples} weight samples"
    )


def _cards(metrics: dict[str, Any]) -> str:
    return _shown(*((title, f"{metrics[name]:{form}}") for name, title, form in _CARDS))


def _noise(config: Config, metrics: dict[str, Any]) -> str:
    """Whether weight samples differ, and the scores of their average, of one of them, and without noise."""
    samples = metrics["test_samples"]
    agree = samples_agree(config, metrics["epistemic_share"], samples)
    scores = {
        name: f"accuracy {metrics['accuracy' + end]:.2%}, NLL {metrics['nll' + end]:.4f}"
        for name, end in ((f"average of {samples}", ""), ("one sample", "_one_sample"), ("without noise", "_no_noise"))
        if "nll" + end in metrics
    }
    return f"""<h2>What the weight noise does</h2>
<p class="soft">{_ABOUT_NOISE}</p>{f"<p><b>{escape(agree.capitalize())}.</b></p>" if agree else ""}
{_shown(*((name.replace("_", " "), f"{metrics[name]:.2%}") for name in ("epistemic_share", "disagreement")))}
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
