"""The training loop, which can be stopped, saved and resumed after any step with bit-identical results.

Data order, augmentation and noise are functions of (seed, epoch or step), see `psdenets.seeds`; the learning rate,
kappa and the grid are functions of the step. A checkpoint therefore consists of weights, averaged weights, Adam's
moments, the position, and the predictions made so far in the epoch.
"""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from psdenets.config import Config
from psdenets.data import Images, Splits
from psdenets.data.augment import augmented
from psdenets.data.images import to_unit
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput
from psdenets.models.base import ImageClassifier
from psdenets.models.nets.odenet import ODENet
from psdenets.models.psde import Classifier, DeepBlock, require_seen_noise
from psdenets.models.regression import LocationScale
from psdenets.options.network import FlowOptions
from psdenets.options.training import TrainingOptions
from psdenets.runs.predictions import Predictions, predict
from psdenets.runs.weights import TensorFile
from psdenets.seeds import generator
from psdenets.systems import SYSTEMS
from psdenets.tasks import task_of
from psdenets.training.checkpoint import Snapshot
from psdenets.training.micro_batches import kept_by_an_image, size_for
from psdenets.training.objective import class_counts, class_weights, kappa_at
from psdenets.training.schedules import rate
from psdenets.training.start_from import Start, copied
from psdenets.training.state import check_tensors, check_values
from psdenets.training.step import Losses, TrainingStep
from sdeweights import DiagonalDrift, NonFiniteState, WeightProcess

_ADAPTED, _FEWEST = 5000, 1000  # images from which a fixed stem is computed, up to 32 x 32 pixels, and at least

Build = Callable[[Config, ImageSpec], ImageClassifier]


class Diverged(ArithmeticError):
    """Training produced a NaN or infinity."""


class StepReport(NamedTuple):
    """Loss, its parts and the score of one batch: its accuracy, or the RMSE of numbers."""

    loss: float
    nll: float
    kl: float
    score: float


