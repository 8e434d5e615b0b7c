"""What the weight noise does: whether weight samples differ, and the scores of one sample and without noise.

epistemic_share   mean mutual information / mean predictive entropy
disagreement      share of single predictions whose class is not that of the averaged probabilities
*_one_sample      the score of each weight sample, averaged over samples
*_no_noise        the score with the noise switched off: the weights follow f_q, or are the means of their Gaussians
"""

import numpy as np
import torch

from bnneval import disagreement, epistemic_share
from psdenets.config import Config
from psdenets.data import Images
from psdenets.models.base import ImageClassifier
from psdenets.runs.predictions import Batches, Predictions

_SCORES = ("nll", "accuracy")
_AGREE = 0.01  # weight samples that explain less of the entropy than this agree


@torch.no_grad()
def noise_metrics(model: ImageClassifier, images: Images, predictions: Predictions) -> dict[str, float]:
    """The quantities above, by name; those without noise only if the system has such weights."""
    score = predictions.likelihood.metrics
    each = [score(one[None], predictions.labels) for one in predictions.probs]
    found = {"epistemic_share": epistemic_share(predictions.probs), "disagreement": disagreement(predictions.probs)}
    found |= {f"{name}_one_sample": float(np.mean([scores[name] for scores in each])) for name in _SCORES}
    weights = model.mean_weights()
    if weights is None:
        return found
    batches = Batches(images.pixels, device=model.mean.device)
    probs = torch.cat([model.over_views(model.shared_views(x, weights), weights) for x in batches], dim=1)
    scores = score(probs.numpy(), predictions.labels)
    return found | {f"{name}_no_noise": scores[name] for name in _SCORES}


def samples_agree(config: Config, share: float, samples: int) -> str:
    """What to change, in one line, if the weight samples of a network with a noisy cut agree; otherwise empty."""
    cut = config.system.cut
    if cut is None or cut.noisy_share == 0 or samples < 2 or share >= _AGREE:
        return ""
    wider = f" or widen the noise with {cut.widened_by}" if cut.widened_by else ""
    absolute = config.system.process.noise_scale == "absolute"
    relative = "; --noise-scale effect makes it relative to each layer and to the cut" if absolute else ""
    explained = f"they explain {100 * share:.2g} % of the entropy"
    return f"the weight samples agree ({explained}): raise --sigma{wider}{relative}"
