"""The table of `theory.exact_posterior`, as Markdown: what the best drift of every cut reaches at every price.

    objective - log evidence,    max_i |E w_1 - posterior mean|_i,    Var w_1 / posterior variance, smallest to largest

All numbers are closed forms (`theory.best_drifts`), so the table is the same on every machine to the printed digits.
"""

from theory.best_drifts import Price
from theory.exact_posterior import CUTS, Fit, best_fit

PRICES = {Price.KEPT: "prior's drift", Price.FREE: "free", Price.CHARGED: "MAP price"}
HEAD = (
    "| cut | deterministic part | objective - log evidence | error of E w_1 | Var w_1 / posterior variance |",
    "|---|---|---|---|---|",
)


def markdown(seed: int = 0) -> str:  # noqa: ARG001 - closed forms do not depend on it
    """One row per cut and price; the full cut has no deterministic part and one row."""
    rows = [_row("full", "(there is no such part)", best_fit("full", Price.KEPT))]
    for name in list(CUTS)[1:]:
        rows += [_row(name if price is Price.KEPT else "", PRICES[price], best_fit(name, price)) for price in PRICES]
    return "\n".join((*HEAD, *rows))


def _row(cut: str, price: str, fit: Fit) -> str:
    low, high = (f"{_rounded(r, 2)}" for r in (min(fit.ratios), max(fit.ratios)))
    ratios = low if low == high else f"{low} to {high}"
    return f"| {cut} | {price} | {_rounded(-fit.gap, 3)} | {_rounded(fit.mean_error, 3)} | {ratios} |"


def _rounded(x: float, digits: int) -> str:
    """A number with so few digits that rounding errors do not show; no minus sign in front of zero."""
    return f"{round(x, digits) + 0.0:.{digits}f}"
