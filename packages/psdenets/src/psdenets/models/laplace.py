"""Laplace approximation of the last layer: a Gaussian around the trained W and b; the rest of the network is fixed.

    q(W, b) = N(trained, P^-1),     P = GGN of the summed training loss + prior precision

laplace-torch computes P, and the prior precision that maximises the marginal likelihood. The model stores the mean and
a scale L with L L^T = P^-1, so prediction only needs torch. There are two ways to predict:

    sampled   mean over (W, b) ~ q of softmax(W h + b)
    probit    softmax(m / sqrt(1 + pi v / 8)),   m, v mean and variance of each logit   (MacKay 1992)
"""

import copy
import math
import warnings
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from psdenets.config import Config
from psdenets.data import Images
from psdenets.data.images import to_unit
from psdenets.data.spec import ImageSpec
from psdenets.errors import BadInput
from psdenets.models.base import ImageClassifier
from psdenets.models.nets.resnet import ResNet, resnet_of
from psdenets.models.point import PointEstimate
from psdenets.nn.heads import HeadWeights

_PACK = 500  # images per batch


class Posterior(NamedTuple):
    """N(mean, scale scale^T) of the parameters of the last layer: W row by row, then b."""

    mean: Tensor
    scale: Tensor
    prior_precision: Tensor


class LaplaceWeights(NamedTuple):
    """Last layers of S samples, or None for the closed-form prediction."""

    head: HeadWeights | None
    kl: Tensor


@final
class LastLayerLaplace(ImageClassifier):
    """A trained ResNet with a Gaussian last layer, created by `fitted`."""

    posterior_mean: Tensor
    posterior_scale: Tensor
    prior_precision: Tensor

    def __init__(self, config: Config, spec: ImageSpec, net: ResNet) -> None:
        super().__init__(config, spec)
        self.net = net
        numbers = net.head.weight.numel() + net.head.bias.numel()
        self.register_buffer("posterior_mean", torch.zeros(numbers, dtype=torch.float64))
        self.register_buffer("posterior_scale", torch.zeros(numbers, numbers, dtype=torch.float64))
        self.register_buffer("prior_precision", torch.zeros(1, dtype=torch.float64))

    def draw(self, samples: int = 1, generator: torch.Generator | None = None) -> LaplaceWeights:
        """Sample last layers; with `--predictive probit` there is nothing to sample."""
        if self.config.system.laplace.predictive == "probit":
            return LaplaceWeights(None, self.mean.new_zeros(1))
        numbers = len(self.posterior_mean)
        at = self.posterior_mean.device
        noise = [torch.randn(numbers, generator=generator, dtype=torch.float64, device=at) for _ in range(samples)]
        return self._weights(self.posterior_mean + torch.stack(noise) @ self.posterior_scale.mT)

    def mean_weights(self) -> LaplaceWeights:
        """The trained last layer."""
        return self._weights(self.posterior_mean[None])

    def _weights(self, w: Tensor) -> LaplaceWeights:
        classes, d = self.net.head.weight.shape
        weight, bias = w[:, : classes * d].reshape(-1, classes, d), w[:, classes * d :]
        return LaplaceWeights(HeadWeights(weight, bias), self.mean.new_zeros(len(w)))

    def logits(self, x: Tensor, weights: LaplaceWeights) -> Tensor:
        h = self.net.features(self.normalised(x)).double()
        return self._probit(h)[None] if weights.head is None else weights.head.logits(h)

    def _probit(self, h: Tensor) -> Tensor:
        """m / sqrt(1 + pi v / 8), (N, classes)."""
        classes, d = self.net.head.weight.shape
        weight, bias = self.posterior_mean[: classes * d].reshape(classes, d), self.posterior_mean[classes * d :]
        rows = self.posterior_scale[: classes * d].reshape(classes, d, -1)
        deviations = torch.einsum("nd,cdk->nck", h, rows) + self.posterior_scale[classes * d :]
        v = deviations.square().sum(-1)
        return (h @ weight.mT + bias) / (1 + math.pi / 8 * v).sqrt()

    def parameter_counts(self) -> dict[str, int]:
        return {"weights": sum(p.numel() for p in self.net.parameters())}


def unfitted(config: Config, spec: ImageSpec) -> LastLayerLaplace:
    """Build `--model resnet32-laplace`, before its weights are loaded."""
    return LastLayerLaplace(config, spec, resnet_of(config, spec))


def fitted(config: Config, spec: ImageSpec, net: ResNet, images: Images) -> LastLayerLaplace:
    """Fit the Laplace approximation of a trained network's last layer on its training images."""
    model = LastLayerLaplace(config, spec, net.eval())
    posterior = last_layer_posterior(net.head, features(model, images), images.labels, config.system.laplace.hessian)
    for name, value in zip(("posterior_mean", "posterior_scale", "prior_precision"), posterior, strict=True):
        getattr(model, name).copy_(value)
    return model


def resnet_in(model: ImageClassifier) -> ResNet:
    """The ResNet inside a trained point estimate; raises TypeError for other models."""
    if not (isinstance(model, PointEstimate) and isinstance(model.net, ResNet)):
        raise TypeError(f"expected the point estimate of a ResNet, got {type(model).__name__}")
    return model.net


@torch.no_grad()
def features(model: LastLayerLaplace, images: Images) -> Tensor:
    """Inputs of the last layer for many images, float64."""
    like = model.net.head.weight
    parts = [model.net.features(model.normalised(to_unit(p).to(like))) for p in torch.split(images.pixels[:], _PACK)]
    return torch.cat(parts).double()


def last_layer_posterior(head: nn.Linear, h: Tensor, labels: Tensor, hessian: str) -> Posterior:
    """Fit q(W, b) to features (N, d) and labels (N,) with laplace-torch."""
    Laplace = laplace_torch()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(h, labels.to(h.device)), batch_size=_PACK)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its curvature libraries warn about hooks
        la = Laplace(
            copy.deepcopy(head).double().requires_grad_(True),
            "classification",
            subset_of_weights="all",
            hessian_structure=hessian,
        )
        la.fit(loader)
        la.optimize_prior_precision(method="marglik")
    return Posterior(la.mean.detach().clone(), _scale(la, hessian), la.prior_precision.detach().reshape(-1).clone())


def _scale(la: Any, hessian: str) -> Tensor:
    """L with L L^T the posterior covariance."""
    if hessian == "diag":
        return torch.diag(la.posterior_scale.detach())
    if hessian == "full":
        return torch.as_tensor(la.posterior_scale.detach()).clone()
    scale: Tensor = torch.linalg.cholesky(la.posterior_precision.to_matrix(exponent=-1).detach())
    return scale


def laplace_torch() -> Any:
    """The class `Laplace` of laplace-torch, which imports torchvision."""
    from psdenets.data.torchvision_import import import_torchvision

    import_torchvision()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its curvature libraries use deprecated functions of torch
            from laplace import Laplace
    except ImportError:
        raise BadInput(
            "expected laplace-torch for --model resnet32-laplace, but it is not installed: "
            "pip install 'psdenets[laplace]'"
        ) from None
    return Laplace
