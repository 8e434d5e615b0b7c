"""`--model resnet32-laplace`: train a ResNet or load a finished run (`--laplace-of`), then fit its last layer."""

import time
from pathlib import Path

from psdenets.config import Config
from psdenets.errors import BadInput
from psdenets.models.laplace import fitted, laplace_torch, resnet_in
from psdenets.models.point import resnet
from psdenets.runs.directory import RunDir
from psdenets.runs.forms import read_history, read_metrics
from psdenets.runs.loading import load, read_config
from psdenets.runs.results import History, write_results
from psdenets.systems import SYSTEMS
from psdenets.training.session import begin, descend, device_of
from psdenets.training.watch import Watch

# Options that are not taken from the run of --laplace-of.
_KEPT = ("model", "preset", "out", "laplace_of", "hessian", "predictive", "test_samples", "seed", "device", "threads")


def fit(config: Config, run: RunDir, watch: Watch) -> None:
    """Train a ResNet, or load that of --laplace-of, and fit its last layer."""
    laplace_torch()  # raises now, not after an hour of training
    if config.system.laplace.laplace_of is not None:
        approximate(config, run, watch)
        return
    finish = lambda model, splits: fitted(config, splits.spec, resnet_in(model), splits.train)  # noqa: E731
    descend(config, run, watch, build=resnet, finish=finish)


def approximate(config: Config, run: RunDir, watch: Watch) -> None:
    """Fit the last layer of a finished run on its training images."""
    source = Path(config.system.laplace.laplace_of)
    own = bool(config.references)  # the user refers to their own code
    trained, _ = read_config(source, own)
    if SYSTEMS[trained.model] is not SYSTEMS["resnet32"]:
        raise BadInput(
            f"expected a run of --model resnet32, whose last layer is linear and whose weights are point estimates, "
            f"got {source} of --model {trained.model}"
        )
    given = config.as_dict()
    config = trained.replace(**{name: given[name] for name in _KEPT}, data_root=config.data_root or trained.data_root)
    splits = watch.splits(config)
    model = load(source, device_of(config.device), allow_code=own)
    begin(run, config, splits)
    started = time.perf_counter()
    approximation = fitted(config, splits.spec, resnet_in(model), splits.train).to(model.mean.device)
    seconds = time.perf_counter() - started
    before = read_metrics(source, "epochs", "steps", "selected_epoch")
    epochs = read_history(source)
    run.folder.write_lines("metrics.jsonl", epochs)
    facts = {name: before[name] for name in ("epochs", "steps", "selected_epoch")} | {"fit_seconds": round(seconds, 3)}
    history = History(epochs, before["seconds"] + seconds, facts)
    watch.say(write_results(run, config, approximation, splits.test, history, val=splits.val))
