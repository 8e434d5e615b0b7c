"""Mean-field variational inference for any network:  w_k ~ N(m_k, s_k^2) independently, prior N(0, p^2).

    KL = sum_k  log(p / s_k) + (s_k^2 + m_k^2) / (2 p^2) - 1/2

During training, the output of a linear layer can be drawn instead of its weights (local reparametrisation),

    y = W x + b  ~  N(M x + m_b,  S^2 x^2 + s_b^2),     with independent noise for every image,

which gives the same distribution for each image, and gradients with smaller variance. For convolutions we draw weights:
a convolution uses the same weights at many positions, so its outputs are not independent.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn
from torch.func import functional_call

from psdenets.config import Config
from psdenets.data.spec import ImageSpec
from psdenets.models.base import ImageClassifier
from psdenets.models.nets.convnet import convnet_of
from psdenets.models.nets.odenet import HyperODENet, odenet_of
from psdenets.models.nets.resnet import resnet_of
from psdenets.nn.gaussian import gaussian_kl, normal_like


class MeanFieldWeights(NamedTuple):
    """Weights of S samples by name, and a generator for each sample if outputs are drawn instead of weights."""

    values: tuple[dict[str, Tensor], ...]
    output_noise: tuple[torch.Generator | None, ...]
    kl: Tensor


@final
class MeanField(ImageClassifier):
    """A network, normalised images -> logits, whose parameters become the means of independent Gaussians.

    Only parameters whose name is `chosen` are Gaussian; the others are deterministic.
    """

    def __init__(
        self, config: Config, spec: ImageSpec, net: nn.Module, chosen: Callable[[str], bool] = lambda _: True
    ) -> None:
        super().__init__(config, spec)
        self.options = config.system.mean_field
        self.net = net
        self.names = [name for name, _ in net.named_parameters() if chosen(name)]
        log_stds = {_key(name): torch.full_like(net.get_parameter(name), self.options.log_std) for name in self.names}
        self.log_std = nn.ParameterDict(log_stds)
        layers = {name.rpartition(".")[0] for name in self.names}
        self.linear = [name for name, layer in net.named_modules() if isinstance(layer, nn.Linear) and name in layers]

    def draw(self, samples: int = 1, generator: torch.Generator | None = None) -> MeanFieldWeights:
        local = self.training and self.options.noise == "local"
        names = [name for name in self.names if not (local and name.rpartition(".")[0] in self.linear)]
        means = dict(self.net.named_parameters())
        values, noises = [], []
        for _ in range(samples):  # one at a time, so sample i depends only on the generator and on i
            at = "cpu" if generator is None else generator.device
            seed = int(torch.randint(2**62, (), generator=generator, device=at))
            g = torch.Generator(self.mean.device).manual_seed(seed)
            values.append({n: means[n] + self.log_std[_key(n)].exp() * normal_like(means[n], g) for n in names})
            noises.append(g if local else None)
        return MeanFieldWeights(tuple(values), tuple(noises), self.kl().expand(samples))

    def mean_weights(self) -> MeanFieldWeights:
        """The means, which are the parameters of the network."""
        return MeanFieldWeights(({},), (None,), self.kl()[None])

    def logits(self, x: Tensor, weights: MeanFieldWeights) -> Tensor:
        h = self.normalised(x)
        out = []
        for values, g in zip(weights.values, weights.output_noise, strict=True):
            with self._noisy_outputs(g):
                out.append(functional_call(self.net, values, (h,)))
        return torch.stack(out)

    @contextmanager
    def _noisy_outputs(self, g: torch.Generator | None) -> Iterator[None]:
        """Context in which linear layers use mean weights and add the noise that random weights would cause."""
        layers = dict(self.net.named_modules())
        hooks = [layers[name].register_forward_hook(self._noise_of(name, g)) for name in self.linear] if g else []
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _noise_of(self, name: str, g: torch.Generator | None) -> Callable[..., Tensor]:
        def add(layer: nn.Module, inputs: tuple[Any, ...], out: Tensor) -> Tensor:  # noqa: ARG001 - torch's signature
            variance: Tensor = inputs[0].square() @ (2 * self.log_std[_key(f"{name}.weight")]).exp().mT
            if _key(f"{name}.bias") in self.log_std:
                variance = variance + (2 * self.log_std[_key(f"{name}.bias")]).exp()
            tiny = torch.finfo(out.dtype).tiny  # the square root has no derivative at 0
            return out + variance.clamp_min(tiny).sqrt() * normal_like(out, g)

        return add

    def kl(self) -> Tensor:
        """KL from posterior to prior, summed over all Gaussian weights; a scalar."""
        means = dict(self.net.named_parameters())
        parts = [gaussian_kl(means[name], self.log_std[_key(name)], self.options.prior_std) for name in self.names]
        return torch.stack(parts).sum()

    def parameter_counts(self) -> dict[str, int]:
        parts = {"weights": self.net, "log_std": self.log_std}
        return {name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()}


def _of_all_layers(net_of: Callable[[Config, ImageSpec], nn.Module], config: Config, spec: ImageSpec) -> MeanField:
    net = net_of(config, spec)
    return MeanField(config, spec, net, is_weight_or_bias_of_a_layer(net))


convnet = partial(_of_all_layers, convnet_of)  # --model mfvi
resnet = partial(_of_all_layers, resnet_of)  # --model mfvi-resnet32
odenet = partial(_of_all_layers, odenet_of)  # --model mfvi-odenet
hyper_odenet = partial(_of_all_layers, HyperODENet)  # --model mfvi-hyperodenet


def last_layer(config: Config, spec: ImageSpec) -> MeanField:
    """`--model vbll`."""
    return MeanField(config, spec, resnet_of(config, spec), is_of_the_head)


def is_weight_or_bias_of_a_layer(net: nn.Module) -> Callable[[str], bool]:
    """Select all parameters except those of normalisation layers, whose scales near 1 do not suit a prior around 0."""
    norms = (nn.BatchNorm2d, nn.GroupNorm)
    excluded = {name for name, layer in net.named_modules() if isinstance(layer, norms)}
    return lambda name: name.rpartition(".")[0] not in excluded


def is_of_the_head(name: str) -> bool:
    """Whether a parameter belongs to the last layer."""
    return name.startswith("head.")


def _key(name: str) -> str:
    """A name that `ParameterDict` accepts."""
    return name.replace(".", "/")
