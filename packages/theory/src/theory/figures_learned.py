"""Figures of the learned laws: model and true law at three inputs; the ring with and without extra dimensions."""

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from sdeweights.testing import seeded
from theory import learned_ring
from theory.annulus import Sample
from theory.figures_ucda import MODEL, TRUE
from theory.generators import Generator
from theory.laws import Law
from theory.learned_laws import INPUTS, TASKS, trained
from theory.theorem41 import ANNULUS

SAMPLES = 4000


def draw(folder: Path, seed: int = 0) -> list[Path]:
    """Draw both figures into a directory, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, figure in (("learned-laws", learned(seed)), ("learned-ring", rings(seed))):
        drawn.append(folder / f"{name}.png")
        figure.savefig(drawn[-1], dpi=140)
    return drawn


def learned(seed: int = 0) -> Figure:
    """One row per law, one column per input."""
    figure = Figure(figsize=(11, 10), layout="constrained")
    rows = figure.subplots(len(TASKS), len(INPUTS), squeeze=False)
    for axes_of_law, (name, task) in zip(rows, TASKS.items(), strict=True):
        panel = _histogram if task.law.d_y == 1 else _points
        for axes, x in zip(axes_of_law, INPUTS, strict=True):
            panel(axes, trained(name, seed), task.law, x)
            axes.set_title(f"{name}, $x$ = {x:g}", fontsize=11)
        axes_of_law[0].legend(loc="upper right", fontsize=9)
    figure.suptitle("Laws learned from samples: the noise of the weights generates $y$ given $x$")
    return figure


def _histogram(axes: Axes, model: Generator, law: Law, x: float) -> None:
    """Histogram of the model's samples and the true density."""
    y = model.sample(x, SAMPLES, seeded(1))[:, 0]
    grid = torch.linspace(-2, 2, 401, dtype=torch.float64)
    cdf = law.uniforms(torch.full((len(grid), 1), x, dtype=torch.float64), grid[:, None])[:, 0]
    density = torch.gradient(cdf, spacing=float(grid[1] - grid[0]))[0]
    axes.hist(y.numpy(), bins=50, range=(-2, 2), density=True, color=MODEL, alpha=0.45, label="learned")
    axes.plot(grid.numpy(), density.numpy(), color=TRUE, linewidth=2, label="true density")
    axes.set(xlabel="output $y$", ylabel="density", ylim=(0, 1.5 * float(density.max())))


def _points(axes: Axes, model: Generator, law: Law, x: float) -> None:
    """Samples of the model on the true curve."""
    ring = law.sample(torch.full((2000, 1), x, dtype=torch.float64), seeded(1))
    ring = ring[torch.atan2(ring[:, 1], ring[:, 0]).argsort()]
    axes.plot(*ring.T.numpy(), color=TRUE, linewidth=4, alpha=0.5, label="true law")
    y = model.sample(x, 500, seeded(2))
    axes.scatter(y[:, 0].numpy(), y[:, 1].numpy(), s=6, color=MODEL, label="learned", zorder=3)
    axes.set(xlabel="$y_1$", ylabel="$y_2$", aspect="equal", xlim=(-1.5, 1.5), ylim=(-1.5, 1.5))


def rings(seed: int = 0) -> Figure:
    """L psi_1(x) against |x| along 20 weight paths: the target z, and the two models."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    sample = ANNULUS.sample(2, 100, seeded(seed))
    for axes, extra in zip(figure.subplots(1, 2, sharey=True), (0, learned_ring.EXTRA), strict=True):
        found = learned_ring.judged(extra, seed)
        with torch.no_grad():
            path = found.model.paths(learned_ring.PATHS, seeded(seed + 3))
            _outputs(axes, sample, found.model.outputs(sample.x, path)[..., 0])
        own = [v.own for v in found.verdicts]
        where = "$d_h = d_x$" if extra == 0 else f"$d_h = d_x + {extra}$"
        axes.set(xlabel="$|x|$", title=f"{where}: sup error {min(own):.2f} to {max(own):.2f}")
    figure.axes[0].set_ylabel("output $L\\,\\psi_1(x)$")
    figure.axes[0].legend(loc="best", fontsize=9)
    figure.suptitle("A ball and a ring, learned: without extra dimensions every weight path fails (Theorem 4.1)")
    return figure


def _outputs(axes: Axes, sample: Sample, outputs: Tensor) -> None:
    radius = sample.x.norm(dim=-1)
    for row in outputs:
        axes.scatter(radius.numpy(), row.numpy(), s=2, color=MODEL, alpha=0.25, linewidths=0)
    axes.plot([], [], "o", color=MODEL, markersize=4, label=f"model, {len(outputs)} weight paths")
    for level, ends in ((-1, (0, ANNULUS.r1)), (1, (ANNULUS.r2, ANNULUS.r3))):
        axes.plot(ends, (level, level), color=TRUE, linewidth=3, label="target $z$" if level < 0 else None)
