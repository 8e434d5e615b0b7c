"""The diffusion g(t, w), a scalar, diagonal or dense linear map applied to the noise: its inverse and its derivatives.

The shape of g(t, w) for one weight vector w of shape (d,) determines its kind:

    () or (1,)   scalar      g(t, w) dB, the same factor for every coordinate
    (d,)         diagonal    g_i(t, w) dB_i
    (d, d)       dense       sum_j g_ij(t, w) dB_j
"""

from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial

import torch
from torch import Tensor

Field = Callable[[Tensor, Tensor], Tensor]  # (t, w) -> tensor with the leading shape of w
FieldAndGap = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # (t, w) -> f_q and f_q - f_p


class Kind(StrEnum):
    """Shape of a diffusion."""

    SCALAR = "scalar"
    DIAGONAL = "diagonal"
    DENSE = "dense"


def kind_of(diffusion: Field, t: Tensor, w: Tensor) -> Kind:
    """The kind of g, determined by the shape of its value at one weight vector w of shape (d,)."""
    g = diffusion(t, w)
    d = len(w)
    # For d = 1, scalar and diagonal have the same shape (1,) and are the same map.
    if g.shape in ((), (1,)):
        return Kind.DIAGONAL if g.shape == (d,) else Kind.SCALAR
    if g.shape == (d,):
        return Kind.DIAGONAL
    if g.shape == (d, d):
        return Kind.DENSE
    raise ValueError(f"expected g(t, w) of shape (), ({d},) or ({d}, {d}) for w of shape ({d},), got {tuple(g.shape)}")


def depends_on_state(diffusion: Field, t: Tensor, w: Tensor) -> bool:
    """Whether g(t, w) depends on w; if not, the noise is additive.

    g depends on w if autograd finds w in its computation, or if its values at different states differ. The second test
    catches what autograd cannot see: a comparison inside `torch.where`, a detached tensor, arithmetic in numpy.
    """
    return _gradient(diffusion, t, w) is not None or _differs(diffusion, t, w)


def require_differentiable(diffusion: Field, t: Tensor, w: Tensor, scheme: str) -> None:
    """Raise ValueError if g depends on w but its autograd derivative is missing, or 0 at every state tried."""
    gradients = [_gradient(diffusion, t, state) for state in (w, *_probes(w))]
    if all(grad is None or not bool(grad.any()) for grad in gradients) and _differs(diffusion, t, w):
        raise ValueError(
            f"expected a diffusion that autograd can differentiate for {scheme}, got one that depends on w through "
            "torch.where, detach, numpy or the like; euler needs no derivative"
        )


def _gradient(diffusion: Field, t: Tensor, w: Tensor) -> Tensor | None:
    """d sum(g) / dw, or None if autograd does not find w in the computation of g."""
    with torch.enable_grad():
        probe = w.detach().clone().requires_grad_()
        g = diffusion(t, probe)
        if not g.requires_grad:
            return None
        return torch.autograd.grad(g.sum(), probe, allow_unused=True)[0]


def _differs(diffusion: Field, t: Tensor, w: Tensor) -> bool:
    """Whether the value of g at some probe differs from its value at w."""
    with torch.no_grad():
        g = diffusion(t, w)
        return any(not torch.equal(diffusion(t, state), g) for state in _probes(w))


def _probes(w: Tensor) -> Iterator[Tensor]:
    """States near w and far from it, whose coordinates differ in sign, order and size (up to about 1e4)."""
    w = w.detach()
    direction = torch.cos(2.4 * torch.arange(1, w.shape[-1] + 1).to(w))  # both signs, no two equal
    for size in (0.01, 1.0, 100.0, 1e4):
        yield w + size * direction
        yield w - size * direction


def restrict(kind: Kind, g: Tensor, indices: Tensor) -> Tensor:
    """g_SS: the block of a diffusion that maps noise on the coordinates S to the coordinates S."""
    if kind is Kind.SCALAR:
        return g
    if kind is Kind.DIAGONAL:
        return g[..., indices]
    return g[..., indices, :][..., indices]


def apply(kind: Kind, g: Tensor, x: Tensor) -> Tensor:
    """g x."""
    if kind is Kind.DENSE:
        return (g @ x.unsqueeze(-1)).squeeze(-1)
    return g * x


