"""Figures of Theorem 4.2: outputs of the proof's model and the conditional law that it approximates."""

from pathlib import Path

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from theory.construction import Case, construct
from theory.laws import Bimodal, Circle, HeteroscedasticGaussian, SmoothLaw
from theory.simulation import Outcome, run
from theory.theorem42 import grid

TRUE, MODEL, ACCENT = "#0072B2", "#D55E00", "#000000"  # Okabe and Ito: distinguishable for colour-blind readers
EPSILON, SAMPLES = 0.1, 1500
CASE = Case.CONTINUED


def draw(folder: Path, seed: int = 0) -> list[Path]:
    """Draw one figure per law into a directory, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    laws: dict[str, SmoothLaw] = {"gaussian": HeteroscedasticGaussian(), "bimodal": Bimodal(), "circle": Circle()}
    return [_figure(law, folder / f"ucda-{name}.png", seed) for name, law in laws.items()]


def _figure(law: SmoothLaw, file: Path, seed: int) -> Path:
    """Two panels that compare the model with a law on the line or on the plane, and the error against |eta|."""
    on_the_line = law.d_y == 1
    x = grid(41 if on_the_line else 3)
    result = run(construct(law, EPSILON, CASE), x, SAMPLES, torch.Generator().manual_seed(seed))
    figure = Figure(figsize=(13.5, 4.8), layout="constrained")
    left, right, errors = figure.subplots(1, 3, width_ratios=(1.2 if on_the_line else 1, 1, 0.9))
    panels = (_quantiles, _densities) if on_the_line else (_points, _angles)
    for axes, panel in zip((left, right), panels, strict=True):
        panel(axes, law, x, result)
    _errors(errors, result)
    setting = f"weights continued past $t_2$, $\\varepsilon$ = {EPSILON}, {SAMPLES} weight paths"
    figure.suptitle(f"Theorem 4.2, {law.name} law: {setting}")
    figure.savefig(file, dpi=140)
    return file


def _quantiles(axes: Axes, law: SmoothLaw, x: Tensor, result: Outcome) -> None:
    """Quantiles of the model and of the law over x, and some of the model's outputs."""
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
    eta = torch.special.ndtri(levels)[:, None, None]
    exact = law.generator(x.expand(len(levels), -1, -1), eta.expand(-1, len(x), -1))[..., 0]
    sampled = torch.quantile(result.y[..., 0], levels, dim=0)
    places = x[:, 0].numpy()
    axes.plot(places, result.y[:150, :, 0].T.numpy(), color="#BBBBBB", linewidth=0.3)
    for k in range(len(levels)):
        axes.plot(places, exact[k].numpy(), color=TRUE, linewidth=2, label="true law" if k == 0 else None)
        axes.plot(places, sampled[k].numpy(), "--", color=MODEL, linewidth=1.6, label="model" if k == 0 else None)
    axes.plot([], [], color="#BBBBBB", label="model, one weight path each")
    axes.set(xlabel="input $x$", ylabel="output $y$", title="quantiles 5, 25, 50, 75, 95 %")
    _legend(axes, 3)


def _densities(axes: Axes, law: SmoothLaw, x: Tensor, result: Outcome) -> None:
    """Histograms and densities at three inputs, one above the other."""
    ends = (float(result.y.min()), float(result.y.max()))
    y = torch.linspace(*ends, 400, dtype=torch.float64)
    step = float(y[1] - y[0])
    rows = ((0, "-1"), (len(x) // 2, "0"), (len(x) - 1, "1"))
    curves = []
    for k, _ in rows:
        cdf = law.uniforms(x[k].expand(len(y), 1), y[:, None])[:, 0]
        curves.append(torch.gradient(cdf, spacing=step)[0])
    height = 1.5 * max(float(curve.max()) for curve in curves)
    for row, ((k, name), density) in enumerate(zip(rows, curves, strict=True)):
        bars, line = ("model", "true density") if row == 0 else (None, None)
        counts, edges = torch.histogram(result.y[:, k, 0].double(), bins=45, range=ends, density=True)
        base, levels = row * height, (counts + row * height).numpy()
        axes.stairs(levels, edges.numpy(), baseline=base, fill=True, color=MODEL, alpha=0.45, label=bars)
        axes.plot(y.numpy(), (density + base).numpy(), color=TRUE, linewidth=2, label=line)
        axes.text(ends[1], (row + 0.12) * height, f"$x$ = {name}", fontsize=10, ha="right")
    axes.set(xlabel="output $y$", ylabel="density", yticks=[], title="densities at three inputs")
    _legend(axes, 2)


def _errors(axes: Axes, result: Outcome) -> None:
    """The error of each path, sup over x, against |eta|; it is at most epsilon on A."""
    size, inside = result.eta.norm(dim=-1), result.inside
    for mask, colour, marker, name in ((inside, MODEL, "o", "in $A$"), (~inside, ACCENT, "x", "not in $A$")):
        axes.scatter(size[mask].numpy(), result.error[mask].numpy(), s=10, color=colour, marker=marker, label=name)
    axes.axhline(EPSILON, color=TRUE, linewidth=1.5, label="$\\varepsilon$")
    title = f"{float(inside.double().mean()):.1%} of the paths lie in $A$"
    axes.set(xlabel="$|\\eta|$", ylabel="error, sup over $x$", yscale="log", title=title)
    _legend(axes, 3)


def _points(axes: Axes, law: SmoothLaw, x: Tensor, result: Outcome) -> None:
    """Outputs at three inputs, on the law's curve."""
    for k, marker in enumerate(("o", "s", "^")):
        ring = law.sample(x[k].expand(2000, 1), torch.Generator().manual_seed(1))
        ring = ring[torch.atan2(ring[:, 1], ring[:, 0]).argsort()]
        axes.plot(*ring.T.numpy(), color=TRUE, linewidth=6, alpha=0.4, label="true law" if k == 0 else None)
        (first, second), label = result.y[:250, k].T.numpy(), f"$x$ = {int(x[k])}"
        axes.scatter(first, second, s=9, color=MODEL, marker=marker, label=label, zorder=3)
    axes.set(xlabel="$y_1$", ylabel="$y_2$", title="model at three inputs, 250 paths", aspect="equal")
    _legend(axes, 4)


def _angles(axes: Axes, law: SmoothLaw, x: Tensor, result: Outcome) -> None:
    """Distribution function of the angle at x = 0; at other inputs it differs only by the error."""
    turns = law.uniforms(x[1].expand(SAMPLES, 1), result.y[:, 1])[:, 0].sort().values
    axes.plot([0, 1], [0, 1], color=TRUE, linewidth=2, label="true law: uniform")
    axes.plot(turns.numpy(), torch.linspace(0, 1, SAMPLES).numpy(), "--", color=MODEL, linewidth=1.6, label="model")
    axes.set(xlabel="angle / $2\\pi$", ylabel="share of the samples below", title="angles at $x$ = 0")
    _legend(axes, 2)


def _legend(axes: Axes, columns: int) -> None:
    """A legend below the axes."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=columns, fontsize=9, frameon=False)
