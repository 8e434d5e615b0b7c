"""Invalid arguments raise a one-line error that says what was expected and what was given."""

import pytest
import torch

from sdeweights import (
    BottleneckDrift,
    Brownian,
    Cut,
    OrnsteinUhlenbeck,
    Prior,
    PriorPlus,
    SplitDrift,
    WeightProcess,
)
from sdeweights.brownian import draw
from sdeweights.solvers import Heun
from sdeweights.testing import seeded

W0 = torch.zeros(3, dtype=torch.float64)
OK = Brownian()


def still(t, w):
    return 0 * w


def make(w0=W0, drift=still, prior=OK, cut=Cut.full(), **how):  # noqa: B008 - a frozen value
    return WeightProcess(w0, drift, prior, cut, **how)


REFUSED_WHEN_BUILT = {
    "NaN in w0": (lambda: make(torch.tensor([0.0, float("nan"), 0.0])), "expected finite w0, got nan at index 1"),
    "infinite w0": (lambda: make(torch.tensor([0.0, 0.0, float("inf")])), "expected finite w0, got inf at index 2"),
    "matrix w0": (
        lambda: make(torch.zeros(3, 1)),
        r"expected w0 to be a floating-point tensor of shape \(d,\) with d >= 1, got \(3, 1\)",
    ),
    "integer w0": (lambda: make(torch.zeros(3, dtype=torch.int64)), "expected w0 to be a floating-point tensor"),
    "list w0": (lambda: make([0.0]), "expected w0 to be a floating-point tensor of shape .* got list"),
    "empty w0": (lambda: make(torch.zeros(0)), "expected w0 to be a floating-point tensor"),
    "drift shape": (
        lambda: make(drift=lambda t, w: w[..., :1]),
        r"expected the drift to map w of shape \(2, 3\) to the same, got \(2, 1\)",
    ),
    "drift number": (lambda: make(drift=lambda t, w: 0.0), "expected the drift to map w .* got float"),
    "drift not callable": (lambda: make(drift=1.0), r"expected drift to be a function of \(t, w\), got float"),
    "prior drift shape": (
        lambda: make(prior=Prior(lambda t, w: w.sum(-1), 1.0)),
        r"expected the prior drift to map .* got \(2,\)",
    ),
    "prior not a Prior": (lambda: make(prior=1.0), "expected prior to be a Prior, got float"),
    "cut not a Cut": (lambda: make(cut="full"), "expected cut to be a Cut, got str"),
    "zero scalar diffusion": (
        lambda: make(prior=Brownian(0.0)),
        "expected a diffusion that is nonzero on the stochastic coordinates, got 0",
    ),
    "zero diagonal diffusion": (
        lambda: make(prior=Brownian(torch.tensor([1.0, 0.0, 1.0]))),
        "expected a diffusion that is nonzero",
    ),
    "singular diffusion": (
        lambda: make(prior=Brownian(torch.ones(3, 3))),
        "expected a diffusion that is invertible on the stochastic coordinates, got a singular matrix",
    ),
    "NaN diffusion": (lambda: make(prior=Brownian(float("nan"))), "expected sigma to be finite, got nan"),
    "diffusion shape": (
        lambda: make(prior=Brownian(torch.ones(2))),
        r"expected g\(t, w\) of shape \(\), \(3,\) or \(3, 3\) for w of shape \(3,\), got \(2,\)",
    ),
    "posterior diffusion": (
        lambda: make(drift=OrnsteinUhlenbeck(sigma=2.0)),
        "got an object with a diffusion of its own: by Lemma 1 .* the KL is infinite",
    ),
    "unsplit drift": (
        lambda: make(cut=Cut.horizontal([0])),
        "expected a split drift .* got one that may mix coordinates; allow_leak=True accepts it",
    ),
    "unsplit net": (
        lambda: make(drift=PriorPlus(OK, BottleneckDrift(3).double()), cut=Cut.horizontal([0])),
        "expected a split drift .* split like the cut",
    ),
    "split elsewhere": (
        lambda: make(drift=SplitDrift(still, still, [1], 3), cut=Cut.horizontal([0])),
        "split at other coordinates: 1 stochastic of 3",
    ),
    "mixing prior": (
        lambda: make(drift=PriorPlus(Prior(still, 1.0), SplitDrift(still, still, [0], 3)), cut=Cut.horizontal([0])),
        "expected a coordinatewise prior",
    ),
    "w_t2 unused": (lambda: make(w_t2=W0), 'expected no w_t2 with at_t2="continue", got one'),
    "w_t2 shape": (
        lambda: make(cut=Cut.sde_first(0.5, "fixed"), w_t2=torch.zeros(2)),
        r"expected w_t2 of shape \(3,\) or \(3,\), got \(2,\)",
    ),
    "w_t2 NaN": (
        lambda: make(cut=Cut.sde_first(0.5, "learned"), w_t2=W0 + float("nan")),
        "expected finite w_t2, got nan at index 0",
    ),
    "w_t2 dtype": (
        lambda: make(cut=Cut.sde_first(0.5, "fixed"), w_t2=W0.float()),
        "expected w_t2 in torch.float64 on cpu like w0, got torch.float32 on cpu",
    ),
    "module dtype": (
        lambda: make(drift=BottleneckDrift(3).float()),
        "expected the drift's parameters in torch.float64 on cpu like w0, got torch.float32 on cpu",
    ),
    "drift dtype": (
        lambda: make(w0=W0.float(), drift=lambda t, w: w.double()),
        "expected the drift in torch.float32 like w0, got torch.float64",
    ),
    "no weights": (lambda: BottleneckDrift(0), "expected d >= 1 weights, got 0"),
    "index out of range": (lambda: make(cut=Cut.horizontal([3]), allow_leak=True), "expected indices below d=3, got 3"),
    "hidden sizes": (lambda: BottleneckDrift(3, "2-x-2"), "expected hidden sizes like .*, got '2-x-2'"),
    "no hidden sizes": (lambda: BottleneckDrift(3, ()), r"expected hidden sizes like .*, got \(\)"),
}


