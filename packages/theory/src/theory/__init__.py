"""The claims of "Partially Stochastic Infinitely Deep Bayesian Neural Networks", each measured against its bound.

`python -m theory` checks all of them. Each claim has a module with a function `certify(seed) -> list[Certificate]`.
"""

from theory.certificate import Certificate, Relation
from theory.report import CLAIMS, Outcome, check

__all__ = ["CLAIMS", "Certificate", "Outcome", "Relation", "check"]
__version__ = "0.1.0"
