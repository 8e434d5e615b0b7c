"""The training loop: a state that can be stopped, saved and taken up again after any step, to the same bits.

Data order, augmentation and noise are functions of (seed, epoch or step), see `psdenets.seeds`; the learning rate and
kappa are functions of the step. So weights, averages, Adam's moments, the position and the epoch's own predictions are
all there is to save.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from psdenets.config import Config
from psdenets.data import Images, Splits
from psdenets.data.augment import augmented
from psdenets.data.images import to_unit
from psdenets.data.spec import ImageSpec
from psdenets.models.base import ImageClassifier
from psdenets.models.psde import Classifier
from psdenets.models.registry import trainable_of
from psdenets.runs.predictions import Predictions, predict
from psdenets.seeds import generator
from psdenets.systems import PROCESSES
from psdenets.training.checkpoint import Snapshot
from psdenets.training.micro_batches import in_pieces, kept_by_an_image, size_for
from psdenets.training.objective import kappa_at, mean_nll, with_kl
from psdenets.training.schedules import rate
from sdeweights import NonFiniteState, WeightProcess


class Diverged(ArithmeticError):
    """Training left the finite numbers."""


class StepReport(NamedTuple):
    """What one step has to say: the objective and its parts, all of this batch."""

    loss: float
    nll: float
    kl: float
    accuracy: float


@dataclass
class Position:
    """How far training has come. ``seconds`` is training time, over all resumptions."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    best_val: tuple[float, float] | None = None  # (accuracy, -NLL)
    best_epoch: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def place(self) -> str:
        """A name that sorts by time: epochs and batches done."""
        return f"epoch-{self.epoch:05d}-batch-{self.batch:06d}"


