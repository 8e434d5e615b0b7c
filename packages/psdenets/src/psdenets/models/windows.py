"""The cut and grid of every block.

By default every block has the cut of the config. With `--scope network`, the depth of n blocks is one interval [0, 1]:
block b covers [b/n, (b+1)/n], and its window is the intersection with (t1, t2), rescaled to [0, 1].
"""

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


def grid_of(config: Config, cut: Cut, steps: int | None = None) -> Grid:
    """The grid of a block, with at least two steps in its stochastic phase if there are enough steps.

    The default for `steps` is the last grid of training, to which --sde-steps refers; other grids get a number of
    stochastic steps in proportion.

    h takes Euler steps with the weights at their left ends. If there were a single noisy step and it ended at t = 1 or
    at a reset, no step of h would start from noisy weights, and all samples would make the same prediction.

    Example: with the last tenth of the depth noisy, six steps are split into four and two, not five and one.
        >>> [phase.steps for phase in grid_of(Config(steps=6), Cut.ode_first(0.1)).phases]
        [4, 2]
    """
    finest = config.system.flow.finest
    steps = finest if steps is None else steps
    grid = Grid.of(cut, steps)
    if grid.sde is None or len(grid.phases) == 1:
        return grid
    wanted = config.system.cut.sde_steps_on(steps, finest) or max(2, grid.sde.steps)
    possible = steps - len(grid.phases) + 1
    return Grid.of(cut, steps, min(wanted, possible))


def _local(t1: float, t2: float, stochastic: float, at_t2: str) -> Cut:
    """The cut of one block. If its window extends to the end of the block, there is nothing left to reset."""
    t1, t2 = (min(max(_snapped(t), 0.0), 1.0) for t in (t1, t2))
    if t1 == t2:
        return Cut.none()
    return Cut(t1, t2, stochastic, "continue" if t2 == 1 else at_t2)


def _snapped(t: float) -> float:
    """t rounded to 1e-12: 0.9 * 10 - 8 is not exactly 1, and a window of length 1e-15 would get its own step."""
    return round(t, 12)
