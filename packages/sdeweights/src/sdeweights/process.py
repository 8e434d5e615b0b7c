"""The partially stochastic weight process:  dw = f_q(t, w) dt + 1[t1 < t < t2] P_S g(t, w) P_S dB,  eqs. (4)-(6), (11).

Weights do not depend on activations, so a path is sampled first, and hidden states are integrated along it afterwards
with `sdeweights.flow`.
"""

from collections.abc import Callable
from numbers import Integral
from typing import Any, Self, final

import torch
from torch import Tensor, nn

from sdeweights import brownian, diffusion
from sdeweights.brownian import Increments
from sdeweights.coefficients import LogNormal, Positive
from sdeweights.cuts import AtT2, Cut
from sdeweights.diffusion import Field
from sdeweights.errors import NonFiniteState, norm
from sdeweights.grid import Grid
from sdeweights.integrate import Plan, integrate
from sdeweights.path import WeightPath
from sdeweights.priors import Prior
from sdeweights.solvers import OdeSolver, SdeSolver
from sdeweights.solvers import ode_solver as find_ode_solver
from sdeweights.solvers import sde_solver as find_sde_solver
from sdeweights.start import GaussianStart, StartLaw, laws_of


@final
class WeightProcess(nn.Module):
    """A weight process w_t that starts at w0, has the drift f_q, and is noisy on the coordinates and depths of a cut.

    Args:
        w0: initial weights, (d,). A plain tensor becomes a parameter. A parameter (frozen or not) or a tensor that
            requires gradients is used as it is; such a tensor is not in `parameters()`.
        drift: the whole f_q(t, w), from w of shape (..., d) to (..., d); nothing is added to it.
        prior: f_p and g. The posterior has the same g.
        cut: which weights are noisy, and when.
        w_t2: value of w_S after t2 under "fixed" (a constant) and "learned" (a parameter), (d,) or (|S|,); by default
            that of w0.
        allow_leak: on a horizontal cut, accept a drift in which deterministic weights may depend on noisy ones.
        start: law of w_0 if it is random; w0 is then its mean. By default every path starts at w0.

    Example:
        >>> process = WeightProcess(torch.zeros(3), lambda t, w: -w, OrnsteinUhlenbeck(), Cut.vertical(0.25, 0.5))
        >>> path = process.sample(steps=8, samples=2, generator=torch.Generator().manual_seed(0))
        >>> path.w.shape, path.kl
        (torch.Size([2, 9, 3]), tensor([0., 0.], grad_fn=...))
    """

    def __init__(
        self,
        w0: Tensor,
        drift: Field,
        prior: Prior,
        cut: Cut,
        w_t2: Tensor | None = None,
        allow_leak: bool = False,
        start: GaussianStart | None = None,
    ) -> None:
        super().__init__()
        _check_parts(w0, drift, prior, cut)
        self.w0 = _trained(w0)
        self.start = None if start is None else StartLaw(start, self.w0)
        self.drift = drift
        self.prior = prior
        self.cut = cut
        self.allow_leak = allow_leak
        S, D = cut.indices(len(w0)), cut.complement(len(w0))
        self.S: Tensor
        self.D: Tensor
        self.register_buffer("S", S.to(w0.device), persistent=False)
        self.register_buffer("D", D.to(w0.device), persistent=False)
        self._set_reset(w_t2)
        self.separate = 0 < len(S) < len(w0) and _is_split(drift, S, D, allow_leak)
        self._check_fields()

    @property
    def d(self) -> int:
        """Number of weights."""
        return len(self.w0)

    def sample(
        self,
        steps: int | Grid = 30,
        samples: int = 1,
        *,
        generator: torch.Generator | None = None,
        solver: str | SdeSolver = "euler",
        ode_solver: str | OdeSolver = "euler",
        noise: Increments | None = None,
    ) -> WeightPath:
        """Sample weight paths.

        Args:
            steps: number of steps over [0, 1], distributed over the phases of the cut in proportion to their lengths;
                or a grid, such as `Grid.of(cut, 30).refine(2)`.
            samples: number of paths. Sample i depends only on the state of the generator and on i.
            generator: source of the noise; torch's global one by default.
            solver: scheme for the stochastic phase: a name from `sdeweights.solvers` or a scheme. "euler" solves every
                equation; "fused-euler" only the paper's drift f_p + BottleneckDrift, at half the cost.
            ode_solver: scheme for deterministic phases, and for the deterministic coordinates of a horizontal cut.
            noise: Brownian increments to use instead of new ones; `samples` is then ignored. A random w_0 and random
                coefficients of the prior are still drawn from the generator.
        """
        scheme, ode = find_sde_solver(solver), find_ode_solver(ode_solver)
        grid = steps.checked(self.cut) if isinstance(steps, Grid) else Grid.of(self.cut, steps)
        count = _checked_count(samples) if noise is None else len(self._checked(noise, grid).dB)
        noise, normals = self._draw(grid, count, scheme, self._checked_source(generator), noise)
        return self._integrated(Plan(grid, scheme, ode, count, noise, normals))

    def mean_path(
        self,
        steps: int | Grid = 30,
        *,
        solver: str | SdeSolver = "euler",
        ode_solver: str | OdeSolver = "euler",
    ) -> WeightPath:
        """The path with the noise switched off, one sample: all Brownian increments are zero.

        A random w_0 is at its mean, and random coefficients of the prior are at their medians. If the drift is affine,
        the diffusion does not depend on w and no coefficient is random, this is the mean of the sampled paths.
        """
        grid = steps.checked(self.cut) if isinstance(steps, Grid) else Grid.of(self.cut, steps)
        noise = None
        if grid.sde is not None:
            zeros = self.w0.new_zeros(1, grid.sde.steps, len(self.S))
            noise = Increments((grid.sde.stop - grid.sde.start) / grid.sde.steps, zeros, zeros)
        variables = self._variables
        normals = self.w0.new_zeros(1, variables) if variables else None
        return self._integrated(Plan(grid, find_sde_solver(solver), find_ode_solver(ode_solver), 1, noise, normals))

    def extra_repr(self) -> str:
        return f"d={self.d}, stochastic={len(self.S)}, cut={self.cut}"

    def forward(self, steps: int | Grid = 30, samples: int = 1, **how: Any) -> WeightPath:
        """The same as `sample`."""
        return self.sample(steps, samples, **how)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move to another device or dtype, including w0 and w_t2 if they are not parameters."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name in ("w0", "w_t2"):
            if name in self.__dict__ and isinstance(self.__dict__[name], Tensor):
                setattr(self, name, fn(self.__dict__[name]))
        return self

    def _integrated(self, plan: Plan) -> WeightPath:
        path = integrate(self, plan)
        _require_finite(path, plan.grid)
        return path

    @property
    def _variables(self) -> int:
        """Number of normal variables that determine w_0 and the random coefficients of the prior."""
        if self.start is None and not any(isinstance(part, LogNormal) for part in self.prior.modules()):
            return 0
        return sum(len(law.mean) for law in laws_of(self))

    def _draw(
        self, grid: Grid, samples: int, scheme: SdeSolver, generator: torch.Generator | None, noise: Increments | None
    ) -> tuple[Increments | None, Tensor | None]:
        """Increments, and normals for w_0 and the random coefficients, (samples, n); None if there are none to draw.

        Each sample draws first its normals and then its increments, so it does not depend on how many samples follow.
        """
        how: dict[str, Any] = {"generator": generator, "dtype": self.w0.dtype, "device": self.w0.device}
        variables, phase = self._variables, grid.sde if noise is None else None
        size = None if phase is None else (phase.steps, len(self.S), (phase.stop - phase.start) / phase.steps)
        if not variables:
            return noise if size is None else brownian.draw(samples, *size, noises=scheme.noises, **how), None
        normals, increments = self.w0.new_empty(samples, variables), []
        for own in normals:
            own.normal_(generator=generator)
            if size is not None:
                increments.append(brownian.draw(1, *size, noises=scheme.noises, **how))
        return brownian.stacked(increments) if increments else noise, normals

    def _checked_source(self, generator: torch.Generator | None) -> torch.Generator | None:
        device = self.w0.device
        if generator is not None and not hasattr(generator, "device"):
            raise ValueError(f"expected generator to be a torch.Generator or None, got {type(generator).__name__}")
        if generator is not None and generator.device.type != device.type:
            raise ValueError(
                f"expected a generator on {device.type}, the device of w0, got one on {generator.device.type}"
            )
        return generator

    def _checked(self, noise: Increments, grid: Grid) -> Increments:
        if grid.sde is None:
            raise ValueError("expected noise=None for a cut without a stochastic phase, got increments")
        dt = (grid.sde.stop - grid.sde.start) / grid.sde.steps
        if noise.dB.shape[1:] != (grid.sde.steps, len(self.S)) or abs(noise.dt - dt) > 1e-9:
            raise ValueError(
                f"expected noise of shape (samples, {grid.sde.steps}, {len(self.S)}) with dt={dt:.6g}, "
                f"got {tuple(noise.dB.shape)} with dt={noise.dt:.6g}"
            )
        if noise.dB.dtype != self.w0.dtype or noise.dB.device != self.w0.device:
            raise ValueError(
                f"expected noise in {self.w0.dtype} on {self.w0.device} like w0, "
                f"got {noise.dB.dtype} on {noise.dB.device}"
            )
        return noise

    def _set_reset(self, w_t2: Tensor | None) -> None:
        self.w_t2: Tensor | None
        if not self.cut.resets:
            if w_t2 is not None:
                raise ValueError('expected no w_t2 with at_t2="continue", got one: nothing is reset')
            self.w_t2 = None
            return
        value = self.w0.detach()[self.S] if w_t2 is None else w_t2
        _require_weights(value, "w_t2")
        if len(value) not in (self.d, len(self.S)):
            raise ValueError(f"expected w_t2 of shape ({self.d},) or ({len(self.S)},), got {tuple(value.shape)}")
        if value.dtype != self.w0.dtype or value.device != self.w0.device:
            raise ValueError(
                f"expected w_t2 in {self.w0.dtype} on {self.w0.device} like w0, got {value.dtype} on {value.device}"
            )
        if self.cut.at_t2 == AtT2.FIXED:
            self.register_buffer("w_t2", value.detach().clone())
        else:
            self.w_t2 = _trained(value)

    def _check_fields(self) -> None:
        """Evaluate drift and prior once, to report a wrong shape or a zero diffusion right away."""
        for size in (part().numel() for part in self.prior.modules() if isinstance(part, Positive | LogNormal)):
            if size not in (1, self.d):
                raise ValueError(f"expected coefficients of the prior with 1 or {self.d} values, got {size}")
        with torch.no_grad():
            t, w = self.w0.new_tensor(self.cut.t1), self.w0.detach()
            for name, field in (("drift", self.drift), ("prior drift", self.prior.drift)):
                _require_like(w, field)
                value = field(t, w.expand(2, -1))
                if not isinstance(value, Tensor) or value.shape != (2, self.d):
                    raise ValueError(
                        f"expected the {name} to map w of shape (2, {self.d}) to the same, got {_shape(value)}"
                    )
                if torch.promote_types(value.dtype, w.dtype) != w.dtype:
                    raise ValueError(f"expected the {name} in {w.dtype} like w0, got {value.dtype}")
            if len(self.S) == 0:
                return
            kind = diffusion.kind_of(self.prior.diffusion, t, w)
            g = diffusion.restrict(kind, self.prior.diffusion(t, w), self.S)
            if not bool(torch.isfinite(g).all()):
                raise ValueError("expected a finite diffusion, got NaN or infinity")
            diffusion.solve(kind, g, w[self.S])