class Trainer:
    """A model in training."""

    _order: Tensor
    _probs: list[Tensor]
    _labels: list[Tensor]
    _sums: dict[str, float]

    def __init__(self, config: Config, splits: Splits, device: torch.device) -> None:
        self.config, self.splits, self.device = config, splits, device
        self.model = trainable_of(config, splits.spec).to(device)
        self.averaged = copy.deepcopy(self.model).requires_grad_(False) if config.ema else None
        self.best: dict[str, Tensor] = {}
        self.optimizer = _adam(self.model, config)
        self.at = Position()
        self.piece = _piece(config, splits.spec)
        self.batches = len(splits.train) // config.batch_size
        self.steps = self.batches * config.epochs
        self._start_epoch()

    @property
    def evaluated(self) -> ImageClassifier:
        """The model that is evaluated: the averaged one where there is one."""
        return self.model if self.averaged is None else self.averaged

    def step(self) -> StepReport:
        """One step of Adam on the next batch."""
        started = time.perf_counter()
        config, at = self.config, self.at
        x, labels = self._batch()
        for group in self.optimizer.param_groups:
            group["lr"] = group["share"] * config.lr * rate(config.schedule, at.step / self.steps)
        kappa = kappa_at(at.step / self.batches, config.kl_weight, config.kappa_warmup)
        try:
            weights = self.model.draw(config.samples, generator(config.seed, "noise", at.step))
            self.optimizer.zero_grad()
            logits, nll = self._logits_and_nll(x, labels, weights)
            loss = with_kl(nll, weights.kl, self.model.head_kl(), kappa, len(self.splits.train))
            self._descend(loss.loss)
        except (NonFiniteState, RuntimeError) as error:
            if isinstance(error, NonFiniteState) or "non-finite" in str(error):
                raise Diverged(f"epoch {at.epoch + 1}, batch {at.batch + 1}: {error}") from None
            raise
        self._average()
        report = self._note(loss.loss, loss.nll, loss.kl + loss.head_kl, logits, labels)
        at.batch += 1
        at.step += 1
        at.seconds += time.perf_counter() - started
        return report

    def finish_epoch(self, after_batch: Callable[[], None]) -> dict[str, Any]:
        """Evaluate after the last batch of an epoch, note the numbers, and go to the next epoch.

        The test set is evaluated for the curves alone: what is kept is chosen by the validation set.
        """
        started = time.perf_counter()
        config, at = self.config, self.at
        val, test = (
            self.predict(images, config.epoch_samples, generator(config.seed, part, at.epoch), after_batch).metrics()
            for part, images in (("val", self.splits.val), ("test", self.splits.test))
        )
        better = at.best_val is None or (val["accuracy"], -val["nll"]) > at.best_val
        if better:
            at.best_val, at.best_epoch = (val["accuracy"], -val["nll"]), at.epoch + 1
            self.best = {name: tensor.clone() for name, tensor in self.evaluated.state_dict().items()}
        at.seconds += time.perf_counter() - started
        record = {
            "epoch": at.epoch + 1,
            "step": at.step,
            "seconds": round(at.seconds, 3),
            "train": self._train_metrics(),
            "val": val,
            "test": test,
        }
        at.history.append(record)
        at.epoch, at.batch = at.epoch + 1, 0
        self._start_epoch()
        return record

    def predict(
        self, images: Images, samples: int, g: torch.Generator, after_batch: Callable[[], None] = lambda: None
    ) -> Predictions:
        """Predictions of the evaluated model, with the running averages of its normalisation layers."""
        self.evaluated.eval()
        try:
            return predict(self.evaluated, images, samples, g, after_batch=after_batch)
        except NonFiniteState as error:
            raise Diverged(f"the evaluation after epoch {self.at.epoch + 1}: {error}") from None
        finally:
            self.evaluated.train()

    def chosen(self) -> dict[str, Tensor]:
        """The weights to keep: the last, or those of the best validation accuracy."""
        return self.best if self.config.select == "best" and self.best else self.evaluated.state_dict()

    def snapshot(self) -> Snapshot:
        """Everything that an exact resumption needs."""
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        if self.averaged is not None:
            tensors |= {f"ema.{name}": tensor for name, tensor in self.averaged.state_dict().items()}
        tensors |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for name, p in self.model.named_parameters():
            tensors |= {f"adam.{name}.{key}": value.clone() for key, value in self.optimizer.state.get(p, {}).items()}
        if self.at.batch:
            tensors["epoch.probs"] = torch.cat(self._probs)
            tensors["epoch.labels"] = torch.cat(self._labels)
        values = {"position": vars(self.at) | {"history": list(self.at.history)}, "sums": dict(self._sums)}
        return Snapshot(tensors, values)

    def restore(self, snapshot: Snapshot) -> None:
        """The inverse of `snapshot`."""
        self.model.load_state_dict(snapshot.part("model"))
        if self.averaged is not None:
            self.averaged.load_state_dict(snapshot.part("ema"))
        self.best = snapshot.part("best")
        position = dict(snapshot.values["position"])
        best = position.pop("best_val")
        self.at = Position(**position, best_val=None if best is None else (best[0], best[1]))
        adam = snapshot.part("adam")
        for name, p in self.model.named_parameters():
            if f"{name}.step" in adam:
                self.optimizer.state[p] = {
                    key: adam[f"{name}.{key}"].to(p.device) for key in ("step", "exp_avg", "exp_avg_sq")
                }
        self._start_epoch()
        if self.at.batch:
            self._probs, self._labels = [snapshot.tensors["epoch.probs"]], [snapshot.tensors["epoch.labels"]]
            self._sums = dict(snapshot.values["sums"])

    def _batch(self) -> tuple[Tensor, Tensor]:
        config, at = self.config, self.at
        size = config.batch_size
        images = self.splits.train.take(self._order[at.batch * size : (at.batch + 1) * size])
        pixels = augmented(images.pixels, config.augment, generator(config.seed, "augment", at.step))
        return to_unit(pixels.to(self.device)), images.labels.to(self.device)

    def _logits_and_nll(self, x: Tensor, labels: Tensor, weights: Any) -> tuple[Tensor, Tensor]:
        if self.piece < len(x) and isinstance(self.model, Classifier):
            return in_pieces(self.model, x, labels, weights, self.piece)
        logits = self.model.logits(x, weights)
        return logits, mean_nll(logits, labels)

    def _descend(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        most = math.inf if self.config.clip is None else self.config.clip
        nn.utils.clip_grad_norm_(self.model.parameters(), most, error_if_nonfinite=True)
        self.optimizer.step()

    @torch.no_grad()
    def _average(self) -> None:
        """EMA with decay min(ema, (1 + k) / (10 + k)): the first steps, far from the end, are soon forgotten."""
        if self.averaged is None:
            return
        k = self.at.step
        decay = min(self.config.ema, (1 + k) / (10 + k))
        for mean, p in zip(self.averaged.parameters(), self.model.parameters(), strict=True):
            mean.lerp_(p, 1 - decay)
        for kept, now in zip(self.averaged.buffers(), self.model.buffers(), strict=True):
            kept.copy_(now)

    def _start_epoch(self) -> None:
        self._order = torch.randperm(
            len(self.splits.train), generator=generator(self.config.seed, "order", self.at.epoch)
        )
        self._probs, self._labels, self._sums = [], [], {"loss": 0.0, "kl": 0.0}

    def _note(self, loss: Tensor, nll: Tensor, kl: Tensor, logits: Tensor, labels: Tensor) -> StepReport:
        probs, labels = self.model.likelihood.predictive(logits).mean(0), labels.cpu()
        self._probs.append(probs)
        self._labels.append(labels)
        report = StepReport(loss.item(), nll.item(), kl.item(), (probs.argmax(-1) == labels).double().mean().item())
        self._sums["loss"] += report.loss
        self._sums["kl"] += report.kl
        return report

    def _train_metrics(self) -> dict[str, float]:
        """Of the predictions made while training: each batch just before its step. ``loss`` is the mean objective."""
        probs, labels = torch.cat(self._probs).numpy()[None], torch.cat(self._labels).numpy()
        metrics = Predictions(np.asarray(probs), labels, self._sums["kl"] / self.at.batch).metrics()
        return {"loss": self._sums["loss"] / self.at.batch, **metrics}


def _piece(config: Config, spec: ImageSpec) -> int:
    """Images that go forth and back at once."""
    if config.piece is not None or config.model not in PROCESSES:
        return config.piece or config.batch_size
    try:
        return size_for(config.batch_size, kept_by_an_image(config, spec))
    except NonFiniteState:  # the first step will say so
        return config.batch_size


def _adam(model: nn.Module, config: Config) -> torch.optim.Adam:
    """Adam with a learning rate of its own for the drifts f_q of weight processes."""
    processes = [module for module in model.modules() if isinstance(module, WeightProcess)]
    drifts = {p for process in processes if isinstance(process.drift, nn.Module) for p in process.drift.parameters()}
    groups = [
        {"params": [p for p in model.parameters() if p not in drifts], "share": 1.0},
        {"params": [p for p in model.parameters() if p in drifts], "share": config.drift_lr},
    ]
    return torch.optim.Adam([group for group in groups if group["params"]], lr=config.lr, fused=True)
