"""Figures: sample paths of the paper's Figures 1 and 2, and the image of a ball and a ring under a flow."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure

from sdeweights import Cut, WeightPath, flow
from sdeweights.testing import seeded
from theory import figures_learned, figures_ucda
from theory.annulus import Annulus, directions
from theory.figure_paths import figure_1, figure_2
from theory.maps import Map, euler_fold
from theory.models import random_model

# Okabe and Ito's palette, which colour-blind readers can distinguish
BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#999999"
PALETTE = (BLUE, ORANGE, GREEN, RED, "#CC79A7", "#56B4E9")
PATHS = 6
STYLE: Any = {
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11, "font.size": 10,
    "figure.constrained_layout.use": True,
}  # fmt: skip


def draw_all(folder: Path, seed: int = 0) -> list[Path]:
    """Draw all figures of the package as PNG files into a directory, which is created if it does not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, draw in (("figure1", vertical_cut), ("figure2", horizontal_cut), ("annulus", annulus_under_maps)):
        path = folder / f"{name}.png"
        with mpl.rc_context(STYLE):
            draw(seed).savefig(path, dpi=150)
        drawn.append(path)
    return [*drawn, *figures_ucda.draw(folder, seed), *figures_learned.draw(folder, seed)]


def vertical_cut(seed: int = 0) -> Figure:
    """Figure 1: w_t with noise on (0.3, 0.6), w_0.6 kept (left) and fixed (right)."""
    figure = Figure(figsize=(9, 3.4))
    left, right = figure.subplots(1, 2, sharey=True)
    for ax, at_t2, title in (
        (left, "continue", "$w_{0.6}$ kept: random to the end"),
        (right, "fixed", "$w_{0.6}$ fixed: one path again"),
    ):
        _plot_paths(ax, figure_1(at_t2, PATHS, seeded(seed)), 0)
        ax.axvspan(0.3, 0.6, color=GREY, alpha=0.2, lw=0)
        ax.text(0.45, 0.02, "noise", transform=ax.get_xaxis_transform(), ha="center", color="#555555")
        ax.set(title=title, xlabel="depth $t$", xlim=(0, 1))
    left.set_ylabel("weight $w_t$")
    figure.suptitle(r"Vertical cut: $f_q = \cos 20t$ outside (0.3, 0.6); $f_q = 0$, $g = 1$ inside")
    return figure


def horizontal_cut(seed: int = 0) -> Figure:
    """Figure 2: w_S, and w_D with and without a separated f_q."""
    figure = Figure(figsize=(11, 3.4))
    apart, leaky = (figure_2(separated, PATHS, seeded(seed)) for separated in (True, False))
    panels = (
        (apart, 0, "$w_S$: noisy", "$w_S$"),
        (leaky, 1, "$w_D$, $f_q = [-w_S,\\ t + w_D + w_S]$: leaks", "$w_D$"),
        (apart, 1, "$w_D$, $f_q = [-w_S,\\ t + w_D]$: deterministic", "$w_D$"),
    )
    axes = figure.subplots(1, 3)
    for ax, (path, coordinate, title, name) in zip(axes, panels, strict=True):
        _plot_paths(ax, path, coordinate)
        ax.set(title=title, xlabel="depth $t$", ylabel=f"weight {name}", xlim=(0, 1))
    axes[2].sharey(axes[1])
    figure.suptitle("Horizontal cut: six weight paths, $g = [1, 0]$")
    return figure


def _plot_paths(ax: Any, path: WeightPath, coordinate: int) -> None:
    """Sample paths, with the jump at a reset."""
    for i, color in zip(range(path.samples), PALETTE, strict=False):
        w = path.w[i, :, coordinate]
        if path.reset is None or path.after_reset is None:
            ax.plot(path.ts, w, color=color, lw=1.2)
            continue
        k = path.reset
        after = torch.cat([path.after_reset[i, coordinate : coordinate + 1], w[k + 1 :]])
        ax.plot(path.ts[: k + 1], w[: k + 1], color=color, lw=1.2)
        ax.plot([path.ts[k]] * 2, [w[k], after[0]], color=color, lw=0.8, ls=":")
        ax.plot(path.ts[k:], after, color=color, lw=1.2)


def annulus_under_maps(seed: int = 0) -> Figure:
    """A ball, a ring around it and a grid, and their images under a flow and under a single Euler step (too long)."""
    model = random_model(2, seed + 3, cut=Cut.ode_first(0.5), width=12)
    path = model.paths(1, seeded(seed), steps=64)
    maps: tuple[tuple[Map, str], ...] = (
        (lambda x: x, "inputs: ball $z=-1$, ring $z=+1$"),
        (lambda x: flow(model.f_h, x, path, "rk4")[0], "a flow: bent, and still one inside the other"),
        (euler_fold(1), "one Euler step, $dt\\,Lip = 2$: folded, separable"),
    )
    figure = Figure(figsize=(12, 4.3))
    with torch.no_grad():
        axes = figure.subplots(1, 3)
        for ax, (psi, title) in zip(axes, maps, strict=True):
            _plot_image(ax, psi, Annulus())
            ax.set_title(title)
    axes[0].legend(loc="lower right", markerscale=4, framealpha=0.9)
    return figure


def _plot_image(ax: Any, psi: Map, annulus: Annulus) -> None:
    along = torch.linspace(-annulus.r3, annulus.r3, 200, dtype=torch.float64)
    for level in torch.linspace(-annulus.r3, annulus.r3, 13, dtype=torch.float64):
        for line in (torch.stack([along, level.expand(200)], -1), torch.stack([level.expand(200), along], -1)):
            ax.plot(*psi(line).T, color=GREY, lw=0.6, alpha=0.7, zorder=1)
    sample = annulus.sample(2, 700, seeded())
    for points, color, label in ((sample.ring, ORANGE, "ring"), (sample.ball, BLUE, "ball")):
        ax.scatter(*psi(points).T, s=4, color=color, lw=0, zorder=2, label=label)
    for radius, color in ((annulus.r1, BLUE), (annulus.r2, RED), (annulus.r3, RED)):
        circle = radius * directions(2, 400, seeded())
        closed = torch.cat([circle, circle[:1]])
        ax.plot(*psi(closed).T, color=color, lw=1.4, zorder=3)
    ax.set(aspect="equal", xlabel="$h_1$", ylabel="$h_2$")