def _checked_count(samples: int) -> int:
    if isinstance(samples, bool) or not isinstance(samples, Integral) or samples < 1:
        raise ValueError(f"expected samples to be an integer >= 1, got {samples!r}")
    return int(samples)


def _trained(w: Tensor) -> Tensor:
    return w if isinstance(w, nn.Parameter) or w.requires_grad else nn.Parameter(w.detach().clone())


def _require_like(w: Tensor, field: Field) -> None:
    """Raise ValueError if all parameters of a module differ from w in device or dtype."""
    parameters = [p for p in field.parameters() if p.is_floating_point()] if isinstance(field, nn.Module) else []
    if parameters and all(p.dtype != w.dtype or p.device != w.device for p in parameters):
        p = parameters[0]
        raise ValueError(
            f"expected the drift's parameters in {w.dtype} on {w.device} like w0, got {p.dtype} on {p.device}"
        )


def _shape(value: object) -> object:
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def _require_weights(w: Tensor, name: str) -> None:
    if not isinstance(w, Tensor) or w.ndim != 1 or not w.is_floating_point() or len(w) == 0:
        raise ValueError(f"expected {name} to be a floating-point tensor of shape (d,) with d >= 1, got {_shape(w)}")
    if not bool(torch.isfinite(w.detach()).all()):
        bad = int((~torch.isfinite(w.detach())).nonzero()[0])
        raise ValueError(f"expected finite {name}, got {float(w.detach()[bad])} at index {bad}")


