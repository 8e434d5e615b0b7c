"""Regression with a gap in the data: train three cuts, and draw where each of them is uncertain.

python examples/gap.py [FOLDER]      about three minutes on one core; FOLDER/CUT.png are the figures
"""

import shutil
import sys
from pathlib import Path

import psdenets

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/gap")
runs = []
for cut in ("vertical", "full", "both"):
    run = psdenets.fit(dataset="gap", cut=cut, out=str(folder / cut), resume=True, progress="lines")
    shutil.copy(folder / cut / "plots" / "function.png", folder / f"{cut}.png")
    runs.append(run)

print(psdenets.runs_table(runs))