@dataclass
class Position:
    """The current position in training; `seconds` is the training time so far, including resumed sessions."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    start_seconds: float = 0.0  # training time of the run of --start-from
    best_val: tuple[float, float] | None = None  # see `psdenets.tasks.Task.rank`
    best_epoch: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def place(self) -> str:
        """A name made of the epochs and batches done, which sorts by time."""
        return _place(self.epoch, self.batch)

    @property
    def best_place(self) -> str | None:
        """The name of the place after the best epoch so far."""
        return None if self.best_epoch is None else _place(self.best_epoch, 0)


def _place(epoch: int, batch: int) -> str:
    return f"epoch-{epoch:05d}-batch-{batch:06d}"


class Trainer:
    """A model in training.

    Args:
        config: the config of the run.
        splits: training, validation and test images.
        device: the device to train on.
        build: (config, spec) -> the model to train; by default the one that the system builds.
    """

    _order: Tensor
    _probs: list[Tensor]
    _labels: list[Tensor]
    _sums: dict[str, float]

    def __init__(self, config: Config, splits: Splits, device: torch.device, build: Build | None = None) -> None:
        if torch.get_default_dtype() != torch.float32:
            raise BadInput(f"expected torch's default dtype to be torch.float32, got {torch.get_default_dtype()}")
        self.config, self.options, self.splits, self.device = config, config.training, splits, device
        n_train = len(splits.train)
        self.model: ImageClassifier = (build or SYSTEMS[config.model].build)(config, splits.spec).to(device)
        self._flow: FlowOptions | None = config.system.flow
        self._check_noise()
        adapted = max(_FEWEST, min(_ADAPTED, _ADAPTED * 32**2 // (splits.spec.height * splits.spec.width)))
        self.model.adapt(to_unit(splits.train.pixels[:adapted].to(device)))
        self.averaged = copy.deepcopy(self.model).requires_grad_(False) if self.options.ema else None
        self.best: dict[str, Tensor] = {}
        self.losses = TrainingStep(
            self.model,
            self.model.likelihood,
            n_train,
            self.options.samples,
            _piece(self.model, config),
            self.options.objective,
            self._class_weights(),
        )
        self.optimizer = _adam(self.model, self.options)
        self._diagonal = [module for module in self.model.modules() if isinstance(module, DiagonalDrift)]
        self.at = Position()
        self.started: int | None = None  # number of weights that came from --start-from
        self.changes: list[str] = []  # what the last step was the first one with: a finer grid, noise
        self.kl_weight: float = config.system.kl_weight or 0.0
        self.batch_size = min(self.options.batch_size, n_train)  # only a folder of pictures may have fewer
        self.batches = n_train // self.batch_size
        self.steps = self.batches * self.options.epochs
        self._halves = torch.rand(n_train, generator=generator(config.seed, "halves")) < 0.5
        process = config.system.process
        self._noisy_from = 0 if process is None else round(self.steps * process.noise_start)  # first noisy step
        self._set_steps(self.solver_steps)
        self._set_quiet(self.quiet)
        self._start_epoch()

    @property
    def quiet(self) -> bool:
        """Whether the last training step, or the first one at the start, had no noise yet, see --noise-start."""
        return max(0, self.at.step - 1) < self._noisy_from

    @property
    def evaluated(self) -> ImageClassifier:
        """The model to evaluate: the one with averaged weights, if weights are averaged."""
        return self.model if self.averaged is None else self.averaged

    @property
    def solver_steps(self) -> int:
        """Solver steps per block in the last training step; in the first one at the start, 1 if there are no blocks."""
        return 1 if self._flow is None else self._flow.steps_at(max(0, self.at.step - 1) / self.steps)

    @property
    def solver_steps_left(self) -> float:
        """Solver steps per block in the rest of training, to estimate its time."""
        if self._flow is None:
            return self.steps - self.at.step
        ends, done = (*self._flow.starts[1:], 1.0), self.at.step / self.steps
        parts = zip(self._flow.counts, self._flow.starts, ends, strict=True)
        return self.steps * sum(n * max(0.0, end - max(start, done)) for n, start, end in parts)

    def step(self) -> StepReport:
        """One step of Adam on the next batch."""
        started = time.perf_counter()
        options, at = self.options, self.at
        self.changes = self._changed()
        x, labels = self._batch()
        share = rate(options.schedule, at.step / self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = group["share"] * options.lr * share
        quiet = at.step < self._noisy_from
        kappa = 0.0 if quiet else kappa_at(at.step / self.batches, self.kl_weight, options.kappa_warmup)
        try:
            self.optimizer.zero_grad()
            losses: Losses = self.losses(x, labels, generator(self.config.seed, "noise", at.step), kappa)
            self._descend(losses.loss)
        except (NonFiniteState, RuntimeError) as error:
            if isinstance(error, NonFiniteState) or "non-finite" in str(error):
                raise Diverged(f"epoch {at.epoch + 1}, batch {at.batch + 1}: {error}") from None
            raise
        self._average()
        report = self._note(losses, labels)
        at.batch += 1
        at.step += 1
        at.seconds += time.perf_counter() - started
        return report

    def finish_epoch(self, after_batch: Callable[[], None]) -> dict[str, Any]:
        """Evaluate after the last batch of an epoch, record the metrics, and move to the next epoch.

        The test set is evaluated only for the curves, and only with `--epoch-test`; the weights to keep are selected on
        the validation set.
        """
        started = time.perf_counter()
        seed, samples, at = self.config.seed, self.options.epoch_samples, self.at
        parts = {"val": self.splits.val} | ({"test": self.splits.test} if self.options.epoch_test else {})
        held_out = {
            part: self.predict(images, samples, generator(seed, part, at.epoch), after_batch).metrics()
            for part, images in parts.items()
        }
        rank = task_of(held_out["val"]).rank(held_out["val"])
        if at.best_val is None or rank > at.best_val:
            at.best_val, at.best_epoch = rank, at.epoch + 1
            self.best = {name: tensor.clone() for name, tensor in self.evaluated.state_dict().items()}
        at.seconds += time.perf_counter() - started
        record = {
            "epoch": at.epoch + 1,
            "step": at.step,
            "seconds": round(at.seconds, 3),
            "train": self._train_metrics(),
            **held_out,
        }
        at.history.append(record)
        at.epoch, at.batch = at.epoch + 1, 0
        self._start_epoch()
        return record

    def predict(
        self, images: Images, samples: int, g: torch.Generator, after_batch: Callable[[], None] = lambda: None
    ) -> Predictions:
        """Predictions of the evaluated model; layers that normalise use statistics that do not depend on `images`."""
        self.evaluated.eval()
        try:
            return predict(self.evaluated, images, samples, g, after_batch=after_batch)
        except NonFiniteState as error:
            raise Diverged(f"the evaluation after epoch {self.at.epoch + 1}: {error}") from None
        finally:
            self.evaluated.train()

    def chosen(self) -> dict[str, Tensor]:
        """The weights to keep: the last ones, or the best on the validation set."""
        return self.best if self.options.select == "best" and self.best else self.evaluated.state_dict()

    def finished(self) -> ImageClassifier:
        """A classifier with the weights to keep, ready to predict."""
        model = self.evaluated
        model.load_state_dict(self._complete(self.chosen()))
        if self._flow is not None:
            self._set_steps(self._flow.finest)
        self._set_quiet(False)
        return model.eval().requires_grad_(False)

    def snapshot(self) -> Snapshot:
        """Everything needed to resume exactly."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        if self.averaged is not None:
            tensors |= {f"ema.{name}": tensor for name, tensor in self.averaged.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for name, p in self.model.named_parameters():
            tensors |= {f"adam.{name}.{key}": value.clone() for key, value in self.optimizer.state.get(p, {}).items()}
        if self.at.batch:
            tensors["epoch.probs"] = torch.cat(self._probs, dim=1)
            tensors["epoch.labels"] = torch.cat(self._labels)
        values = {"position": vars(self.at) | {"history": list(self.at.history)}, "sums": dict(self._sums)}
        return Snapshot(tensors, values)

    def start(self, start: Start | None) -> None:
        """Take over the weights of another run, if one is given."""
        if start is None:
            return
        found = copied(start, self.model.state_dict())
        self.model.load_state_dict(found, strict=False)
        if self.averaged is not None:
            self.averaged.load_state_dict(found, strict=False)
        self.at.start_seconds = start.seconds
        self.started = sum(p.numel() for name, p in self.model.named_parameters() if name in found)

    def check(self, values: dict[str, Any], tensors: TensorFile) -> None:
        """Raise `BadInput` unless a checkpoint has the values and shapes that `restore` needs."""
        check_values(values, self.batches)
        at, size = values["position"], self.options.batch_size
        if tensors.path.parent.name != _place(at["epoch"], at["batch"]):
            raise BadInput(f"expected the position of its name, got epoch {at['epoch']}, batch {at['batch']}")
        check_tensors(tensors, at, self.model, self.averaged is not None, at["batch"] * size)

    def restore(self, snapshot: Snapshot) -> None:
        """The inverse of `snapshot`."""
        self.model.load_state_dict(self._complete(snapshot.part("model")))
        if self.averaged is not None:
            self.averaged.load_state_dict(self._complete(snapshot.part("ema")))
        self.best = snapshot.part("best")
        position = dict(snapshot.values["position"])
        best = position.pop("best_val")
        self.at = Position(**position, best_val=None if best is None else (best[0], best[1]))
        self._restore_adam(snapshot.part("adam"))
        self._set_steps(self.solver_steps)
        self._set_quiet(self.quiet)
        self._start_epoch()
        if self.at.batch:
            probs = snapshot.tensors["epoch.probs"]
            self._probs = [probs[None] if probs.ndim == 2 else probs]  # earlier versions stored no axis of samples
            self._labels = [snapshot.tensors["epoch.labels"]]
            self._sums = dict(snapshot.values["sums"])

    def _restore_adam(self, adam: dict[str, Tensor]) -> None:
        """Adam's moments, in the memory layout of their parameters: the fused Adam reads both as flat memory."""
        for name, p in self.model.named_parameters():
            if f"{name}.step" in adam:
                moments = {key: torch.empty_like(p).copy_(adam[f"{name}.{key}"]) for key in ("exp_avg", "exp_avg_sq")}
                self.optimizer.state[p] = {"step": adam[f"{name}.step"].to(p.device), **moments}

    def _complete(self, state: dict[str, Tensor]) -> dict[str, Tensor]:
        """The state of a model, also from a checkpoint that was written before `--tune-sigma`."""
        return {"sigma_factor": torch.ones(()), **state} if isinstance(self.model, Classifier) else state

    def _class_weights(self) -> Tensor | None:
        """The weights of `--balance`, if it is given."""
        if not self.options.balance:
            return None
        if self.splits.spec.target is not None:
            raise BadInput(f"expected --balance with classes to predict, got the numbers of {self.config.dataset}")
        counts = class_counts(self.splits.train, self.splits.spec)
        if min(counts) == 0:
            raise BadInput("expected training images of every class with --balance, got a class without any")
        return class_weights(counts).to(self.device)

    def _check_noise(self) -> None:
        """Raise `BadInput` if predictions would not depend on the noise on one of the grids."""
        if self._flow is not None and isinstance(self.model, Classifier):
            for steps in self._flow.counts:
                _set_steps(self.model, steps)
                require_seen_noise(self.model)

    def _changed(self) -> list[str]:
        """Go to the next grid, and switch the noise on, if it is time; earlier epochs cannot be the best one then."""
        changes = []
        steps = 1 if self._flow is None else self._flow.steps_at(self.at.step / self.steps)
        if steps != self.solver_steps:
            self._set_steps(steps)
            changes.append(f"refined to {steps} steps per block")
        if self.at.step == self._noisy_from > 0:
            self._set_quiet(False)
            changes.append("noise switched on")
        if changes:
            self.at.best_val = None
        return changes

    def _set_steps(self, steps: int) -> None:
        for model in filter(None, (self.model, self.averaged)):
            _set_steps(model, steps)

    def _set_quiet(self, quiet: bool) -> None:
        for model in filter(None, (self.model, self.averaged)):
            for block in model.deep_blocks if isinstance(model, Classifier) else ():
                block.set_quiet(quiet)

    def _batch(self) -> tuple[Tensor, Tensor]:
        seed, at = self.config.seed, self.at
        size = self.batch_size
        chosen = self._order[at.batch * size : (at.batch + 1) * size]
        images = self.splits.train
        turn = self._halves[chosen] ^ bool(at.epoch % 2)
        pixels = augmented(images.pixels[chosen], self.options.augment, generator(seed, "augment", at.step), turn)
        return to_unit(pixels.to(self.device)), images.labels[chosen].to(self.device)

    def _descend(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        most = math.inf if self.options.clip is None else self.options.clip
        nn.utils.clip_grad_norm_(self.model.parameters(), most, error_if_nonfinite=True)
        self.optimizer.step()
        for drift in self._diagonal:
            drift.project_()

    @torch.no_grad()
    def _average(self) -> None:
        """Update the EMA with decay min(ema, (1 + k) / (10 + k)), which quickly forgets the first steps."""
        if self.averaged is None:
            return
        k = self.at.step
        decay = min(self.options.ema, (1 + k) / (10 + k))
        for mean, p in zip(self.averaged.parameters(), self.model.parameters(), strict=True):
            mean.lerp_(p, 1 - decay)
        for kept, now in zip(self.averaged.buffers(), self.model.buffers(), strict=True):
            kept.copy_(now)

    def _start_epoch(self) -> None:
        self._order = torch.randperm(
            len(self.splits.train), generator=generator(self.config.seed, "order", self.at.epoch)
        )
        self._probs, self._labels, self._sums = [], [], {"loss": 0.0, "kl": 0.0}

    def _note(self, losses: Losses, labels: Tensor) -> StepReport:
        probs, labels = self.model.likelihood.predictive(losses.logits), labels.cpu()
        if self.splits.spec.target is None:
            probs = probs.mean(0, keepdim=True)
            score = (probs[0].argmax(-1) == labels).double().mean().item()
        else:
            score = (probs[..., 0].mean(0) - labels).square().mean().sqrt().item()
        self._probs.append(probs)
        self._labels.append(labels)
        loss, nll, kl = losses.loss.item(), losses.nll.item(), (losses.kl + losses.head_kl).item()
        report = StepReport(loss, nll, kl, score)
        self._sums["loss"] += report.loss
        self._sums["kl"] += report.kl
        return report

    def _train_metrics(self) -> dict[str, float]:
        """Metrics of the predictions made while training, each batch before its step; `loss` is the mean objective."""
        probs, labels = torch.cat(self._probs, dim=1).numpy(), torch.cat(self._labels).numpy()
        predictions = Predictions(probs, labels, self._sums["kl"] / self.at.batch, self.model.likelihood)
        return {"loss": self._sums["loss"] / self.at.batch, **predictions.metrics()}


def _set_steps(model: ImageClassifier, steps: int) -> None:
    """Integrate all blocks of a model in this many steps from now on."""
    for module in model.modules():
        if isinstance(module, DeepBlock | ODENet):
            module.set_steps(steps)


def _piece(model: ImageClassifier, config: Config) -> int | None:
    """Images per micro-batch; None for whole batches."""
    options = config.training
    if options.piece is not None or not isinstance(model, Classifier) or config.system.features.learned:
        return options.piece
    try:
        return size_for(options.batch_size, kept_by_an_image(config, model.spec))
    except NonFiniteState:  # the first step will report it
        return None


def _adam(model: nn.Module, options: TrainingOptions) -> torch.optim.Adam:
    """Adam, with a separate learning rate for the drifts f_q, and weight decay for neither these nor likelihoods."""
    processes = [module for module in model.modules() if isinstance(module, WeightProcess)]
    drifts = {p for process in processes if isinstance(process.drift, nn.Module) for p in process.drift.parameters()}
    decay = {"weight_decay": options.weight_decay, "decoupled_weight_decay": True} if options.weight_decay else {}
    scales = {p for module in model.modules() if isinstance(module, LocationScale) for p in module.parameters()}
    groups = [
        {"params": [p for p in model.parameters() if p not in drifts | scales], "share": 1.0, **decay},
        {"params": [p for p in model.parameters() if p in scales], "share": 1.0},
        {"params": [p for p in model.parameters() if p in drifts], "share": options.drift_lr},
    ]
    return torch.optim.Adam([group for group in groups if group["params"]], lr=options.lr, fused=True)
