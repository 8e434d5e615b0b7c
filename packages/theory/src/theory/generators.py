"""A network whose weight noise generates y given x, as in Theorem 4.2, with everything else trained:

    dh = (A tanh(B h + b) + c) dt,  h_0 = (x, 0),      y = L h_1 + sigma_y e,      w = (A, B, b, c)
    dw = f_q dt + 1[t < t2] P_S sigma dB,              f_q = 0 on S, trained on D

S are the last m entries of c, so the noise first enters the extra coordinates of h. At t2 = 1/4 these weights take a
trained value. On S the drift is that of the prior, a Brownian motion, so dQ/dP = 1: the prior itself is the generator,
and there is no amortised posterior. One weight path gives one y for each x.
"""

import math
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn
from torch.quasirandom import SobolEngine

from sdeweights import Brownian, Cut, DiagonalDrift, Functional, Grid, Increments, SplitDrift, WeightPath, WeightProcess
from sdeweights.flow import Prefix, flow
from sdeweights.priors import zero
from sdeweights.testing import seeded
from theory.fields import scale

STEPS, T2 = 8, 0.25
SIGMA = STEPS**1.5  # after two steps, the integral sigma B(dt) dt of the noise has variance sigma^2 dt^3 = 1


@final
class TanhNet(nn.Module):
    """f(h) = s A tanh(B h + b) + c, where s scales |A|_F |B|_F, a Lipschitz constant, down to at most `cap`."""

    def __init__(self, d: int, width: int, cap: float, generator: torch.Generator) -> None:
        super().__init__()
        self.cap = cap
        self.A = nn.Parameter(torch.randn(d, width, generator=generator) / math.sqrt(width))
        self.B = nn.Parameter(torch.randn(width, d, generator=generator))
        self.b = nn.Parameter(torch.randn(width, generator=generator))
        self.c = nn.Parameter(torch.zeros(d))

    def forward(self, h: Tensor) -> Tensor:
        """f(h), of h's shape (batch, d)."""
        inner = torch.tanh(nn.functional.linear(h, self.B, self.b))
        return nn.functional.linear(inner, scale(self.A, self.B, self.cap) * self.A, self.c)


@dataclass(frozen=True)
class Shape:
    """The size of a generator: dimensions of x and y, extra dimensions of h, noisy weights, width, Lipschitz bound."""

    d_x: int = 1
    d_y: int = 1
    extra: int = 4
    m: int = 1
    width: int = 24
    cap: float = 200.0


@final
class Generator(nn.Module):
    """A trainable conditional law of y given x, in single precision."""

    def __init__(self, shape: Shape, sigma_y: float, seed: int) -> None:
        super().__init__()
        source, d = seeded(seed), shape.d_x + shape.extra
        net = TanhNet(d, shape.width, shape.cap, source).float()
        w0 = nn.utils.parameters_to_vector(net.parameters()).detach()
        S = range(len(w0) - shape.m, len(w0))
        f_D = DiagonalDrift(len(w0) - shape.m, "2-8-2", knots=3, generator=source).float()
        cut = Cut.both(0, T2, S, at_t2="learned")
        self.shape, self.sigma_y, self.f_D = shape, sigma_y, f_D
        self.f_h = Functional(net)
        self.process = WeightProcess(w0, SplitDrift(zero, f_D, S, len(w0)), Brownian(SIGMA), cut)
        self.L = nn.Linear(d, shape.d_y).float()
        with torch.no_grad():
            self.L.weight.copy_(torch.randn(shape.d_y, d, generator=source) / math.sqrt(d))
            self.L.bias.zero_()

    def paths(self, samples: int, generator: torch.Generator) -> WeightPath:
        """Independent weight paths."""
        return self.process.sample(STEPS, samples, generator=generator)

    def even_paths(self, samples: int, generator: torch.Generator) -> WeightPath:
        """Weight paths of the same law whose noise covers the space evenly: scrambled Sobol points (Owen, 1997).

        Each path has the law of the process, so a mean over the paths is unbiased; the paths are not independent.
        """
        steps = Grid.of(self.process.cut, STEPS).index(T2)
        seed = int(torch.randint(2**31, (1,), generator=generator))
        sobol = SobolEngine(steps * self.shape.m, scramble=True, seed=seed)  # type: ignore[no-untyped-call]
        points = sobol.draw(samples, dtype=torch.float64)
        z = torch.special.ndtri(points.clamp(1e-12, 1 - 1e-12)).reshape(samples, steps, self.shape.m)
        dt = T2 / steps
        return self.process.sample(STEPS, noise=Increments(dt, (math.sqrt(dt) * z).to(self.process.w0)))

    def outputs(self, x: Tensor, path: WeightPath) -> Tensor:
        """L h_1 for every weight path and every x, (n, d_x): (samples, n, d_y).

        After t2 all paths have the same weights, so the hidden states of all samples are one batch there.
        """
        k, h0 = path.times.index(T2), nn.functional.pad(x.to(path.w), (0, self.shape.extra))
        noisy = WeightPath(path.ts[: k + 1], path.w[:, : k + 1], path.kl, path.times[: k + 1], shared=path.shared)
        h = flow(self.f_h, h0, noisy, per_sample=False, vectorize=True)
        h = flow(self.f_h, Prefix((h.flatten(0, 1),), k), path[0])[0]
        out: Tensor = self.L(h).unflatten(0, (path.samples, len(x)))
        return out

    def log_likelihood(self, x: Tensor, y: Tensor, path: WeightPath, sigma_y: float | None = None) -> Tensor:
        """log N(y; L h_1, sigma_y^2) of every weight path and every pair (x, y): (samples, n)."""
        s = self.sigma_y if sigma_y is None else sigma_y
        miss = (y.to(path.w) - self.outputs(x, path)) / s
        return -miss.square().sum(-1) / 2 - self.shape.d_y * math.log(s * math.sqrt(2 * math.pi))

    @torch.no_grad()
    def sample(self, x: float, n: int, generator: torch.Generator) -> Tensor:
        """n draws of y given one x, with a weight path each and with the noise sigma_y: (n, d_y), float64."""
        y = self.outputs(torch.full((1, 1), x), self.paths(n, generator))[:, 0].double()
        return y + self.sigma_y * torch.randn(y.shape, generator=generator, dtype=y.dtype)
