"""The form of the JSON files of a run directory, and the functions that read them."""

from pathlib import Path
from typing import Any

from psdenets.runs.checksums import Folder
from psdenets.runs.schema import COUNT, SECONDS, Number

_IMAGES = {
    "channels": COUNT, "height": COUNT, "width": COUNT, "classes": [str], "mean": [float], "std": [float],
    "columns?": [str], "target?": ([float, float], None),
}  # fmt: skip
DATA = {
    "format?": COUNT, "images": _IMAGES, "sizes": {str: COUNT}, "versions": {str: str}, "checksum?": (str, None),
}  # fmt: skip
_METRIC = (float, None)  # null: the mean of an empty set
METRICS: dict[Any, Any] = {
    "seconds": SECONDS, "kl": _METRIC, "accuracy?": _METRIC, "ece?": _METRIC, "nll?": _METRIC, "epochs?": COUNT,
    "steps?": COUNT, "selected_epoch?": (COUNT, None), "test_samples?": Number(int, 1), "seed?": COUNT,
    "parameters?": {str: COUNT}, "versions?": {str: str}, "members?": [{str: _METRIC}], "transitions?": COUNT,
    "accept?": [_METRIC], "divergences?": [COUNT], "mixing?": {str: {str: _METRIC}}, ...: _METRIC,
}  # fmt: skip
_PART = {str: _METRIC}
EPOCH = {"epoch": COUNT, "step": COUNT, "seconds": SECONDS, "train": _PART, "val": _PART, "test?": _PART}
_MEMBER = {**EPOCH, "member": COUNT}
CHAIN = {
    "accept": SECONDS, "step_size": SECONDS, "divergences": COUNT, "gradients": COUNT, "seconds": SECONDS,
}  # fmt: skip


def read_metrics(run: Path, *needed: str) -> dict[str, Any]:
    """The final metrics of a run: metrics.json, which must have the metrics that are needed."""
    needs = {name: METRICS[f"{name}?"] for name in needed}
    others = {name: form for name, form in METRICS.items() if name is ... or name.removesuffix("?") not in needs}
    found: dict[str, Any] = Folder(run).read_json("metrics.json", {**others, **needs})
    return found


def read_history(run: Path) -> list[dict[str, Any]]:
    """The metrics of every epoch, or those of every chain of HMC: metrics.jsonl."""
    return Folder(run).read_lines("metrics.jsonl", (EPOCH, _MEMBER, {"chain": COUNT, **CHAIN}))
