"""Train weight processes on a regression whose posterior is known, and compare them with it.

python examples/exact_posterior.py      less than a minute on one core
"""

from theory.best_drifts import Price
from theory.exact_posterior import CUTS, measure, problem, trained

# y = X w_1 + e, and w is an Ornstein-Uhlenbeck process with the noise of the cut. The price is that of the part without
# noise: its drift is the prior's ("kept"), or it is trained for free, as in the paper.
for name in ("full", "ODE-first", "both"):
    of = problem(name)
    print(f"{name}: {CUTS[name]}, log evidence {of.log_evidence():.3f}")
    for price in (Price.KEPT,) if name == "full" else (Price.KEPT, Price.FREE):
        found = measure(trained(name, price, seed=0), of, price, solver="fused-euler", seed=0).fit
        ratios = " ".join(f"{ratio:.2f}" for ratio in found.ratios)
        print(
            f"  drift {price.name.lower()}: objective {of.log_evidence(price) - found.gap:.3f}, largest error of E w_1 "
            f"{found.mean_error:.3f}, Var w_1 / posterior variance {ratios}"
        )
