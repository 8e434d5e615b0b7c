"""Train the digits with three cuts and without noise, and compare them on the same test images.

python examples/compare_cuts.py [FOLDER]      about two minutes on one core
"""

import sys
from pathlib import Path

import psdenets

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/compare_cuts")
runs = {
    cut: psdenets.fit(
        f"digits-cpu-{cut}", epochs=12, tune_sigma="widest", out=str(folder / cut), resume=True, progress="lines"
    )
    for cut in ("ode-first", "horizontal", "sde-bnn")
}
twin = psdenets.fit("digits-cpu-none", epochs=12, out=str(folder / "none"), resume=True, progress="lines")

print(psdenets.runs_table([*runs.values(), twin]))
for name, run in runs.items():
    print(f"\n{name} (a) against no noise (b)")
    print(psdenets.compare_runs(run, twin, ood="noise"))
