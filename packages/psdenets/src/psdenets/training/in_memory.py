"""Train without a run directory: nothing is written, and a stopped training is lost. `psdenets.fit` keeps runs."""

import torch

from psdenets.config import Config
from psdenets.data import Pool
from psdenets.data.sets import splits_of
from psdenets.models.base import ImageClassifier
from psdenets.models.sizes import require_training_fits
from psdenets.training.loop import Trainer
from psdenets.training.session import device_of, threads_for
from psdenets.training.start_from import start_of
from psdenets.training.tune_sigma import tuned

_SMALLEST_BATCH = 2  # normalisation needs two images


def trained(config: Config, pool: Pool, history: list[dict[str, object]] | None = None) -> ImageClassifier:
    """Train a network on all images of a pool but those for validation, and return it ready to predict.

    Batches are at most as large as the training set. The metrics of every epoch are appended to `history`.
    """
    spare = pool._replace(test=pool.test or pool.train.first(1))  # nothing is evaluated on it
    n_train = len(spare.train) - max(1, round(config.val_share * len(spare.train)))
    size = max(_SMALLEST_BATCH, min(config.training.batch_size, n_train))
    config = config.replace(batch_size=size, epoch_test=False)
    splits = splits_of(spare, config)
    require_training_fits(config, splits.spec, len(splits.test))
    before = torch.get_num_threads()
    torch.set_num_threads(config.threads or threads_for(config, splits.spec))
    try:
        trainer = Trainer(config, splits, device_of(config.device))
        trainer.start(start_of(config, splits.spec))
        while trainer.at.epoch < config.training.epochs:
            while trainer.at.batch < trainer.batches:
                trainer.step()
            record = trainer.finish_epoch(lambda: None)
            if history is not None:
                history.append(record)
        model = trainer.finished()
        tuned(config, model, splits.val)
        return model
    finally:
        torch.set_num_threads(before)