def solve(kind: Kind, g: Tensor, x: Tensor) -> Tensor:
    """g^{-1} x, by solving rather than inverting; raises ValueError if g is singular.

    Example:
        >>> solve(Kind.SCALAR, torch.tensor(0.5), torch.tensor([1.0, 2.0]))
        tensor([2., 4.])
    """
    if kind is Kind.DENSE:
        solution, info = torch.linalg.solve_ex(g, x.unsqueeze(-1))
        if bool((info != 0).any()):
            raise ValueError(
                "expected a diffusion that is invertible on the stochastic coordinates, got a singular matrix"
            )
        answer: Tensor = solution.squeeze(-1)
        return answer
    if bool((g == 0).any()):
        raise ValueError("expected a diffusion that is nonzero on the stochastic coordinates, got 0")
    return x / g


def own_slope(diffusion: Field, t: Tensor, w: Tensor, noisy: Tensor) -> Tensor:
    """d g_i / d w_i for a diagonal diffusion in which g_i depends only on w_i; shape (..., m).

    `noisy` holds the indices in w of the m coordinates that g drives.
    """
    return _pull_back(diffusion, t, w, None)[..., noisy]


def require_elementwise(diffusion: Field, t: Tensor, w: Tensor, noisy: Tensor, scheme: str) -> None:
    """Raise ValueError unless autograd can differentiate g and every g_i depends only on w_i.

    If g mixes coordinates, its Jacobian J is not diagonal, and J^T r differs from r * J^T 1 for a random vector r of
    signs. The two agree by chance with probability at most 1/2 per vector; we try 8.
    """
    require_differentiable(diffusion, t, w, scheme)
    if len(noisy) > 1 and not _is_elementwise(diffusion, t, w, noisy):
        raise ValueError(
            f"expected a diagonal diffusion whose g_i depends on w_i alone for {scheme}, got one that mixes them"
        )


def _is_elementwise(diffusion: Field, t: Tensor, w: Tensor, noisy: Tensor) -> bool:
    generator, m = torch.Generator().manual_seed(0), len(noisy)
    # near w, not at w: at a symmetric point such as w = 0 the off-diagonal derivatives may vanish
    near = w.detach() + 0.01 * torch.rand(w.shape, generator=generator).to(w)
    if diffusion(t, near).shape[-1:] != (m,):
        return False  # one factor for all coordinates
    slope = own_slope(diffusion, t, near, noisy)
    signs = (torch.randint(0, 2, (8, m), generator=generator) * 2 - 1).to(w)
    return all(
        torch.allclose(_pull_back(diffusion, t, near, r)[..., noisy], r * slope, rtol=1e-4, atol=1e-6) for r in signs
    )


def _pull_back(diffusion: Field, t: Tensor, w: Tensor, cotangent: Tensor | None) -> Tensor:
    """J^T r with J = dg/dw; r is all ones if `cotangent` is None.

    Uses `torch.func`, which differentiates only g: `torch.autograd.grad` would traverse all earlier steps every time.
    """
    g, pull = _linearised(lambda state: diffusion(t, state), w)
    r = torch.ones_like(g) if cotangent is None else cotangent.expand_as(g)
    return pull(r)[0]


def ito_to_stratonovich(kind: Kind, diffusion: Field, t: Tensor, w: Tensor, noisy: Tensor) -> Tensor:
    """1/2 sum_j (d g_j / dw) g_j on the noisy coordinates: the Ito drift minus the Stratonovich drift.

    Example: for g = 0.5 w it is 1/2 * 0.5 * 0.5 w = 0.125 w.
    """
    if kind is not Kind.DENSE:
        return 0.5 * diffusion(t, w) * own_slope(diffusion, t, w, noisy)
    columns = diffusion(t, w)
    terms = []
    for j in range(len(noisy)):
        direction = torch.zeros_like(w).index_copy(-1, noisy, columns[..., j].expand(*w.shape[:-1], -1))
        column: Callable[[Tensor], Tensor] = partial(_column, diffusion, t, j)
        terms.append(_push_forward(column, w, direction))
    return 0.5 * torch.stack(terms).sum(0)


def _column(diffusion: Field, t: Tensor, j: int, w: Tensor) -> Tensor:
    return diffusion(t, w)[..., j]


def _linearised(function: Callable[[Tensor], Tensor], w: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor]]]:
    """The value of a function at w, and the map r -> (J^T r,)."""
    value, pull = torch.func.vjp(function, w)[:2]
    return value, pull


def _push_forward(function: Callable[[Tensor], Tensor], w: Tensor, direction: Tensor) -> Tensor:
    """J v, where J is the Jacobian of `function` at w: the vector-Jacobian product of r -> J^T r, which is linear."""
    value, pull = _linearised(function, w)
    _, push = _linearised(lambda r: pull(r)[0], torch.zeros_like(value))
    return push(direction)[0]
