"""A layer of continuous depth with partially stochastic weights:  y = h_1,  dh = f_h(t, h; w_t) dt,  h_0 = x.

The weights follow  dw = f_q(t, w) dt + 1[t1 < t < t2] P_S g(t, w) P_S dB,  and w_0 are the parameters of a module f_h.
A loss adds the KL of the layer, E 1/2 int |g_SS^{-1} (f_q - f_p)_S|^2 dt over (t1, t2), divided by the number of data.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Self, final

import torch
from torch import Tensor, nn

from sdeweights.coefficients import checksum
from sdeweights.cuts import Cut
from sdeweights.diffusion import Field
from sdeweights.drifts import PriorPlus, bottleneck
from sdeweights.flow import flow
from sdeweights.frozen import FrozenDepth
from sdeweights.functional import flatten
from sdeweights.gradients import MODES
from sdeweights.grid import Grid
from sdeweights.hidden import SCHEMES, ReversibleScheme
from sdeweights.path import WeightPath
from sdeweights.priors import Prior
from sdeweights.process import WeightProcess
from sdeweights.purity import require_pure, unchanged
from sdeweights.solvers import OdeSolver, SdeSolver
from sdeweights.solvers import ode_solver as find_ode_solver
from sdeweights.solvers import sde_solver as find_sde_solver
from sdeweights.start import GaussianStart


@final
class StochasticDepth(nn.Module):
    """A layer whose output is h at t = 1, from h_0 = x, along weight paths that every forward pass draws again.

    Inputs are (N, ...). With `samples=None` one path is drawn and the output has the shape of the input, so the layer
    can stand anywhere in an `nn.Sequential`. With `samples=S` the output is (S, N, ...), also for S = 1; a linear head
    works on either. After a forward pass, `kl` is the KL of its paths, to be added to the loss.

    Args:
        f_h: dh/dt, a module whose output has the shape of its input. It is copied; its parameters become the weights
            at t = 0, and its buffers are constants. Dropout and running statistics are refused.
        cut: which weights are noisy, and when.
        prior: f_p and g.
        steps: number of steps over [0, 1], or a grid of the cut.
        samples: number of weight paths per forward pass, or None. It can be set later: `layer.samples = 16`.
        seed: seed of the layer's own generator. By default, noise comes from torch's global generator, as in dropout.
        takes_time: whether f_h is called with (t, h) instead of h.
        per_sample: whether inputs are (S, N, ...), as from another layer with S samples; path i then gets input i.
        loop: compute the samples one after the other instead of all at once with `torch.vmap`.
        drift: the whole f_q(t, w); by default f_p plus a bottleneck network that is initially zero, so KL = 0.
        hidden: sizes of the hidden layers of that network.
        allow_leak: on a horizontal cut, accept a drift in which deterministic weights may depend on noisy ones.
        start: law of the weights at t = 0 if they are random, around the parameters of f_h.
        method: scheme for h, as in `flow`; "euler-mean" by default, and "reversible_heun" with the adjoint.
        gradient: "backprop", "checkpoint" or "adjoint", as in `flow`.
        solver: scheme for the weights in the stochastic phase, as in `WeightProcess.sample`.
        ode_solver: scheme for the deterministic weights.

    Example: from 5 numbers to 3, with a hidden state of 8.
        >>> f_h = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        >>> layer = StochasticDepth(f_h, cut=Cut.ode_first(0.3), prior=OrnsteinUhlenbeck(sigma=0.2), steps=8)
        >>> net = nn.Sequential(nn.Linear(5, 8), layer, nn.Linear(8, 3))
        >>> net(torch.randn(10, 5)).shape, layer.kl
        (torch.Size([10, 3]), tensor(0., grad_fn=...))
    """

    def __init__(
        self,
        f_h: nn.Module,
        *,
        cut: Cut,
        prior: Prior,
        steps: int | Grid = 8,
        samples: int | None = None,
        seed: int | None = None,
        takes_time: bool = False,
        per_sample: bool = False,
        loop: bool = False,
        drift: Field | None = None,
        hidden: str | Sequence[int] = (2, 128, 2),
        allow_leak: bool = False,
        start: GaussianStart | None = None,
        method: str | None = None,
        gradient: str = "backprop",
        solver: str | SdeSolver = "euler",
        ode_solver: str | OdeSolver = "euler",
    ) -> None:
        super().__init__()
        _check_module(f_h)
        w0, self.f_h = flatten(f_h, takes_time)
        self.process = _process(w0, drift, prior, cut, hidden, allow_leak=allow_leak, start=start)
        self.grid = steps.checked(cut) if isinstance(steps, Grid) else Grid.of(cut, steps)
        self.method, self.gradient = _checked_method(method, gradient, self.grid, cut), gradient
        find_sde_solver(solver), find_ode_solver(ode_solver)  # an unknown name is reported right away
        self.solvers: dict[str, Any] = {"solver": solver, "ode_solver": ode_solver}
        self.loop, self.per_sample = loop, per_sample
        self.samples = samples
        self.noise = True
        self.manual_seed(seed)
        self._path: WeightPath | None = None

    @property
    def samples(self) -> int | None:
        """Number of weight paths per forward pass; None for a single one without a sample axis."""
        return self._samples

    @samples.setter
    def samples(self, samples: int | None) -> None:
        if samples is None and self.per_sample:
            raise ValueError("expected samples to be an integer with per_sample=True, got None")
        self._samples = None if samples is None else _checked_count(samples)

    @property
    def path(self) -> WeightPath:
        """The weight paths of the last forward pass; raises RuntimeError if there was no forward pass."""
        if self._path is None:
            raise RuntimeError("expected a forward pass before kl or path is read, got no forward pass yet")
        return self._path

    @property
    def kl(self) -> Tensor:
        """The KL of the last forward pass, averaged over its samples: ().

        It is 1/2 int |u|^2 dt, plus the KL of a random w_0 and of random coefficients of the prior.
        """
        return self.path.kl.mean()

    def manual_seed(self, seed: int | None) -> Self:
        """Restart the layer's own generator from a seed; None returns to torch's global generator."""
        self._seed = seed
        self._generator = None if seed is None else torch.Generator(self.process.w0.device).manual_seed(seed)
        return self

    @property
    def generator(self) -> torch.Generator | None:
        """The layer's own generator, None without a seed. On another device, it restarts from its seed."""
        if self._generator is not None and self._generator.device != self.process.w0.device:
            self.manual_seed(self._seed)
        return self._generator

    def forward(self, x: Tensor, *, generator: torch.Generator | None = None, path: WeightPath | None = None) -> Tensor:
        """h at t = 1: (N, ...) with `samples=None`, else (S, N, ...).

        Args:
            x: h at t = 0, (N, ...), or (S, N, ...) with `per_sample=True`.
            generator: source of the noise; by default the layer's own.
            path: weights to use instead of new ones, as returned by `draw` or `mean_path`. A layer that a network
                calls twice has one KL only if both calls get the same path.
        """
        self._path = self.draw(generator) if path is None else self._checked(path, generator)
        h1 = self._flow(x, self._path)
        return h1[0] if self.samples is None else h1

    def draw(self, generator: torch.Generator | None = None) -> WeightPath:
        """Draw the weight paths of a forward pass. With `layer.noise = False`, all are the mean path."""
        return self._drawn(self.samples or 1, generator)

    def mean_path(self) -> WeightPath:
        """The path with the noise switched off, one sample."""
        return self.process.mean_path(self.grid, **self.solvers)

    def frozen(self, samples: int = 1, generator: torch.Generator | None = None) -> FrozenDepth:
        """A deterministic module with S weight paths as buffers and outputs (S, N, ...), independent of this layer.

        The paths are those that a forward pass with `samples=S` would draw from the generator.
        """
        with torch.no_grad():
            path = self._drawn(_checked_count(samples), generator)
        frozen = FrozenDepth(copy.deepcopy(self.f_h), path, self.method, self.per_sample)
        return frozen.train(self.training)

    def get_extra_state(self) -> dict[str, Any]:
        """What the weights were trained for, in `state_dict`: cut and prior, and for information steps and method.

        The prior of w_0 is there only if w_0 is random.
        """
        process = self.process
        start = {} if process.start is None else {"start": process.start.description}
        cut, prior = _described(process.cut), process.prior.description
        return {"cut": cut, "prior": prior, **start, "steps": self.grid.steps, "method": self.method}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Raise ValueError if a saved state has another cut, prior or law of w_0; the steps may differ."""
        own = self.get_extra_state()
        other = [name for name in ("cut", "prior", "start") if state.get(name) != own.get(name)]
        if other:
            missing = {"start": "a fixed w_0"}
            wanted, got = (", ".join(str((missing | source).get(name)) for name in other) for source in (own, state))
            raise ValueError(f"expected weights of a layer with {wanted}, got {got}")

    def extra_repr(self) -> str:
        return f"steps={self.grid.steps}, samples={self.samples}, method={self.method!r}"

    def __getstate__(self) -> dict[str, Any]:
        """The state for pickle and copy: without the last path, whose gradients cannot be copied."""
        return self.__dict__ | {"_path": None}

    def _drawn(self, count: int, generator: torch.Generator | None) -> WeightPath:
        if not self.noise:
            return _repeated(self.mean_path(), count)
        source = self.generator if generator is None else generator
        return self.process.sample(self.grid, count, generator=source, **self.solvers)

    def _flow(self, x: Tensor, path: WeightPath) -> Tensor:
        vectorize = not self.loop and path.samples > 1
        how = {"per_sample": self.per_sample, "vectorize": vectorize}
        try:
            with unchanged(self.f_h, path.w):
                return flow(self.f_h, x, path, self.method, self.gradient, **how)
        except RuntimeError as error:
            if not vectorize or not re.search(r"vmap|batching rule", str(error), re.IGNORECASE):
                raise
            raise ValueError(
                f"expected f_h to be a module that torch.vmap can vectorise, got {type(self.f_h.module).__name__}; "
                f"pass loop=True: {str(error).splitlines()[0]}"
            ) from error

    def _checked(self, path: WeightPath, generator: torch.Generator | None) -> WeightPath:
        if generator is not None:
            raise ValueError("expected a generator or a path, got both: nothing is drawn for a given path")
        count = self.samples or 1
        if not isinstance(path, WeightPath) or path.d != self.process.d or path.samples != count:
            got = f"{path.samples} of {path.d}" if isinstance(path, WeightPath) else type(path).__name__
            raise ValueError(f"expected a WeightPath with samples={count} of {self.process.d} weights, got {got}")
        return path


def _check_module(f_h: nn.Module) -> None:
    if not isinstance(f_h, nn.Module):
        raise ValueError(f"expected f_h to be an nn.Module, got {type(f_h).__name__}")
    if any(isinstance(part, StochasticDepth) for part in f_h.modules()):
        raise ValueError("expected f_h without a StochasticDepth inside, got one: its weights would be random twice")
    require_pure(f_h)


def _checked_count(samples: int) -> int:
    if isinstance(samples, bool) or not isinstance(samples, Integral) or samples < 1:
        raise ValueError(f"expected samples to be an integer >= 1, got {samples!r}")
    return int(samples)


def _process(
    w0: Tensor, drift: Field | None, prior: Prior, cut: Cut, hidden: str | Sequence[int], **how: Any
) -> WeightProcess:
    """The weight process, by default with f_q = f_p + net, where the net is initially zero."""
    for name, part, kind in (("cut", cut, Cut), ("prior", prior, Prior)):
        if not isinstance(part, kind):
            raise ValueError(f"expected {name} to be a {kind.__name__}, got {type(part).__name__}")
    if drift is None:
        drift = PriorPlus(prior, bottleneck(len(w0), cut, hidden).to(w0))
    return WeightProcess(w0, drift, prior, cut, **how)


def _checked_method(method: str | None, gradient: str, grid: Grid, cut: Cut) -> str:
    """The scheme for h; raises ValueError if it is unknown, cannot have this gradient, or never sees the noise."""
    if gradient not in MODES:
        raise ValueError(f"expected gradient to be one of {', '.join(MODES)}, got {gradient!r}")
    if method is None:
        return "reversible_heun" if gradient == "adjoint" else "euler-mean"
    if method not in SCHEMES:
        raise ValueError(f"expected method to be one of {', '.join(SCHEMES)}, got {method!r}")
    if gradient == "adjoint" and not isinstance(SCHEMES[method], ReversibleScheme):
        raise ValueError(f'expected method="reversible_heun" with gradient="adjoint", got {method!r}')
    noisy = grid.sde
    last = noisy is not None and (noisy.last == grid.steps or cut.resets)
    if noisy is not None and noisy.steps == 1 and last and SCHEMES[method].fraction == 0:
        raise ValueError(
            f"expected noise that affects h, got {method!r} and one noisy step, whose right end it never sees: "
            'take more steps or "euler-mean"'
        )
    return method


def _repeated(path: WeightPath, samples: int) -> WeightPath:
    """A path of one sample as the path of several equal samples, which `flow` integrates once."""
    after = None if path.after_reset is None else path.after_reset.expand(samples, -1)
    w, kl = path.w.expand(samples, -1, -1), path.kl.expand(samples)
    latents = tuple(values.expand(samples, -1) for values in path.latents)
    return replace(path, w=w, kl=kl, after_reset=after, shared=path.steps, latents=latents)


def _described(cut: Cut) -> str:
    """A cut on one line: many indices are replaced by their number and checksum."""
    S = cut.stochastic
    if not isinstance(S, tuple) or len(S) <= 8:
        return repr(cut)
    text = f"<{len(S)} indices, {checksum(torch.tensor(S))}>"
    return f"Cut(t1={cut.t1}, t2={cut.t2}, stochastic={text}, at_t2={cut.at_t2!r})"
