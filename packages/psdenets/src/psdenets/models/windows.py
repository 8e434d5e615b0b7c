"""The cut of every block: that of the config, or its part of a window over the whole network.

With `--scope network` the depth of n blocks is one interval [0, 1]. Block b covers [b/n, (b+1)/n]; its window is the
intersection with (t1, t2), rescaled to [0, 1].
"""

from __future__ import annotations

from psdenets.config import Config
from psdenets.options.cut import CutOptions
from sdeweights import Cut, Grid


def cuts_of(config: Config) -> tuple[Cut, ...]:
    """One cut for each block, from the input to the output.

    Example: ODE-first with ratio 0.25 over two blocks makes the second half of the second block noisy.
        >>> cuts_of(Config(order="ode-first", ratio=0.25, blocks="2", scope="network"))[1]
        Cut(t1=0.5, t2=1.0, stochastic=1.0, at_t2='continue')
    """
    blocks: int = sum(config.system.net.scales)
    cut: CutOptions = config.system.cut
    if cut.cut == "none":
        return (Cut.none(),) * blocks
    stochastic = cut.share if cut.horizontal else 1.0
    t1, t2 = cut.window
    if cut.scope == "block":
        return (Cut(t1, t2, stochastic, cut.at_t2),) * blocks
    return tuple(_local(t1 * blocks - b, t2 * blocks - b, stochastic, cut.at_t2) for b in range(blocks))


def grid_of(config: Config, cut: Cut) -> Grid:
    """The steps of a block, two at least in its stochastic phase where there are enough of them.

    h takes Euler steps with the weights at their left ends. Where a single noisy step ends at t = 1 or at a reset, no
    step of h would begin with noisy weights, and all samples would predict the same.

    Example: six steps with the last tenth of depth noisy are four and two, not five and one.
        >>> [phase.steps for phase in grid_of(Config(steps=6), Cut.ode_first(0.1)).phases]
        [4, 2]
    """
    steps = config.system.flow.steps
    grid = Grid.of(cut, steps)
    if grid.sde is None or len(grid.phases) == 1:
        return grid
    wanted = config.system.cut.sde_steps or max(2, grid.sde.steps)
    possible = steps - len(grid.phases) + 1
    return Grid.of(cut, steps, min(wanted, possible))


def _local(t1: float, t2: float, stochastic: float, at_t2: str) -> Cut:
    """The window inside one block. If it extends to the end of the block, there is nothing left to reset."""
    t1, t2 = (min(max(_snapped(t), 0.0), 1.0) for t in (t1, t2))
    if t1 == t2:
        return Cut.none()
    return Cut(t1, t2, stochastic, "continue" if t2 == 1 else at_t2)


def _snapped(t: float) -> float:
    """Rounded to 1e-12: 0.9 * 10 - 8 is not 1, and a window of 1e-15 would take a step of its own."""
    return round(t, 12)
