"""Euler schemes for the paper's drift f_p + bottleneck net, with few passes over memory and hand-written gradients.

Selected by name: `process.sample(..., solver="fused-euler", ode_solver="fused-euler")`. Only the registry in
`sdeweights.solvers` imports from here.
"""

from sdeweights.fused.solvers import FusedEuler, FusedOdeEuler

__all__ = ["FusedEuler", "FusedOdeEuler"]
