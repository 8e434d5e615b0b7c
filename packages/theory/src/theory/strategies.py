"""Hypothesis strategies for the objects of the claims: models with known Lipschitz constants, weight paths, annuli.

Cuts, windows and vectors come from `sdeweights.testing`.
"""

import math

import torch
from hypothesis import strategies as st
from torch import Tensor

from sdeweights import Cut, WeightPath
from sdeweights.testing import cuts, seeded
from theory.annulus import Annulus
from theory.models import Model, random_model

seeds = st.integers(0, 2**31 - 1)


def orthogonal_matrices(d: int) -> st.SearchStrategy[Tensor]:
    """Orthogonal (d, d) matrices, including reflections."""
    return seeds.map(lambda seed: torch.linalg.qr(torch.randn(d, d, generator=seeded(seed), dtype=torch.float64)).Q)


@st.composite
def invertible_matrices(draw: st.DrawFn, d: int, condition: float = 100.0) -> Tensor:
    """(d, d) matrices U diag(s) V with singular values s between 1 / sqrt(condition) and sqrt(condition)."""
    U, V = draw(orthogonal_matrices(d)), draw(orthogonal_matrices(d))
    half = math.log(condition) / 2
    logs = draw(st.lists(st.floats(-half, half), min_size=d, max_size=d))
    return U @ torch.diag(torch.tensor(logs, dtype=torch.float64).exp()) @ V


@st.composite
def annuli(draw: st.DrawFn, smallest: float = 0.05) -> Annulus:
    """Radii 0 < r1 < r2 < r3 <= 3, at least `smallest` apart."""
    gaps = draw(st.lists(st.floats(smallest, 1.0), min_size=3, max_size=3))
    return Annulus(gaps[0], gaps[0] + gaps[1], sum(gaps))


@st.composite
def models(draw: st.DrawFn, d: int, any_cut: bool = True) -> Model:
    """Models of Theorem 4.1 on R^d with any cut; the Lipschitz constant of f_h is at most 6."""
    cap, width, seed = draw(st.floats(0.5, 6.0)), draw(st.integers(1, 6)), draw(seeds)
    d_w = 2 * d * width + width + d
    cut = draw(cuts(d_w)) if any_cut else Cut.full()
    return random_model(d, seed, cut=cut, cap=cap, width=width, sigma=draw(st.floats(0.01, 2.0)))


@st.composite
def models_with_paths(draw: st.DrawFn, d: int, any_cut: bool = True) -> tuple[Model, WeightPath]:
    """A model and one of its weight paths, with dt * Lip < 1 even if a phase of the cut has a single step."""
    model = draw(models(d, any_cut))
    return model, model.paths(1, seeded(draw(seeds)), steps=draw(st.integers(24, 40)))