@pytest.mark.parametrize("name", REFUSED_WHEN_BUILT)
def test_invalid_arguments_are_rejected_on_construction(name):
    build, message = REFUSED_WHEN_BUILT[name]
    with pytest.raises(ValueError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)


ELEMENTWISE = Prior(still, lambda t, w: 1 + w.square().sum(-1, keepdim=True) + 0 * w)
REFUSED_WHEN_SAMPLED = {
    "no samples": (lambda: make().sample(4, 0), "expected samples to be an integer >= 1, got 0"),
    "half a sample": (lambda: make().sample(4, 1.5), r"expected samples to be an integer >= 1, got 1\.5"),
    "too few steps": (
        lambda: make(cut=Cut.vertical(0.3, 0.6)).sample(2),
        "expected at least 3 steps, one for each phase of the cut, got 2",
    ),
    "steps not an integer": (lambda: make().sample(2.5), r"expected steps to be an integer, got 2\.5"),
    "unknown solver": (lambda: make().sample(4, solver="magic"), "expected solver to be one of .*, got 'magic'"),
    "no solver": (lambda: make().sample(4, solver=None), "expected solver to be a name such as .*, got None"),
    "solver's class": (
        lambda: make().sample(4, ode_solver=Heun),
        'expected ode_solver to be a name such as "rk4" or a scheme, got <class .*Heun\'>',
    ),
    "torchdiffeq method": (  # reported even though there is no deterministic phase
        lambda: make().sample(4, ode_solver="torchdiffeq:dopri"),
        "expected a method of torchdiffeq, one of .*dopri5.*, got 'dopri'",
    ),
    "seed for a generator": (
        lambda: make().sample(4, generator=0),
        "expected generator to be a torch.Generator or None, got int",
    ),
    "noise for no noise": (
        lambda: make(cut=Cut.none()).sample(4, noise=draw(1, 4, 3, 0.25)),
        "expected noise=None for a cut without a stochastic phase",
    ),
    "noise dtype": (
        lambda: make().sample(4, noise=draw(1, 4, 3, 0.25, dtype=torch.float32)),
        "expected noise in torch.float64 on cpu like w0, got torch.float32",
    ),
    "sra1 multiplicative": (
        lambda: make(w0=W0 + 1, prior=Prior(still, lambda t, w: w)).sample(4, solver="sra1"),
        "expected additive noise for sra1, got a diffusion that is computed from w",
    ),
    "sra1 without integrals": (
        lambda: make().sample(4, noise=draw(1, 4, 3, 0.25), solver="sra1"),
        r"expected increments with time integrals \(noises=2\) for sra1",
    ),
    "milstein dense": (
        lambda: make(prior=Prior(still, lambda t, w: torch.diag_embed(1 + w**2))).sample(4, solver="milstein"),
        "expected a diagonal diffusion for milstein, got a dense one",
    ),
    "milstein mixing": (
        lambda: make(prior=ELEMENTWISE).sample(4, solver="milstein"),
        "expected a diagonal diffusion whose g_i depends on w_i alone for milstein, got one that mixes them",
    ),
    "heun mixing": (
        lambda: make(prior=ELEMENTWISE).sample(4, solver="heun"),
        "whose g_i depends on w_i alone for heun",
    ),
    "zero on the way": (
        lambda: make(
            w0=W0 + 1,
            drift=lambda t, w: -1 + 0 * w,
            prior=Prior(still, lambda t, w: torch.clamp(0.5 - t, min=0.0) + 0 * w),
        ).sample(4, generator=seeded()),
        "expected a diffusion that is nonzero",
    ),
}


@pytest.mark.parametrize("name", REFUSED_WHEN_SAMPLED)
def test_invalid_arguments_are_rejected_by_sample(name):
    call, message = REFUSED_WHEN_SAMPLED[name]
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_a_generator_on_another_device_is_rejected():
    class Elsewhere:
        device = torch.device("cuda")

    with pytest.raises(ValueError, match="expected a generator on cpu, the device of w0, got one on cuda"):
        make().sample(4, generator=Elsewhere())