def _check_parts(w0: Tensor, drift: Field, prior: Prior, cut: Cut) -> None:
    _require_weights(w0, "w0")
    if not isinstance(prior, Prior):
        raise ValueError(f"expected prior to be a Prior, got {type(prior).__name__}")
    if not isinstance(cut, Cut):
        raise ValueError(f"expected cut to be a Cut, got {type(cut).__name__}")
    if isinstance(drift, Prior) or hasattr(drift, "diffusion"):
        raise ValueError(
            "expected a drift f_q(t, w) alone, got an object with a diffusion of its own: by Lemma 1 the posterior has "
            "to share the prior's diffusion, or the KL is infinite"
        )
    if not callable(drift):
        raise ValueError(f"expected drift to be a function of (t, w), got {type(drift).__name__}")


def _is_split(drift: Field, S: Tensor, D: Tensor, allow_leak: bool) -> bool:
    """Whether the drifts of S and D can be evaluated separately; if not, `allow_leak` must be True."""
    restrict = getattr(drift, "restrict", None)
    if restrict is None:
        reason = "got one that may mix coordinates"
    else:
        try:
            restrict(D), restrict(S)
        except ValueError as error:
            reason = str(error)
        else:
            return True
    if allow_leak:
        return False
    raise ValueError(
        "expected a split drift (SplitDrift, or PriorPlus of one) on a horizontal cut, so that deterministic weights "
        f"cannot see noise: {reason}; allow_leak=True accepts it"
    )


def _require_finite(path: WeightPath, grid: Grid) -> None:
    # A sum is finite only if all its terms are: one pass over w in the ordinary case.
    if bool(torch.isfinite(path.w.detach().sum() + path.kl.detach().sum())):
        return
    finite = torch.isfinite(path.w.detach()).all(-1).all(0)
    if bool(finite.all()) and bool(torch.isfinite(path.kl.detach()).all()):
        return  # only the sum overflowed
    if bool(finite.all()):
        raise NonFiniteState(f"the KL is not finite though w is; largest norm of w: {norm(path.w):.6g}")
    k = int((~finite).nonzero()[0])
    phase = next(phase for phase in grid.phases if k <= phase.last)
    raise NonFiniteState(
        f"w became non-finite in the {phase.kind} phase ({phase.start:g}, {phase.stop:g}), step {k} of {grid.steps}, "
        f"t={grid.times[k]:.6g}; norm of w one step before: {norm(path.w[:, k - 1]):.6g}"
    )
