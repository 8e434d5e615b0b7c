"""Learn a law of y given x with two modes from samples, by the importance-weighted bound.

python examples/learned_law.py      about half a minute on one core
"""

from dataclasses import replace

from sdeweights.testing import seeded
from theory.learned_laws import INPUTS, TASKS, compare
from theory.learning import Plan

# One weight is noisy, and only before t = 1/4; a network of five hidden coordinates turns its noise into the law.
task = replace(TASKS["bimodal"], plan=Plan(updates=300, pairs=64, paths=64, rate=0.02))  # `theory` itself trains longer
for name, model in (("before training", task.untrained(seed=0)), ("after 300 updates", task.trained(seed=0))):
    print(f"{name}: energy distance of 1,000 samples to 1,000 of the true law, and that of 95 % of relabellings")
    for x in INPUTS:
        found = compare(model, task.law, x, seeded(1))
        print(
            f"  x = {x:4.1f}: {found.distance:.4f}, {found.critical:.4f} (medians); passed {found.share:.0%} of tests"
        )
