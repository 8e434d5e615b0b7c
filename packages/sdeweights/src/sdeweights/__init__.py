"""Neural-network weights that follow an SDE on part of the depth or of the coordinates, and an ODE elsewhere.

dh = f_h(t, h; w) dt                                           hidden state, all of [0, 1]
dw = f_q(t, w) dt + 1[t1 < t < t2] P_S g(t, w) P_S dB          weights: noisy only on S x (t1, t2); Ito
KL = E 1/2 int_{t1}^{t2} |g_SS^{-1} (f_q - f_p)_S|^2 dt
"""

from sdeweights import indices
from sdeweights.bounds import importance_bound
from sdeweights.brownian import Increments
from sdeweights.coefficients import LogNormal, Positive
from sdeweights.cuts import Cut
from sdeweights.depth import StochasticDepth
from sdeweights.diffusion import Field
from sdeweights.drifts import BottleneckDrift, DiagonalDrift, PriorPlus, SplitDrift, bottleneck
from sdeweights.errors import NonFiniteState
from sdeweights.flow import Prefix, flow, shared_prefix
from sdeweights.frozen import FrozenDepth
from sdeweights.functional import Functional, HiddenDrift, flatten
from sdeweights.grid import Grid
from sdeweights.kl import path_action, path_kl
from sdeweights.path import WeightPath
from sdeweights.priors import Brownian, BrownianBridge, OrnsteinUhlenbeck, Prior
from sdeweights.process import WeightProcess
from sdeweights.start import GaussianStart

__all__ = [
    "BottleneckDrift", "Brownian", "BrownianBridge", "Cut", "DiagonalDrift", "Field", "FrozenDepth", "Functional",
    "GaussianStart", "Grid", "HiddenDrift", "Increments", "LogNormal", "NonFiniteState", "OrnsteinUhlenbeck",
    "Positive", "Prefix", "Prior", "PriorPlus", "SplitDrift", "StochasticDepth", "WeightPath", "WeightProcess",
    "bottleneck", "flatten", "flow", "importance_bound", "indices", "path_action", "path_kl", "shared_prefix",
]  # fmt: skip
__version__ = "0.1.0"
