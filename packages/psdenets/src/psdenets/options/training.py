"""Options of gradient descent, and the number of weight samples in training and evaluation."""

from typing import Literal

from psdenets.options.fields import FROM_0_BELOW_1, Group, above, at_least, option
from psdenets.registries import LIKELIHOODS, OF_NUMBERS


class PredictionOptions(Group, group="training"):
    """The likelihood, and the number of weight samples averaged in the final evaluation."""

    likelihood: str = option(
        "categorical",
        "likelihood of the targets: a name, or module:attribute in your own file, which is executed",
        registry=LIKELIHOODS,
    )
    spread: Literal["learned", "predicted"] = option(
        "learned", "scale of the likelihood of a number: one trained parameter, or predicted for every row"
    )
    test_samples: int = option(16, "weight samples for the final evaluation", at_least(1))
    mirror: bool = option(False, "average predictions over an image and its mirror image, at twice the cost")

    def idle(self) -> dict[str, str]:
        if self.likelihood in OF_NUMBERS:
            return {}
        return {"spread": f"expected --spread with a likelihood of numbers, got --likelihood {self.likelihood}"}


class TrainingOptions(Group, group="training"):
    """Options of training by Adam."""

    epochs: int = option(30, "passes over the training images", at_least(1))
    batch_size: int = option(64, "images per training step", at_least(1))
    piece: int | None = option(
        None,
        "micro-batch size: images per forward/backward pass; the gradient is unchanged (default: what fits in 2 GB)",
        at_least(1),
    )
    samples: int = option(1, "weight samples per training step; losses are averaged", at_least(1))
    objective: Literal["elbo", "mixture"] = option(
        "elbo", "NLL to minimise: the mean over --samples (the ELBO's), or that of their averaged probabilities"
    )
    epoch_samples: int = option(1, "weight samples for the evaluation after each epoch", at_least(1))
    epoch_test: bool = option(True, "evaluate the test images after each epoch, for the curves; nothing depends on it")
    lr: float = option(0.01, "learning rate of Adam; the peak value if there is a schedule", above(0))
    drift_lr: float = option(
        1.0, "learning rate of f_q relative to --lr; f_q reads all weights at once and needs less", above(0)
    )
    weight_decay: float = option(
        0.0, "decoupled weight decay of all weights but those of f_q and of the likelihood, as in AdamW", at_least(0)
    )
    schedule: Literal["constant", "one-cycle", "cosine"] = option("one-cycle", "learning-rate schedule")
    clip: float | None = option(1.0, "largest norm of the gradient; null for no clipping", above(0))
    ema: float = option(
        0.0, "decay of the averaged weights that are evaluated; 0 evaluates the weights themselves", FROM_0_BELOW_1
    )
    kappa: float | None = option(
        None, "weight of int |u|^2; 1/2 is the exact ELBO (default: --kappa-base / noisy share)", at_least(0)
    )
    kappa_base: float = option(1e-3, "kappa of a fully stochastic network", at_least(0))
    kappa_warmup: float = option(0.0, "epochs over which kappa rises from 0", at_least(0))
    select: Literal["last", "best"] = option("last", "keep the last weights, or the best by validation accuracy")
    augment: Literal["none", "jitter", "crop-flip", "shift-flip"] = option(
        "jitter", "random changes to training images"
    )
    balance: bool = option(
        False, "weight the loss of an image by n / (C n_c), its class being one of C with n_c of n training images"
    )
    log: Literal["none", "csv", "tensorboard"] = option("none", "write the metrics to log.csv or tensorboard/ as well")
    start_from: str | None = option(None, "start with the weights of this finished run, as far as they fit")
    max_seconds: float | None = option(None, "stop training after this time, even if --epochs is not reached", above(0))
    max_seconds_of: str | None = option(None, "stop training after the time that this finished run took")
    checkpoint_seconds: float = option(
        30.0, "time between checkpoints inside an epoch; 0 writes one after every step", at_least(0)
    )

    def kl_weight(self, noisy_share: float) -> float:
        """kappa from the flag, or by default base / noisy share as in the paper's Table 5."""
        if self.kappa is not None:
            return self.kappa
        return self.kappa_base / noisy_share if noisy_share > 0 else self.kappa_base

    def idle(self) -> dict[str, str]:
        found = {}
        if self.max_seconds_of is not None:
            found["max_seconds"] = "expected either --max-seconds or --max-seconds-of, got both"
        if self.samples == 1 and self.objective == "mixture":
            found["objective"] = "expected --objective mixture with --samples 2 or more, got --samples 1"
        return found
