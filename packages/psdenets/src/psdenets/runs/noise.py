"""What the weight noise does: whether weight samples differ, and the scores of one sample and without noise.

epistemic_share   mean mutual information / mean predictive entropy; for numbers, variance of the locations over weight
                  samples / (this + mean squared scale), each averaged over rows
disagreement      share of single predictions whose class is not that of the averaged probabilities; only for classes
*_one_sample      the score of each weight sample, averaged over samples
*_no_noise        the score with the noise switched off: the weights follow f_q, or are the means of their Gaussians
"""

import numpy as np
import torch
from numpy.typing import NDArray

from bnneval import disagreement, epistemic_share
from psdenets.config import Config
from psdenets.data import Images
from psdenets.models.base import ImageClassifier
from psdenets.runs.predictions import Batches, Predictions
from psdenets.tasks import task_of

_AGREE = 0.01  # weight samples that explain less of the entropy than this agree


@torch.no_grad()
def noise_metrics(model: ImageClassifier, images: Images, predictions: Predictions) -> dict[str, float]:
    """The quantities above, by name; those without noise only if the system has such weights."""
    score = predictions.likelihood.metrics
    each = [score(one[None], predictions.labels) for one in predictions.probs]
    task = task_of(each[0])
    names = ("nll", task.score.key)
    if task.classifies:
        found = {"epistemic_share": epistemic_share(predictions.probs), "disagreement": disagreement(predictions.probs)}
    else:
        found = {"epistemic_share": variance_share(predictions.probs)}
    found |= {f"{name}_one_sample": float(np.mean([scores[name] for scores in each])) for name in names}
    weights = model.mean_weights()
    if weights is None:
        return found
    batches = Batches(images.pixels, device=model.mean.device)
    probs = torch.cat([model.over_views(model.shared_views(x, weights), weights) for x in batches], dim=1)
    scores = score(probs.numpy(), predictions.labels)
    return found | {f"{name}_no_noise": scores[name] for name in names}


def variance_share(predictive: NDArray[np.float64]) -> float:
    """Share of the variance that comes from the weights, from location and scale (S, N, 2).

    Example: two weight samples predict 1 +- 3 and 9 +- 3, so 16 of 25 come from the weights.
        >>> variance_share(np.array([[[1.0, 3.0]], [[9.0, 3.0]]]))
        0.64
    """
    epistemic, aleatoric = predictive[..., 0].var(0).mean(), (predictive[..., 1] ** 2).mean()
    return float(epistemic / (epistemic + aleatoric))


def samples_agree(config: Config, share: float, samples: int) -> str:
    """What to change, in one line, if the weight samples of a network with a noisy cut agree; otherwise empty."""
    cut = config.system.cut
    if cut is None or cut.noisy_share == 0 or samples < 2 or share >= _AGREE:
        return ""
    wider = f" or widen the noise with {cut.widened_by}" if cut.widened_by else ""
    absolute = config.system.process.noise_scale == "absolute"
    relative = "; --noise-scale effect makes it relative to each layer and to the cut" if absolute else ""
    of = "entropy" if config.system.prediction.likelihood == "categorical" else "predictive uncertainty"
    explained = f"they explain {100 * share:.2g} % of the {of}"
    return f"the weight samples agree ({explained}): raise --sigma{wider}{relative}"
