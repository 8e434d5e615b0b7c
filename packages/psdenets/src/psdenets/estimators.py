"""Estimators of scikit-learn: `PSDEClassifier` and `PSDERegressor`, for tables of numbers and, with classes, images.

    from psdenets import PSDERegressor
    model = PSDERegressor(cut="full", epochs=100).fit(X, y)
    mean, std = model.predict(X_new, return_std=True)

They fit into pipelines, grid searches and cross-validation. Parameters that are None have the defaults of the data set,
as in `python -m psdenets.train`, and `options` sets any other option by name. Nothing is written to disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from psdenets.config import Config
from psdenets.data.arrays import pool_from
from psdenets.data.images import to_unit
from psdenets.data.tables import rows_of
from psdenets.models.regression import LocationScale
from psdenets.seeds import generator
from psdenets.training.in_memory import trained

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from psdenets.models.base import ImageClassifier

_LEAST_ROWS = 4  # training batches of two rows and at least one for validation
_BATCH = 500


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """The parameters and the training that both estimators share."""

    model_: ImageClassifier
    history_: list[dict[str, Any]]
    seed_: int

    def __init__(
        self,
        *,
        cut: str = "vertical",
        order: str | None = None,
        ratio: float | None = None,
        share: float | None = None,
        sigma: float | None = None,
        kappa: float | None = None,
        width: int | None = None,
        steps: int | str | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        samples: int | None = None,
        test_samples: int | None = None,
        options: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.cut, self.order, self.ratio, self.share = cut, order, ratio, share
        self.sigma, self.kappa, self.width, self.steps = sigma, kappa, width, steps
        self.epochs, self.batch_size, self.lr = epochs, batch_size, lr
        self.samples, self.test_samples = samples, test_samples
        self.options, self.random_state = options, random_state

    def _config(self, dataset: str) -> Config:
        """The options of training: those parameters that are not None."""
        own = {name: value for name, value in self.get_params(deep=False).items() if value is not None}
        for name in ("options", "random_state"):
            own.pop(name, None)
        return Config(dataset=dataset, **{**own, "seed": self.seed_, **(self.options or {})})

    def _fit(self, X: NDArray[Any], y: NDArray[Any]) -> None:
        if len(X) < _LEAST_ROWS:
            raise ValueError(f"expected at least {_LEAST_ROWS} samples, got n_samples = {len(X)}")
        pool = pool_from((X, y))
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.history_ = []
        self.model_ = trained(self._config(pool.name), pool, self.history_)
        if self.model_.spec.columns:
            self.model_.double()  # so a prediction does not depend on the other rows, not even by rounding

    def _predictive(self, X: ArrayLike) -> NDArray[np.float64]:
        """Parameters of the predictive distribution of each weight sample, (S, N, ...)."""
        check_is_fitted(self)
        found = validate_data(self, X, reset=False, **_checks(self.model_))
        if self.model_.spec.columns:
            x = rows_of(found, "X", self.model_.spec.channels).double()
        else:
            x = to_unit(pool_from((found, np.arange(len(found)) % 2)).train.pixels[:])
        samples = self.model_.config.system.final_samples
        batches = torch.split(x, _BATCH)
        predictive, _ = self.model_.predict_batches(batches, samples, generator(self.seed_, "predict"))
        return cast("NDArray[np.float64]", predictive.numpy())


def _checks(model: ImageClassifier | None, *, images: bool = False) -> dict[str, Any]:
    """What scikit-learn has to check: a table of numbers, or also images."""
    nd = images if model is None else not model.spec.columns
    return {"ensure_2d": not nd, "allow_nd": nd, "dtype": None if nd else "numeric"}


class PSDEClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """A partially stochastic, infinitely deep classifier of the rows of a table, or of images.

    Images are 8-bit arrays (N, H, W), (N, H, W, C) or (N, C, H, W), or floating-point ones in [0, 1].

    Args:
        cut: which weights are noisy, and when: "none", "full", "vertical", "horizontal" or "both".
        order, ratio, share, sigma, kappa, width, steps, epochs, batch_size, lr, samples, test_samples: as the flags of
            `python -m psdenets.train`; None is their default.
        options: further options by name, e.g. {"drift_family": "diagonal"}.
        random_state: seed of weights, data order and noise.

    Attributes:
        classes_: the labels, sorted.
        model_: the trained network.
        history_: metrics of every epoch.
    """

    classes_: NDArray[Any]

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on rows or images X and labels y."""
        images = len(getattr(X, "shape", ())) > 2
        X, y = validate_data(self, X, y, **_checks(None, images=images))
        check_classification_targets(y)
        self.classes_, indices = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"expected at least two classes, got one class: {self.classes_[0]}")
        self._fit(cast("NDArray[Any]", X), indices)
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities (N, classes), averaged over weight samples; columns are in the order of `classes_`."""
        return cast("NDArray[np.float64]", self._predictive(X).mean(0))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable label of each row or image, (N,)."""
        best = self.predict_proba(X).argmax(1)
        return cast("NDArray[Any]", self.classes_[best])


class PSDERegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """A partially stochastic, infinitely deep network that predicts a number from the rows of a table.

    Args:
        cut: which weights are noisy, and when: "none", "full", "vertical", "horizontal" or "both".
        order, ratio, share, sigma, kappa, width, steps, epochs, batch_size, lr, samples, test_samples: as the flags of
            `python -m psdenets.train`; None is their default.
        options: further options by name, e.g. {"likelihood": "student-t", "spread": "predicted"}.
        random_state: seed of weights, data order and noise.

    Attributes:
        model_: the trained network.
        history_: metrics of every epoch.
    """

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on rows X and numbers y."""
        X, y = validate_data(self, X, y, y_numeric=True, **_checks(None))
        self._fit(cast("NDArray[Any]", X), np.asarray(y, np.float64))
        return self

    def predict(
        self,
        X: ArrayLike,
        return_std: bool = False,
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The predictive mean of each row, (N,), and with `return_std` its standard deviation, noise included."""
        found = self._predictive(X)
        mean = found[..., 0].mean(0)
        if not return_std:
            return cast("NDArray[np.float64]", mean)
        noise = (self._law().law.std() * found[..., 1]) ** 2
        return mean, np.sqrt(found[..., 0].var(0) + noise.mean(0))

    def predict_mixture(self, X: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Location and scale of each weight sample, (S, N) each: the mixture that is the predictive distribution."""
        found = self._predictive(X)
        return found[..., 0], found[..., 1]

    def predict_interval(self, X: ArrayLike, level: float = 0.9) -> NDArray[np.float64]:
        """Ends of the central interval of this level, (2, N)."""
        found = self._predictive(X)
        return self._law().interval(found, level)

    def _law(self) -> LocationScale:
        return cast("LocationScale", self.model_.likelihood)
