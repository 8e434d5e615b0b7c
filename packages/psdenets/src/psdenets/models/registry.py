"""Build a classifier from the name of a preset or from a config."""

from psdenets.config import Config
from psdenets.data.spec import SPECS, ImageSpec
from psdenets.errors import BadInput
from psdenets.models.base import ImageClassifier
from psdenets.models.sizes import require_network_fits
from psdenets.presets import preset
from psdenets.systems import SYSTEMS


def build(what: str | Config, spec: ImageSpec | None = None) -> ImageClassifier:
    """Build an untrained classifier from a preset's name or a config; custom data sets and image folders need `spec`.

    Example:
        >>> model = build("mnist-ode-first")
        >>> logits, kl = model(torch.zeros(2, 1, 28, 28))
        >>> logits.shape, kl.ndim
        (torch.Size([2, 10]), 0)
    """
    if not isinstance(what, str | Config):
        raise BadInput(f"expected the name of a preset or a Config, got {type(what).__name__}")
    config = preset(what) if isinstance(what, str) else what
    if spec is None:
        if config.dataset not in SPECS:
            raise BadInput(f"expected a spec for --dataset {config.dataset}, whose images and classes vary, got None")
        spec = SPECS[config.dataset]
    require_network_fits(config, spec)
    classifier: ImageClassifier = SYSTEMS[config.model].build(config, spec)
    return classifier
